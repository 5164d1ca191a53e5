"""Weights in eight bits give the same model in either of their two file formats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from specjax import checkpoints, pretrained, zoo
from specjax.checkpoints import archive, int8_weights
from specjax.checkpoints.archive import Source
from specjax.models import gpt, llama, t5
from specjax.quantized import Dynamic, Int8, rounding
from tests.support.checkpoint_folders import open_arrays
from tests.support.model_cases import weights
from tests.support.tiny import quantize_params

GPT = gpt.Config(128, 32, 128, 1, 2)
T5 = t5.Config(128, 32, 128, 1, 1, 2, 16)


@pytest.fixture(params=[GPT, T5], ids=["gpt", "t5"])
def saved(request, tmp_path):
    """A file and what was saved in it, by name."""
    path, params = tmp_path / "mine.safetensors", weights(request.param, 0)
    zoo.save(path, request.param, params, bits=8)
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


def test_a_shard_reads_its_own_part_of_the_scales(saved):
    whole = archive.multiply_scales(archive.open_safetensors([saved[0]], "file"))
    for name in (n for n, of in whole.arrays.items() if len(of.shape) == 2):
        everything = whole.read(name, (slice(0, None), slice(0, None)))
        part = slice(1, 2), slice(2, 5)
        np.testing.assert_array_equal(whole.read(name, part), everything[part])


def test_zeros_stay_zeros_and_what_diverged_is_not_stored(tmp_path):
    params = weights(GPT, 0)
    zeros = jax.tree.map(np.zeros_like, params)
    zoo.save(tmp_path / "mine.safetensors", GPT, zeros, bits=8)
    read = checkpoints.load(tmp_path).params
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(read))
    params["embedding"] = params["embedding"].at[0, 0].set(np.nan)
    with pytest.raises(ValueError, match="embedding is not finite"):
        zoo.save(tmp_path / "mine.safetensors", GPT, params, bits=8)
    with pytest.raises(ValueError, match="8 or 16 bits, not in 4"):
        zoo.save(tmp_path / "mine.safetensors", GPT, params, bits=4)


def test_what_is_stored_in_eight_bits_is_loaded_as_it_is(saved):
    path, before = saved
    model, stored = pretrained.load(str(path), "int8"), load_file(path)
    assert model.dtype == "int8" and model.files == (path,)
    params = flatten_dict(model.params, sep="/")
    matrices = {name for name, leaf in params.items() if isinstance(leaf, Int8)}
    assert params.keys() == before.keys()
    assert matrices == {n for n in before if n + rounding.SCALE in stored} != set()
    for name, leaf in params.items():
        if name in matrices:
            np.testing.assert_array_equal(leaf.values, stored[name])
            np.testing.assert_array_equal(leaf.scale, stored[name + rounding.SCALE])
        else:
            np.testing.assert_array_equal(leaf, before[name])
            assert leaf.dtype == jnp.float32


GPT2 = GPT._replace(positions=130, learned=True, tied=True)
LLAMA = llama.Config(128, 32, 128, 1, 4, 2, 32)


@pytest.mark.parametrize("config", [GPT2, T5, LLAMA], ids=["gpt2", "t5", "llama"])
def test_floats_are_rounded_as_they_would_be_stored(config, tmp_path):
    """This is tested for files that transpose and fuse matrices."""
    params = weights(config, 0)
    checkpoints.save(tmp_path / "floats", (config, params))
    read = checkpoints.load(tmp_path / "floats", "int8").params
    assert jax.tree.structure(read) == jax.tree.structure(quantize_params(params))
    jax.tree.map(np.testing.assert_array_equal, read, quantize_params(params))
    again = checkpoints.load(tmp_path / "floats", "int8_dynamic").params
    turned = flatten_dict(quantize_params(params), sep="/")
    for name, leaf in flatten_dict(again, sep="/").items():
        wanted = turned[name]
        if isinstance(wanted, Int8):
            assert isinstance(leaf, Dynamic)
            wanted = Dynamic.from_int8(wanted)
        jax.tree.map(np.testing.assert_array_equal, leaf, wanted)


def test_only_numbers_that_are_stored_so_are_taken_as_they_are():
    for values, scale, transpose, there in (
        ("int8", (1, 7), False, True),
        ("int8", (5, 1), False, False),  # of inputs
        ("int8", (5, 7), False, False),  # of every number
        ("int16", (1, 7), False, False),
        ("int8", (1, 7), True, False),
    ):
        arrays = {"w": np.ones((5, 7), values)}
        arrays["w" + rounding.SCALE] = np.ones(scale, np.float32)
        raw, source = open_arrays(arrays), Source("w", transpose=transpose)
        whole = archive.multiply_scales(raw)
        assert (int8_weights.stored_parts(whole, source, 0) is not None) == there
        assert int8_weights.stored_parts(raw, source, 0) is None  # nothing scales it


def test_parameters_in_eight_bits_are_written_as_others(saved, tmp_path):
    path, _ = saved
    loaded, floats = checkpoints.load(path, "int8"), checkpoints.load(path)
    for bits in 8, 16:
        again = [tmp_path / f"{bits}_{number}.safetensors" for number in range(2)]
        for file, checkpoint in zip(again, (loaded, floats), strict=True):
            zoo.save(file, checkpoint.config, checkpoint.params, bits=bits)
        first, second = map(load_file, again)
        jax.tree.map(np.testing.assert_array_equal, first, second)


def test_what_cannot_be_in_eight_bits_is_told(saved, tmp_path):
    path, _ = saved
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(ValueError, match="one device: name a float dtype"):
        checkpoints.load(path, "int8", device)
    stored, about = load_file(path), archive.metadata(path)
    name = next(name for name in stored if name.endswith(rounding.SCALE))
    for scale, told in (
        (np.full_like(stored[name], np.nan), "not finite: it was damaged"),
        (np.ones((5, 1), np.float32), r"its scale \(5, 1\)"),
    ):
        save_file(stored | {name: scale}, tmp_path / "bad.safetensors", about)
        with pytest.raises(ValueError, match=told):
            checkpoints.load(tmp_path / "bad.safetensors", "int8")
