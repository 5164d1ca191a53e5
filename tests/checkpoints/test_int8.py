"""Weights in eight bits: what is read back is the model, by either form of them."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from specjax import checkpoints, zoo
from specjax.checkpoints import archive
from specjax.models import gpt, t5
from specjax.zoo import int8
from tests.support import tiny, tiny_t5

GPT = gpt.Config(128, 32, 128, 1, 2)
T5 = t5.Config(128, 32, 128, 1, 1, 2, 16)
SIZES = {"gpt": (GPT, tiny.weights), "t5": (T5, tiny_t5.weights)}


@pytest.fixture(params=SIZES)
def saved(request, tmp_path):
    """A file and what was saved in it, by name."""
    config, weights = SIZES[request.param]
    path, params = tmp_path / "mine.safetensors", weights(config, 0)
    zoo.save(path, config, params, bits=8)
    return path, flatten_dict(params, sep="/")


def test_every_output_keeps_seven_bits_of_its_largest(saved):
    path, before = saved
    after = flatten_dict(checkpoints.load(path).params, sep="/")
    stored = load_file(path)
    assert any(stored[name].dtype == np.int8 for name in before)
    for name, leaf in before.items():
        if stored[name].dtype != np.int8:
            np.testing.assert_array_equal(after[name], leaf)
            continue
        # An embedding is read by rows, a matrix that multiplies has columns.
        inputs = 1 if name.endswith("embedding") else 0
        step = np.abs(leaf).max(inputs, keepdims=True) / 127
        assert np.all(np.abs(after[name] - leaf) <= step * 0.501)
        largest = np.abs(after[name]).max(inputs)
        np.testing.assert_allclose(largest, np.abs(leaf).max(inputs), rtol=1e-6)


def test_whole_numbers_multiply_to_what_the_weights_do(saved):
    path, _ = saved
    stored, params = load_file(path), flatten_dict(checkpoints.load(path).params)
    kernels = {"/".join(at): leaf for at, leaf in params.items()}
    rng = np.random.default_rng(0)
    for name, leaf in kernels.items():
        if stored[name].dtype != np.int8 or name.endswith("embedding"):
            continue
        x = rng.normal(size=(3, leaf.shape[0])).astype(np.float32)
        scaled = x @ stored[name].astype(np.float32) * stored[name + int8.SCALE]
        np.testing.assert_allclose(x @ np.asarray(leaf), scaled, rtol=1e-4, atol=1e-4)


def test_a_shard_reads_its_own_part_of_the_scales(saved):
    path, _ = saved
    whole = archive.scaled(archive.of_safetensors([path], "file"))
    scaled = [n for n, of in whole.arrays.items() if len(of.shape) == 2]
    for name in scaled:
        everything = whole.read(name, (slice(0, None), slice(0, None)))
        part = slice(1, 2), slice(2, 5)
        np.testing.assert_array_equal(whole.read(name, part), everything[part])


def test_zeros_stay_zeros(tmp_path):
    params = jax.tree.map(np.zeros_like, tiny.weights(GPT, 0))
    zoo.save(tmp_path / "mine.safetensors", GPT, params, bits=8)
    params = checkpoints.load(tmp_path).params
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(params))


def test_a_scale_of_another_shape_is_told(saved, tmp_path):
    path, _ = saved
    stored, about = load_file(path), archive.metadata(path)
    name = next(name for name in stored if name.endswith(int8.SCALE))
    stored[name] = stored[name][..., :1][:1].repeat(5, 0)
    save_file(stored, tmp_path / "bad.safetensors", about)
    with pytest.raises(ValueError, match=r"its scale \(5, 1\)"):
        checkpoints.load(tmp_path / "bad.safetensors")


def test_what_diverged_is_not_stored(tmp_path):
    params = tiny.weights(GPT, 0)
    params["embedding"] = params["embedding"].at[0, 0].set(np.nan)
    with pytest.raises(ValueError, match="embedding is not finite"):
        zoo.save(tmp_path / "mine.safetensors", GPT, params, bits=8)
    with pytest.raises(ValueError, match="8 or 16 bits, not in 4"):
        zoo.save(tmp_path / "mine.safetensors", GPT, params, bits=4)
