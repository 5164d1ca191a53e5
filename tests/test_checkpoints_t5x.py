"""T5X's checkpoints: every layout that it has had, each cut short in every way.

Native ones are written by flax and tensorstore, as T5X does, Orbax's by Orbax.
"""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from flax import serialization
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.checkpoints import t5x, t5x_native, t5x_store
from specjax.checkpoints.archive import Archive
from specjax.models import t5

CONFIG = t5.Config(12, 6, 10, 1, 2, num_heads=2, head_width=4)
UNSYNCED = ts.Context({"file_io_sync": False})
V1_0 = CONFIG._replace(gated=False, tied=True)
LARGE = "token_embedder/embedding"  # [12, 6]


def arrays(config=CONFIG, dtype="float32"):
    """Parameters by name, no two of them alike."""
    flat = flatten_dict(t5.abstract_params(config), sep="/")
    rng = np.random.default_rng(0)
    return {
        n: rng.normal(size=s.shape).astype(jnp.dtype(dtype)) for n, s in flat.items()
    }


def nested(flat):
    return unflatten_dict(flat, sep="/")


def zarr(folder, name, array, chunks=None, **kvstore):
    """Writes one array as T5X does and returns what T5X leaves in its tree."""
    metadata = {
        "chunks": list(chunks or array.shape),
        "compressor": {"id": "gzip", "level": 1},
        "shape": list(array.shape),
    }
    spec = {"driver": "zarr", "dtype": array.dtype.name, "metadata": metadata}
    place = {"driver": "file", "path": f"{folder}/{name}/"}
    options = dict(create=True, context=UNSYNCED)
    ts.open(spec | {"kvstore": place}, **options).result().write(array).result()
    return spec | {"kvstore": {"driver": "file", "path": f"{name}/"} | kvstore}


def write_tree(file, target):
    state = {"step": np.int32(7), "param_states": {"v": np.ones(3, np.float32)}}
    tree = {"version": 3, "optimizer": {"state": state, "target": target}}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(serialization.msgpack_serialize(tree))


def native(folder, flat, chunks=None):
    target = {
        n: zarr(
            folder, f"target.{n.replace('/', '.')}", a, chunks if n == LARGE else None
        )
        for n, a in flat.items()
    }
    write_tree(folder / "checkpoint", nested(target))
    return folder


def one_file(folder, flat):
    write_tree(folder, nested(flat))
    return folder


def inline(folder, flat):
    write_tree(folder / "checkpoint", nested(flat))
    return folder


def orbax(folder, flat, ocdbt=True, root="target"):
    """A step of a CheckpointManager with T5X's options."""
    options = ocp.CheckpointManagerOptions(
        step_prefix="checkpoint", enable_async_checkpointing=False
    )
    handlers = {"state": ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)}
    tree = nested(
        jax.tree.map(jnp.asarray, {f"{root}/{n}": a for n, a in flat.items()})
    )
    tree["state"] = {"step": jnp.int32(7)}
    step = int(folder.name.split("_")[1])
    with ocp.CheckpointManager(
        folder.parent, options=options, item_handlers=handlers
    ) as manager:
        manager.save(step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(tree)))
    return folder


def orbax_folders(folder, flat):
    return orbax(folder, flat, ocdbt=False)


def early_orbax(folder, flat):
    """As Orbax wrote it before it had `_METADATA`."""
    orbax(folder, flat, ocdbt=False, root="_optimizer/target")
    state = folder / "state"
    for file in (state / "_METADATA", folder / "_CHECKPOINT_METADATA"):
        file.unlink()
    for file in folder.rglob("commit_success.txt"):
        file.unlink()
    names = {f"_optimizer/target/{name}" for name in flat} | {"_optimizer/state/step"}
    marks = {n: f"PLACEHOLDER://{n.replace('/', '.')}" for n in names}
    tree = nested(marks) | {"flax_mutables": None, "params_axes": None}
    (state / "checkpoint").write_bytes(serialization.msgpack_serialize(tree))
    return folder


LAYOUTS = (native, one_file, inline, orbax, orbax_folders, early_orbax)


def whole(archive, name):
    return archive.read(name, (slice(None),) * len(archive.arrays[name].shape))


def assert_same(archive, flat):
    assert archive.arrays.keys() == flat.keys()
    for name, array in flat.items():
        found = whole(archive, name)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert (found == array).all()
        stored = archive.arrays[name]
        assert (stored.dtype, stored.shape) == (array.dtype, array.shape)


def in_memory(folder, url):
    """Copies a folder to a memory:// URL."""
    store = t5x_store.folder(url)
    for file in folder.rglob("*"):
        if file.is_file():
            store.write(str(file.relative_to(folder)), file.read_bytes()).result()
    return url


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


@pytest.mark.parametrize("layout", [native, orbax_folders, early_orbax])
def test_a_chunk_that_is_missing(tmp_path, layout):
    path = layout(tmp_path / "checkpoint_7", arrays())
    (folder,) = path.rglob(f"*{LARGE.replace('/', '.')}")
    (folder / "0.0").unlink()
    with pytest.raises(ValueError, match=f"lacks chunk files of {LARGE}: it was cut"):
        t5x.open(path)
    # Left to itself the format reads zeros, or what was in memory.
    place = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    found = ts.open(place).result().read().result()
    assert (found != arrays()[LARGE]).any()


@pytest.mark.parametrize("layout", [orbax_folders, early_orbax])
def test_an_array_that_nothing_describes(tmp_path, layout):
    path = layout(tmp_path / "checkpoint_7", arrays())
    (folder,) = path.rglob(f"*{LARGE.replace('/', '.')}")
    shutil.copytree(folder, tmp_path / "kept")
    (folder / ".zarray").unlink()
    with pytest.raises(ValueError, match=rf"no description \(.zarray\) of {LARGE}"):
        t5x.open(path)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=rf"no description \(.zarray\) of {LARGE}"):
        t5x.open(path)
    shutil.copytree(tmp_path / "kept", folder)
    assert_same(t5x.open(path), arrays())


def test_a_folder_of_native_arrays_that_is_missing(tmp_path):
    shutil.rmtree(native(tmp_path, arrays()) / f"target.{LARGE.replace('/', '.')}")
    with pytest.raises(ValueError, match=f"lacks chunk files of {LARGE}"):
        t5x.open(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
@pytest.mark.parametrize("layout", [native, inline])
def test_a_tree_that_is_cut_short(tmp_path, layout, kept):
    file = layout(tmp_path, arrays()) / "checkpoint"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match="is not a whole checkpoint file, copy it"):
        t5x.open(tmp_path)


def test_orbax_files_that_are_cut_short(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays())
    state = path / "state"
    for name in ("_METADATA", "manifest.ocdbt"):
        data = (state / name).read_bytes()
        (state / name).write_bytes(data[:50])
        with pytest.raises(ValueError, match="copy it again"):
            t5x.open(path)
        (state / name).write_bytes(data)
    (state / "manifest.ocdbt").unlink()
    with pytest.raises(ValueError, match="no description"):
        t5x.open(path)


def test_an_orbax_database_without_its_data(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays(CONFIG._replace(vocab=500)))
    for folder in path.rglob("ocdbt.process_0/d"):
        shutil.rmtree(folder)
    with pytest.raises(ValueError, match="damaged or was cut short"):
        whole(t5x.open(path), LARGE)


def test_orbax_arrays_of_another_format(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays())
    file = path / "state" / "_METADATA"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"use_zarr3": True}))
    with pytest.raises(ValueError, match="zarr 3"):
        t5x.open(path)


def unfinished(path):
    """What a save leaves that ended before the last file."""
    for file in path.rglob("commit_success.txt"):
        file.unlink()
    started = path / "_CHECKPOINT_METADATA"
    fields = json.loads(started.read_text()) | {"commit_timestamp_nsecs": None}
    started.write_text(json.dumps(fields))


def test_a_step_that_was_never_finished(tmp_path):
    orbax(tmp_path / "checkpoint_3", arrays(V1_0))
    last = orbax(tmp_path / "checkpoint_20", arrays())
    assert_same(t5x.open(tmp_path), arrays())
    unfinished(last)
    assert_same(t5x.open(tmp_path), arrays(V1_0))
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
    url = in_memory(path, f"memory://{tmp_path.name}/checkpoint_7")
    with pytest.raises(ValueError, match="never finished"):
        t5x.open(url)


def test_the_last_complete_step_of_a_run(tmp_path):
    native(tmp_path / "checkpoint_3", arrays(V1_0))
    native(tmp_path / "checkpoint_20", arrays())
    for name in ("checkpoint_30.tmp-1700000000", "checkpoint_40", "model_50"):
        native(tmp_path / name, arrays(V1_0))
    (tmp_path / "checkpoint_40" / "checkpoint").unlink()
    assert_same(t5x.open(tmp_path), arrays())
    assert_same(t5x.open(tmp_path / "checkpoint_3"), arrays(V1_0))
    native(tmp_path / "checkpoint_100", arrays(V1_0))
    assert_same(t5x.open(f"{tmp_path}/"), arrays(V1_0))


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
        assert not t5x.is_t5x(tmp_path / name)
        with pytest.raises(ValueError, match=message):
            t5x.open(tmp_path / name)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({}, "no parameters under target: found optimizer/state"),
        ({"decoder": {"decoder": {"w": np.ones((2, 3))}}}, "all layers in one array"),
        ({"w": np.ones(3, np.uint16)}, "w is bfloat16 written as uint16"),
        ({"w": "elsewhere"}, "w is str, not an array"),
        ({"w": {"driver": "n5", "kvstore": {}, "metadata": {}}}, "no zarr array"),
    ],
)
def test_trees_that_cannot_be_read(tmp_path, target, message):
    write_tree(tmp_path / "checkpoint", target)
    with pytest.raises(ValueError, match=message):
        t5x.open(tmp_path)


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
