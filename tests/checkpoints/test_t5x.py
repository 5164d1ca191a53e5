"""T5X's checkpoints: every layout that it has had is read, and one is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization
from flax.traverse_util import flatten_dict

from specjax.checkpoints import t5x, t5x_native, t5x_store
from specjax.checkpoints.archive import Archive
from specjax.models import t5
from tests.t5x_files import (
    CONFIG,
    LARGE,
    LAYOUTS,
    V1_0,
    arrays,
    assert_same,
    in_memory,
    native,
    nested,
    one_file,
    orbax,
    write_tree,
    zarr,
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(tmp_path, layout, dtype):
    flat = arrays(dtype=dtype)
    path = layout(tmp_path / "checkpoint_7", flat)
    assert t5x.is_t5x(path)
    archive = t5x.open(path)
    assert_same(archive, flat)
    assert archive.where == str(path)
    assert t5x.infer_config(archive) == CONFIG
    assert_same(t5x.open(f"file://{path}"), flat)
    other = dict(flat, **{LARGE: flat[LARGE] + flat[LARGE].dtype.type(1)})
    with pytest.raises(AssertionError):
        assert_same(archive, other)


@pytest.mark.parametrize("layout", [native, orbax])
def test_a_run_in_a_bucket(tmp_path, layout):
    flat, url = arrays(), f"memory://{tmp_path.name}-{layout.__name__}/run"
    layout(tmp_path / "checkpoint_7", flat)
    in_memory(tmp_path, url)
    assert t5x.is_t5x(url)
    for path in (url, f"{url}/checkpoint_7", f"{url}/checkpoint_7/"):
        assert_same(t5x.open(path), flat)


def test_one_file_in_a_bucket(tmp_path):
    one_file(tmp_path / "model.checkpoint_0", arrays())
    url = in_memory(tmp_path, f"memory://{tmp_path.name}") + "/model.checkpoint_0"
    assert t5x.is_t5x(url)
    assert_same(t5x.open(url), arrays())


def test_where_urls_point():
    spec = t5x_store.base("gs://some-bucket/run/checkpoint_7")
    assert spec == {
        "driver": "gcs",
        "bucket": "some-bucket",
        "path": "run/checkpoint_7/",
    }
    assert t5x_store.base("/a/b") == {"driver": "file", "path": "/a/b/"}
    with pytest.raises(ValueError, match="local path or a gs://"):
        t5x.open("nowhere://a/b")


@pytest.mark.parametrize(
    "kvstore", [{"driver": "gfile"}, {"driver": "gcs", "bucket": "t5x-dummy-bucket"}]
)
@pytest.mark.parametrize("path_at_top", [False, True])
def test_specs_that_alone_describe_their_arrays(tmp_path, kvstore, path_at_top):
    kernel = np.arange(50, dtype=np.float64).reshape(10, 5)
    scale = np.arange(5, dtype=np.float32)
    target = {}
    for name, array in (("kernel", kernel), ("scale", scale)):
        spec = zarr(tmp_path, f"target.{name}", array, **kvstore)
        if path_at_top:
            spec["path"] = spec["kvstore"].pop("path")
        (tmp_path / f"target.{name}" / ".zarray").unlink()
        target[name] = spec
    write_tree(tmp_path / "checkpoint", target)
    assert_same(t5x.open(tmp_path), {"kernel": kernel, "scale": scale})


def test_a_slice_reads_its_chunks_alone(tmp_path):
    flat = arrays()
    native(tmp_path, flat, chunks=(4, 4))
    chunks = tmp_path / f"target.{LARGE.replace('/', '.')}"
    assert {file.name for file in chunks.iterdir()} == {
        ".zarray",
        *(f"{i}.{j}" for i in range(3) for j in range(2)),
    }
    assert_same(t5x.open(tmp_path), flat)
    for damaged in ("1.0", "2.1"):
        (chunks / damaged).write_bytes(b"none")
    archive = t5x.open(tmp_path)
    for part in (slice(1, 3), slice(4, 6)), (slice(8, 99), slice(0, 4)):
        assert (archive.read(LARGE, part) == flat[LARGE][part]).all()
    for part in (slice(3, 5), slice(0, 4)), (slice(None), slice(None)):
        with pytest.raises(ValueError, match=f"{LARGE} is damaged or was cut short"):
            archive.read(LARGE, part)


def test_a_part_of_an_array_in_one_file(tmp_path):
    archive = t5x.open(one_file(tmp_path / "model", arrays()))
    part = slice(2, 5), slice(0, 3)
    assert (archive.read(LARGE, part) == arrays()[LARGE][part]).all()


@pytest.mark.parametrize("root", [(), ("params",)])
def test_where_older_trees_have_their_parameters(tmp_path, root):
    flat = {"w": np.ones((2, 3), np.float32)}
    target = {"params": flat} if root else flat
    tree = {"target": target, "state": {"step": np.int32(1)}}
    (tmp_path / "model").write_bytes(serialization.msgpack_serialize(tree))
    assert t5x.is_t5x(tmp_path / "model")
    assert_same(t5x.open(tmp_path / "model"), flat)


@pytest.mark.parametrize("config", [CONFIG, V1_0, CONFIG._replace(vocab=32128)])
def test_sizes_are_inferred(config):
    flat = flatten_dict(t5.abstract_params(config), sep="/")
    pieces = 32100 if config.vocab == 32128 else None
    found = t5x.infer_config(Archive(flat, None, "here"))
    assert found == config._replace(pieces=pieces)
    del flat[LARGE]
    with pytest.raises(ValueError, match="here is no T5"):
        t5x.infer_config(Archive(flat, None, "here"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_saved_is_read_again(tmp_path, dtype):
    flat = arrays(dtype=dtype)
    path = t5x.save(tmp_path / "run", 12, nested(jax.tree.map(jnp.asarray, flat)))
    assert path == tmp_path / "run" / "checkpoint_12"
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint_12"]
    assert_same(t5x.open(tmp_path / "run"), flat)
    tree = serialization.msgpack_restore((path / "checkpoint").read_bytes())
    assert tree["version"] == 3
    assert tree["optimizer"]["state"] == {"step": np.int32(12)}
    by_hand = native(tmp_path / "by_hand", flat) / "checkpoint"
    like = serialization.msgpack_restore(by_hand.read_bytes())
    assert tree["optimizer"]["target"] == like["optimizer"]["target"]


def test_large_arrays_are_saved_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(t5x_native, "CHUNK_BYTES", 100)  # of 288
    path = t5x.save(tmp_path, 0, nested(arrays()))
    folder = path / f"target.{LARGE.replace('/', '.')}"
    assert {f.name for f in folder.iterdir()} == {".zarray", "0.0", "1.0", "2.0"}
    assert_same(t5x.open(path), arrays())


def test_a_save_that_fails_leaves_nothing(tmp_path):
    params = nested(arrays() | {"zz": np.array(["text"])})
    with pytest.raises(Exception, match="str"):
        t5x.save(tmp_path, 1, params)
    assert not list(tmp_path.iterdir())
    t5x.save(tmp_path, 1, nested(arrays()))
    with pytest.raises(ValueError, match="there already"):
        t5x.save(tmp_path, 1, nested(arrays(V1_0)))
    assert_same(t5x.open(tmp_path), arrays())
    with pytest.raises(ValueError, match="0 or more"):
        t5x.save(tmp_path, -1, nested(arrays()))
    with pytest.raises(ValueError, match="save to a disk"):
        t5x.save("gs://bucket/run", 1, nested(arrays()))
