"""Caches of eight bits round each slot once, whatever the calls were."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import chunks, generate, inputs, pretrained
from specjax.checkpoints import Pretrained
from specjax.models import int8_cache, llama
from specjax.models.cache import KeyValues
from specjax.step import Decoder
from specjax.verifiers import gumbel
from tests.support import tiny_llama
from tests.support.drafter_cases import BY_NAME
from tests.support.model_cases import (
    GEMMA2,
    GPT,
    LLAMA,
    SLOTS,
    TOKENS,
    ZERO,
    assert_close,
    compile_call,
    whole_text_logits,
)
from tests.support.tiny_llama import WINDOW

each_case = pytest.mark.parametrize(
    "case", [GPT, LLAMA, GEMMA2], ids=lambda case: case.name
)


@functools.cache
def build_model(case):
    return case.build(case.config._replace(cache="int8"))


def initial_cache(case):
    return build_model(case).init(None, case.prompt(), SLOTS)


def test_the_largest_of_a_slot_is_127_and_no_number_is_half_a_unit_off():
    rng = np.random.default_rng(0)
    slots = np.exp(3 * rng.normal(size=(2, 3, 1, 7)))
    keys = np.float32(rng.normal(size=(2, 3, 4, 7)) * slots)
    keys[0, 0, :, 0] = 0
    new = KeyValues(jnp.asarray(keys), jnp.asarray(keys.swapaxes(2, 3)))
    layer = int8_cache.quantize(new)
    largest = np.abs(layer.whole.keys.astype(int)).max(2)
    np.testing.assert_array_equal(largest == 127, np.abs(keys).max(2) > 0)
    again = int8_cache.dequantize(layer, jnp.float32)
    assert (np.abs(again.keys - keys) <= 0.5001 * layer.scale.keys).all()
    np.testing.assert_array_equal(again.keys, again.values.swapaxes(2, 3))


@each_case
def test_a_slot_is_rounded_alike_whatever_the_calls_were(case):
    """The logits are near those of a float cache, and not equal."""
    run, params = compile_call(build_model(case)), case.world().target_weights
    at_once, filled = run(params, TOKENS, ZERO, initial_cache(case))
    cache, logits, start = initial_cache(case), [], 0
    for width in (2, 1, 1, 1):
        tokens = TOKENS[:, start : start + width]
        now, cache = run(params, tokens, ZERO + start, cache)
        logits.append(now)
        start += width
    assert_close(np.concatenate(logits, 1), at_once, 1e-5)
    for one, other in zip(filled, cache, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.whole, other.whole)
        jax.tree.map(functools.partial(assert_close, atol=1e-6), one.scale, other.scale)
        assert one.whole.keys.any()
    assert 1e-3 < np.abs(at_once - whole_text_logits(case)).max() < 0.2


@each_case
def test_a_path_that_is_kept_moves_as_it_is(case):
    params, start = case.world().target_weights, ZERO + 1
    _, cache = compile_call(build_model(case))(
        params, TOKENS, ZERO, initial_cache(case)
    )
    path = np.array([[0, 2]] * 3, np.int32)
    kept = jax.jit(build_model(case).keep)(cache, start, path)
    for old, new in zip(cache, kept, strict=True):
        for part, moved in zip(old, new, strict=True):
            slots = np.arange(part.values.shape[2])
            slots[2] = 3
            np.testing.assert_array_equal(moved.keys, part.keys[..., slots])
            np.testing.assert_array_equal(moved.values, part.values[:, :, slots])


PROMPT = inputs.make_prompt([[3, 1, 4, 1, 5], [8], [9, 7, 9]])
NEW, GAMMA = 12, 3


@pytest.mark.parametrize(
    ("case", "name", "temperature"),
    [
        (GEMMA2, "early_exit", 1.0),
        pytest.param(GPT, "tree", 0.0, marks=pytest.mark.slow),
    ],
)
def test_a_draft_makes_no_difference(case, name, temperature):
    """At T = 1 the rule gives the text of the same keys without a draft. A draft that
    is the target's first layers reads their part of the cache; another model has a
    float cache."""
    world, drafter = case.world(), BY_NAME[name]
    rule = gumbel.verifier if temperature else drafter.verifier
    shallow = case.build(case.small._replace(cache="int8"))
    world = world._replace(target=build_model(case), shallow=shallow)
    sampling, params = inputs.make_sampling(3, temperature), drafter.params(world)
    request = inputs.make_request(jax.random.key(0), PROMPT, NEW, sampling)
    slots = 5 + NEW + 2 * GAMMA + 1
    pair = drafter.decoder(world, GAMMA, rule), Decoder(world.target, verifier=rule)
    output, alone = (
        jax.device_get(generate.build(each, slots)(params, PROMPT, request))
        for each in pair
    )
    np.testing.assert_array_equal(output.length, alone.length)
    for row, length in enumerate(alone.length):
        text = output.tokens[row, :length]
        np.testing.assert_array_equal(text, alone.tokens[row, :length])
    assert 0 < output.counts.accepted.sum() < output.counts.tested.sum()


def test_a_pretrained_model_is_asked_for_it():
    model = specjax.load("code_small", cache="int8")
    assert (model.name, model.config.cache) == ("code_small, int8 cache", "int8")
    cache = model.model.init(None, PROMPT, 64)
    size = {leaf.dtype.name: leaf.size for leaf in jax.tree.leaves(cache[0])}
    width = model.config.head_width
    assert size == {"int8": width * size["float32"], "float32": 3 * 2 * 64}
    for kind in ("int8", "window:8"):
        with pytest.raises(ValueError, match="t5_small is a t5, which has no such cac"):
            specjax.load("t5_small", cache=kind)
    huge = f"window:{2**30}"
    for unknown in ("int4", "window:0", "window:", "window:-1", "64", huge):
        with pytest.raises(ValueError, match=f"unknown cache '{unknown}': it is int8"):
            specjax.load("code_small", cache=unknown)


def test_a_window_is_asked_for_of_a_llama_alone():
    config = LLAMA.config
    whole = Pretrained("small", config, llama.build(config), None, "float32", ())
    narrow = pretrained.with_cache(whole, "window:4")
    every = tuple(range(config.num_layers))
    assert narrow.config == config._replace(window=4, local=every)
    assert narrow.name == "small, window:4 cache"
    prompt = inputs.make_prompt([[1, 2, 3]])
    before, after = (x.model.init(None, prompt, 4096) for x in (whole, narrow))
    sizes = [sum(x.size for x in jax.tree.leaves(cache)) for cache in (before, after)]
    assert sizes[1] == sizes[0] * (4 + chunks.TOKENS) // 4096
    with pytest.raises(
        ValueError, match=r"code_small is a gpt.*name a model of Llama's kind"
    ):
        specjax.load("code_small", cache="window:128")


@pytest.mark.parametrize(
    ("config", "size"), [(tiny_llama.GEMMA3, 1), (tiny_llama.GEMMA2, WINDOW + 1)]
)
def test_a_window_widens_none_and_leaves_positions(config, size):
    whole = Pretrained("small", config, llama.build(config), None, "float32", ())
    told = f"small has windows of {WINDOW} tokens of its own: leave out cache='window:"
    with pytest.raises(ValueError, match=told):
        pretrained.with_cache(whole, f"window:{size}")
    narrow = whole._replace(config=config._replace(local_rotation=None))
    narrow = pretrained.with_cache(narrow, f"window:{WINDOW}")
    assert narrow.config.window == WINDOW
