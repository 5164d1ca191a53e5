"""A checkpoint is read no further than needed and straight to the devices of a mesh,
under every kind of name: bundled models, files, runs of T5X, and the hub's."""

import functools
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
from specjax.checkpoints.archive import Part, Source
from specjax.models import gpt
from tests.support import devices, shards, tiny_llama
from tests.support.checkpoint_folders import (
    T5,
    WHISPER,
    assert_same,
    open_arrays,
    random_params,
    write_folder,
)

# Reading.


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
        kind = dict(shape=shape, dtype=np.dtype("float32"))
        read = archive.reader(open_arrays({"a": stored}), source, **kind)
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
        flat = flatten_dict(random_params(T5), sep="/")
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
    shapes = open_arrays(arrays).arrays
    sources = {name: Source(name) for name in arrays}
    archive.fill(open_arrays(arrays, read), sources, shapes, dtype="bfloat16")
    assert most == [0] * 6 and not alive


# In a process that has eight devices, see `tests.support.shards`.
run_shards = functools.partial(devices.run_module, "tests.support.shards")


def test_every_format_is_read_straight_to_its_shards(tmp_path):
    """The shards equal those that would be placed afterwards, and each number is read
    once."""
    found = run_shards("loaded", str(tmp_path))
    assert found.keys() == {"huggingface", "fused", "zoo", "t5x", "scanned", "orbax"}
    assert len([*(tmp_path / "huggingface").glob("model-*")]) > 1
    for name, each in found.items():
        assert each == {"same": True, "read": 1.0}, name


@pytest.mark.slow
def test_a_training_state_goes_on_under_another_mesh(tmp_path):
    """A state saved on four devices continues on others and on one, and one saved on
    one device continues on four; when the disk is full, the earlier state is kept."""
    found = run_shards("kept", str(tmp_path))
    pairs = [(shards.KEPT, other) for other in shards.OTHERS] + [("", shards.KEPT)]
    assert found["same"] == {f"{at} to {other}": True for at, other in pairs}
    assert found["full"].keys() == {shards.KEPT, ""}
    for line, steps in found["full"].values():
        assert "cannot be written (File too large): free some space" in line
        assert "\n" not in line and steps == [3, 7]


# Names of other kinds.


def test_bundled_models_and_files_of_the_zoo(tmp_path):
    checkpoint = checkpoints.load("code_small")
    assert (checkpoint.name, checkpoint.family) == ("code_small", "gpt")
    assert (checkpoint.start, checkpoint.ends) == (zoo.START, (zoo.END,))
    gpt_like = gpt.Config(13, 8, 16, 1, 2)
    for number, config in enumerate((T5, gpt_like, tiny_llama.GEMMA3, WHISPER)):
        file = tmp_path / str(number) / "mine.safetensors"
        file.parent.mkdir()
        zoo.save(file, config, random_params(config))
        half = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), random_params(config))
        for path in (str(file), file.parent):
            checkpoint = checkpoints.load(path)
            assert checkpoint.config == config and checkpoint.files == (file,)
            assert_same(checkpoint.params, half)


def test_checkpoints_of_t5x(tmp_path):
    """The path is a step's folder, or that of a run, whose last step is then read;
    sizes come from the arrays."""
    params, run = random_params(T5), tmp_path / "a.run"
    checkpoints.t5x.save(run, 1, jax.tree.map(jnp.zeros_like, params))
    for path in checkpoints.t5x.save(run, 20, params), str(run):
        checkpoint = checkpoints.load(path)
        told = checkpoint.family, checkpoint.start, checkpoint.ends, checkpoint.config
        assert told == ("t5", 0, (1,), T5)
        assert checkpoint.name == Path(path).name and checkpoint.files == (Path(path),)
        assert_same(checkpoint.params, params)
    checkpoint = checkpoints.load(run, "bfloat16", pieces=30)
    assert checkpoint.config == T5._replace(pieces=30, dtype="bfloat16")
    checkpoints.save(tmp_path / "other", checkpoint)
    assert_same(
        checkpoints.load(tmp_path / "other", "bfloat16").params, checkpoint.params
    )


FETCHED = {"json", "safetensors", "model", "txt", "jinja", "tiktoken"}


def test_a_hubs_name_fetches_weights_and_no_pickle(tmp_path, monkeypatch):
    folder, asked = write_folder(tmp_path), {}

    def snapshot_download(name, allow_patterns):
        asked.update(name=name, patterns=allow_patterns)
        return str(folder)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    checkpoint = checkpoints.load("org/some-model.v1")
    assert checkpoint.name == asked["name"] == "org/some-model.v1"
    assert_same(checkpoint.params, random_params(T5))
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
    """The cache has the layout of huggingface_hub."""
    pytest.importorskip("huggingface_hub")
    commit, model = "0" * 40, tmp_path / "hub" / "models--org--name"
    write_folder(model / "snapshots")
    (model / "snapshots" / "v1_1").rename(model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    where = dict(HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    printed = devices.run_python("-c", CACHED, **where)
    assert printed.startswith("org/other is not a path, is not in the cache")
