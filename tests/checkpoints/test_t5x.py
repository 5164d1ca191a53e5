"""T5X's checkpoints are read in every layout that T5X has had, and written in one."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization
from flax.traverse_util import flatten_dict

from specjax.checkpoints import names_t5, t5x, t5x_scanned
from specjax.checkpoints.t5x import native as t5x_native
from specjax.models import t5
from tests.support import t5x_files as files
from tests.support.checkpoint_folders import open_arrays, reconfigure
from tests.support.t5x_files import CONFIG, LARGE, arrays, assert_same, native, orbax


@pytest.mark.parametrize("layout", files.LAYOUTS)
def test_every_layout(tmp_path, layout):
    dtype = "float32" if layout is native else "bfloat16"
    flat = arrays(dtype=dtype)
    path = layout(tmp_path / "checkpoint_7", flat)
    assert t5x.is_t5x(path)
    archive = t5x.open(path)
    assert_same(archive, flat)
    assert archive.where == str(path)
    assert names_t5.infer_sizes(archive.arrays, "float32", "here") == CONFIG
    part = slice(2, 5), slice(0, 3)
    assert (archive.read(LARGE, part) == flat[LARGE][part]).all()
    assert_same(t5x.open(f"file://{path}"), flat)


@pytest.mark.parametrize("layout", [native, orbax, files.one_file])
def test_a_run_in_a_bucket(tmp_path, layout):
    flat, url = arrays(), f"memory://{tmp_path.name}-{layout.__name__}/run"
    layout(tmp_path / "checkpoint_7", flat)
    files.copy_to_memory(tmp_path, url)
    run = [] if layout is files.one_file else [url, f"{url}/checkpoint_7/"]
    for path in [*run, f"{url}/checkpoint_7"]:
        assert_same(t5x.open(path), flat)


def test_a_bucket_gives_the_chunks_of_a_slice(tmp_path, monkeypatch):
    flat, folder = arrays(), f"checkpoint_7/target.{LARGE.replace('/', '.')}"
    native(tmp_path / "checkpoint_7", flat, chunks=(4, 4))
    with files.serve_as_bucket(tmp_path, monkeypatch) as asked:
        archive = t5x.open("gs://some-bucket/checkpoint_7")
        part = slice(8, 12), slice(0, 4)
        assert (archive.read(LARGE, part) == flat[LARGE][part]).all()
        told = {f"{folder}/.zarray", f"{folder}/2.0"}
        assert {x for x in asked if folder in x} == told
    with pytest.raises(ValueError, match="local path or a gs://"):
        t5x.open("nowhere://a/b")


def test_a_bucket_that_may_not_be_read_says_so(monkeypatch):
    """The error must not say that the bucket is empty, which is what a listing
    gives."""
    private = r"run cannot be read: PERMISSION_DENIED: no; .*CREDENTIALS"
    with files.serve_as_bucket(None, monkeypatch):
        with pytest.raises(ValueError, match=private):
            t5x.open("gs://some-bucket/run")


GCS = {"driver": "gcs", "bucket": "t5x-dummy-bucket"}


@pytest.mark.parametrize(
    ("kvstore", "path_at_top"), [({"driver": "gfile"}, False), (GCS, True)]
)
def test_specs_that_alone_describe_their_arrays(tmp_path, kvstore, path_at_top):
    kernel = np.arange(50, dtype=np.float64).reshape(10, 5)
    scale = np.arange(5, dtype=np.float32)
    target = {}
    for name, array in (("kernel", kernel), ("scale", scale)):
        spec = files.zarr(tmp_path, f"target.{name}", array, **kvstore)
        if path_at_top:
            spec["path"] = spec["kvstore"].pop("path")
        (tmp_path / f"target.{name}" / ".zarray").unlink()
        target[name] = spec
    files.write_tree(tmp_path / "checkpoint", target)
    assert_same(t5x.open(tmp_path), {"kernel": kernel, "scale": scale})


def test_a_slice_reads_its_chunks_alone(tmp_path):
    flat = arrays()
    native(tmp_path, flat, chunks=(4, 4))
    chunks = tmp_path / f"target.{LARGE.replace('/', '.')}"
    for damaged in ("1.0", "2.1"):
        (chunks / damaged).write_bytes(b"none")
    archive = t5x.open(tmp_path)
    for part in (slice(1, 3), slice(4, 6)), (slice(8, 99), slice(0, 4)):
        assert (archive.read(LARGE, part) == flat[LARGE][part]).all()
    for part in (slice(3, 5), slice(0, 4)), (slice(None), slice(None)):
        with pytest.raises(ValueError, match=f"{LARGE} is damaged or was cut short"):
            archive.read(LARGE, part)


SCALABLE = CONFIG._replace(decoder_layers=3, own_bias=True)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_layers_of_scalable_t5_are_seen_apart(tmp_path, axis):
    flat = arrays(SCALABLE)
    stored = files.scalable(flat, axis)
    archive = t5x.open(native(tmp_path / "checkpoint_7", stored))
    assert_same(archive, flat)
    assert names_t5.infer_sizes(archive.arrays, "float32", "here") == SCALABLE
    for name in ("self_attention/out/kernel", "self_attention/key/kernel", "mlp/wo"):
        name = next(n for n in flat if n.startswith(f"decoder/layers_2/{name}"))
        part = slice(1, 5), slice(2, 3)
        assert (archive.read(name, part) == flat[name][part]).all()


def test_heads_of_scalable_t5_are_read_alone():
    flat, reads = arrays(SCALABLE), []
    stored = files.scalable(flat)

    def read(name, index):
        reads.append(stored[name][index].size)
        return stored[name][index]

    archive = t5x_scanned.unstack_layers(open_arrays(stored, read))
    width = SCALABLE.head_width
    for name, part in (("query", np.s_[:, width : 2 * width]), ("out", np.s_[:width])):
        name = f"decoder/layers_1/self_attention/{name}/kernel"
        part = (part, slice(None)) if isinstance(part, slice) else part
        found = archive.read(name, part)
        np.testing.assert_array_equal(found, flat[name][part])
        assert reads.pop() == found.size


def test_stacks_of_two_depths_are_refused(tmp_path):
    stored = files.scalable(arrays(SCALABLE))
    stored["decoder/decoder/mlp/wo/kernel"] = np.zeros((10, 2, 6), np.float32)
    with pytest.raises(ValueError, match=r"\(10, 2, 6\) has not the 3 layers"):
        t5x.open(native(tmp_path / "checkpoint_7", stored))


def test_where_older_trees_have_their_parameters(tmp_path):
    flat = {"w": np.ones((2, 3), np.float32)}
    for target in flat, {"params": flat}:
        tree = {"target": target, "state": {"step": np.int32(1)}}
        (tmp_path / "model").write_bytes(serialization.msgpack_serialize(tree))
        assert t5x.is_t5x(tmp_path / "model")
        assert_same(t5x.open(tmp_path / "model"), flat)


@pytest.mark.parametrize("config", [files.V1_0, CONFIG._replace(vocab=32128)])
def test_sizes_are_inferred(config):
    flat = flatten_dict(t5.abstract_params(config), sep="/")
    pieces = 32100 if config.vocab == 32128 else None
    inferred = names_t5.infer_sizes(flat, "float32", "here")
    assert inferred == config._replace(pieces=pieces)


def test_what_is_saved_is_read_again(tmp_path):
    flat = arrays(dtype="bfloat16")
    path = t5x.save(tmp_path / "run", 12, files.nest(jax.tree.map(jnp.asarray, flat)))
    assert path == tmp_path / "run" / "checkpoint_12"
    assert_same(t5x.open(tmp_path / "run"), flat)
    tree = serialization.msgpack_restore((path / "checkpoint").read_bytes())
    assert tree["version"] == 3 and tree["optimizer"]["state"]["step"] == 12
    by_hand = native(tmp_path / "by_hand", flat) / "checkpoint"
    like = serialization.msgpack_restore(by_hand.read_bytes())
    assert tree["optimizer"]["target"] == like["optimizer"]["target"]


def test_large_arrays_are_saved_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(t5x_native, "WHOLE", 100)  # of 288
    monkeypatch.setattr(t5x_native, "PARTS", 2)
    path = t5x.save(tmp_path, 0, files.nest(arrays()))
    folder = path / f"target.{LARGE.replace('/', '.')}"
    assert {f.name for f in folder.iterdir()} == {".zarray", "0.0", "0.1", "1.0", "1.1"}
    assert_same(t5x.open(path), arrays())


def test_a_save_that_fails_leaves_nothing(tmp_path):
    params = files.nest(arrays() | {"zz": np.array(["text"])})
    with pytest.raises(Exception, match="str"):
        t5x.save(tmp_path, 1, params)
    assert not list(tmp_path.iterdir())
    t5x.save(tmp_path, 1, files.nest(arrays()))
    with pytest.raises(ValueError, match="there already"):
        t5x.save(tmp_path, 1, files.nest(arrays(files.V1_0)))
    assert_same(t5x.open(tmp_path), arrays())
    for path, step, told in (
        (tmp_path, -1, "0 or more"),
        ("gs://bucket/run", 1, "save to a disk"),
    ):
        with pytest.raises(ValueError, match=told):
            t5x.save(path, step, files.nest(arrays()))


# Which step of a run, and what is none.


def write_unfinished(path):
    """Writes what is left of a save that stopped before its last file."""
    for file in path.rglob("commit_success.txt"):
        file.unlink()
    reconfigure(path, "_CHECKPOINT_METADATA", commit_timestamp_nsecs=None)


def test_a_step_that_was_never_finished(tmp_path):
    orbax(tmp_path / "checkpoint_3", arrays(files.V1_0))
    last = orbax(tmp_path / "checkpoint_20", arrays())
    assert_same(t5x.open(tmp_path), arrays())
    write_unfinished(last)
    assert_same(t5x.open(tmp_path), arrays(files.V1_0))
    shutil.rmtree(tmp_path / "checkpoint_3")
    for path in (last, tmp_path):
        assert t5x.is_t5x(path)
        with pytest.raises(ValueError, match="was never finished, it has no commit_su"):
            t5x.open(path)


def test_only_a_disk_renames_what_is_finished(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays())
    for file in path.rglob("commit_success.txt"):
        file.unlink()
    assert_same(t5x.open(path), arrays())
    url = files.copy_to_memory(path, f"memory://{tmp_path.name}/checkpoint_7")
    with pytest.raises(ValueError, match="never finished"):
        t5x.open(url)


def test_the_last_complete_step_of_a_run(tmp_path):
    native(tmp_path / "checkpoint_3", arrays(files.V1_0))
    native(tmp_path / "checkpoint_20", arrays())
    for name in ("checkpoint_30.tmp-1700000000", "checkpoint_40", "model_50"):
        native(tmp_path / name, arrays(files.V1_0))
    (tmp_path / "checkpoint_40" / "checkpoint").unlink()
    assert_same(t5x.open(tmp_path), arrays())
    assert_same(t5x.open(tmp_path / "checkpoint_3"), arrays(files.V1_0))
    native(tmp_path / "checkpoint_100", arrays(files.V1_0))
    assert_same(t5x.open(f"{tmp_path}/"), arrays(files.V1_0))


def test_what_is_no_t5x_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tensorflow").mkdir()
    lines = 'model_checkpoint_path: "model.ckpt-0"\n'
    (tmp_path / "tensorflow" / "checkpoint").write_text(lines)
    orbax(tmp_path / "other" / "checkpoint_7", arrays(), root="weights")
    paths = (tmp_path, tmp_path / "nothing", tmp_path / "config.json")
    for path in (*paths, tmp_path / "config.json" / "inside"):
        assert not t5x.is_t5x(path)
        with pytest.raises(ValueError, match=str(tmp_path)):
            t5x.open(path)
    for name, message in ("tensorflow", "not a whole"), ("other", "under target"):
        with pytest.raises(ValueError, match=message):
            t5x.open(tmp_path / name)
