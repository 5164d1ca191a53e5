"""No more is read of a checkpoint than must be, and by every kind of name.

Names here are those of bundled models, of files, of T5X's runs and of the hub.
"""

import os
import subprocess
import sys
import types
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax import checkpoints, zoo
from specjax.checkpoints import archive
from specjax.checkpoints.archive import Archive, Part, Source
from specjax.models import gpt
from tests.support import tiny_llama
from tests.support.checkpoint_folders import T5, WHISPER, params_of, same, written

# Reading.


def held(arrays: dict[str, np.ndarray], read=None) -> Archive:
    shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
    return Archive(shapes, read or (lambda name, index: arrays[name][index]), "here")


def test_any_part_of_a_parameter_is_that_part_of_the_whole():
    stored = np.arange(7 * 12, dtype=np.float32).reshape(7, 12)
    middle, part = stored[:, 4:8], Part(1, 1, 3)
    for source, whole in (
        (Source("a", transpose=True), stored.T),
        (Source("a", part=part), middle),
        (Source("a", True, part), middle.T),
    ):
        shape = whole.shape
        assert archive.stored_shape(source, shape) == (7, 12)
        read = archive.reader(held({"a": stored}), source, shape, np.dtype("float32"))
        for index in np.s_[:, :], np.s_[1:3, :2], np.s_[2:, 0:4]:
            np.testing.assert_array_equal(read(index), whole[index])


def test_a_weight_that_is_not_finite_is_refused_by_its_name(tmp_path):
    name = "decoder/layers_2/self_attention/out/kernel"
    for step, (number, dtype, says) in enumerate(
        (
            (-np.inf, "bfloat16", "it was damaged"),
            (1e38, "float16", "float16 cannot hold them, name a"),
        )
    ):
        flat = flatten_dict(params_of(T5), sep="/")
        flat[name] = flat[name].at[-1, -1].set(number)
        path = checkpoints.t5x.save(tmp_path, step, unflatten_dict(flat, sep="/"))
        told = f"{path}: decoder/layers_2/self.*/out.* not finite: {says}"
        with pytest.raises(ValueError, match=told):
            checkpoints.load(path, dtype)


def test_one_array_is_in_memory_at_a_time():
    alive, most = set(), []

    def read(name, index):
        most.append(len(alive))
        alive.add(name)
        array = np.ones((50, 50), np.float32)
        weakref.finalize(array, alive.remove, name)
        return array

    arrays = {f"p{i}": np.ones((50, 50), np.float32) for i in range(6)}
    shapes = held(arrays).arrays
    sources = {name: Source(name) for name in arrays}
    archive.fill(held(arrays, read), sources, shapes, "bfloat16")
    assert most == [0] * 6 and not alive


SHARDED = """
import sys, jax, numpy as np
from pathlib import Path
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from specjax import checkpoints
from specjax.checkpoints import archive
from tests.support import checkpoint_folders as the

reads, fill = [], archive.of_safetensors
def noted(files, where):
    found = fill(files, where)
    def read(name, index):
        reads.append((name, found.read(name, index).size))
        return found.read(name, index)
    return found._replace(read=read)
archive.of_safetensors = noted

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
config = the.CONFIGS["gpt2"]
def place(leaf):
    sharded = leaf.ndim == 2 and leaf.shape[1] == 12
    return NamedSharding(mesh, P(None, "model") if sharded else P())
params = the.params_of(config)
shardings = jax.tree.map(place, params)
found = checkpoints.load(sys.argv[1], sharding=shardings)
the.same(found.params, params)
query = found.params["layers_0"]["attention"]["query"]["kernel"]
assert query.addressable_shards[0].data.shape == (12, 6), query.sharding
sizes = [size for name, size in reads if name.endswith("h.0.attn.c_attn.weight")]
assert sizes == [72] * 6, sizes  # three parts, two halves of each, each read once
everywhere = NamedSharding(mesh, P())
whole = checkpoints.load(sys.argv[1], sharding=everywhere)
the.same(whole.params, params)
assert whole.params["embedding"].sharding == everywhere
print("same")
"""


def run(code: str, *arguments, **environment) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_devices_read_their_own_shards_once(tmp_path):
    folder = written(tmp_path, "gpt2")
    flags = "--xla_force_host_platform_device_count=4"
    assert run(SHARDED, folder, XLA_FLAGS=flags) == "same\n"


# Names of other kinds.


def test_bundled_models_and_files_of_the_zoo(tmp_path):
    checkpoint = checkpoints.load("code_small")
    assert (checkpoint.name, checkpoint.family) == ("code_small", "gpt")
    assert (checkpoint.start, checkpoint.ends) == (zoo.START, (zoo.END,))
    gpt_like = gpt.Config(13, 8, 16, 1, 2)
    for number, config in enumerate((T5, gpt_like, tiny_llama.GEMMA3, WHISPER)):
        file = tmp_path / str(number) / "mine.safetensors"
        file.parent.mkdir()
        zoo.save(file, config, params_of(config))
        half = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), params_of(config))
        for path in (str(file), file.parent):
            checkpoint = checkpoints.load(path)
            assert checkpoint.config == config and checkpoint.files == (file,)
            same(checkpoint.params, half)


def test_checkpoints_of_t5x(tmp_path):
    """A step's folder, or the last of a run; sizes come from the arrays."""
    params, run = params_of(T5), tmp_path / "a.run"
    checkpoints.t5x.save(run, 1, jax.tree.map(jnp.zeros_like, params))
    for path in checkpoints.t5x.save(run, 20, params), str(run):
        checkpoint = checkpoints.load(path)
        told = checkpoint.family, checkpoint.start, checkpoint.ends, checkpoint.config
        assert told == ("t5", 0, (1,), T5)
        assert checkpoint.name == Path(path).name and checkpoint.files == (Path(path),)
        same(checkpoint.params, params)
    checkpoint = checkpoints.load(run, "bfloat16", pieces=30)
    assert checkpoint.config == T5._replace(pieces=30, dtype="bfloat16")
    checkpoints.save(tmp_path / "other", checkpoint)
    same(checkpoints.load(tmp_path / "other", "bfloat16").params, checkpoint.params)


FETCHED = {"json", "safetensors", "model", "txt", "jinja"}


def test_a_hubs_name_fetches_weights_and_no_pickle(tmp_path, monkeypatch):
    folder, asked = written(tmp_path), {}

    def snapshot_download(name, allow_patterns):
        asked.update(name=name, patterns=allow_patterns)
        return str(folder)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    checkpoint = checkpoints.load("org/some-model.v1")
    assert checkpoint.name == asked["name"] == "org/some-model.v1"
    same(checkpoint.params, params_of(T5))
    assert {x.rsplit(".", 1)[1] for x in asked["patterns"]} == FETCHED


CACHED = """
from specjax import checkpoints
assert checkpoints.load("org/name").config.vocab == 37
try:
    checkpoints.load("org/other")
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_a_network_the_cache_is_used(tmp_path):
    """Laid out as huggingface_hub lays it out."""
    pytest.importorskip("huggingface_hub")
    commit, model = "0" * 40, tmp_path / "hub" / "models--org--name"
    written(model / "snapshots")
    (model / "snapshots" / "v1_1").rename(model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    printed = run(CACHED, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert printed.startswith("org/other is no path, is not in the cache")
