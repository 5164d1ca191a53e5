"""Calls in portions are the same calls, and need less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import chunks
from specjax.models import gpt
from tests.support.model_cases import (
    CASES,
    IDS,
    SLOTS,
    TOKENS,
    ZERO,
    B,
    T,
    close,
    compiled,
    fresh,
)
from tests.support.tiny_t5 import quick_jit

by_family = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_family
@pytest.mark.parametrize("width", [1, 2, 4, T, T + 1])
def test_a_call_in_portions_gives_the_same_logits_and_cache(case, width):
    """Also where the last portion is not whole and ends at the cache's last slot."""
    world = case.world()
    start = ZERO.at[1].set(SLOTS - T)
    whole, parts = (
        compiled(model)(
            world.target_weights,
            TOKENS,
            start,
            model.init(world.target_weights, case.prompt(), SLOTS),
        )
        for model in (world.target, chunks.in_chunks(world.target, width))
    )
    jax.tree.map(lambda a, b: close(a, b, 1e-5), whole, parts)


LONG, LENGTHS = 11, np.array([11, 3, 6])
ROWS = np.random.default_rng(4).integers(1, IDS, (B, LONG))


@functools.cache
def unpadded(case) -> np.ndarray:
    """Logits after the last token of each row, without a cache."""
    world = case.world()
    run = quick_jit(functools.partial(case.whole, case.config))
    logits = run(world.target_weights, jnp.array(ROWS), case.inputs())
    return np.take_along_axis(np.asarray(logits), LENGTHS[:, None, None] - 1, 1)[:, 0]


@by_family
@pytest.mark.parametrize("width", [2, 4, LONG])
def test_a_padded_prompt_in_portions_is_each_row_by_itself(case, width):
    """Also where a row ended portions ago, whose last tokens a ring still holds: a step
    reads the last of them once more."""
    world, length = case.world(), jnp.array(LENGTHS)
    text = np.where(np.arange(LONG) < LENGTHS[:, None], ROWS, 0)
    prompt = case.prompt()._replace(tokens=jnp.array(text), length=length)

    @quick_jit
    def run(params):
        cache = world.target.init(params, prompt, LONG + 2)
        cache = chunks.prefill(world.target, params, prompt, cache, width)
        last = jnp.take_along_axis(prompt.tokens, length[:, None] - 1, axis=1)
        features, _ = world.target.apply(params, last, length - 1, cache)
        return world.target.readout(params, features)[:, 0]

    close(run(world.target_weights), unpadded(case))


@by_family
def test_a_prompt_of_a_portion_is_a_call_as_any_other(case):
    model, params = case.world().target, case.world().target_weights
    if model.portion is not None:
        model = case.module.build(case.config)  # whose portion is long enough
    prompt, cache = case.prompt(), fresh(case)

    def at_once(params, cache):
        zero = jnp.zeros_like(prompt.length)
        return model.apply(params, prompt.tokens, zero, cache)[1]

    def in_portions(params, cache):
        return chunks.prefill(model, params, prompt, cache)

    whole, parts = (
        jax.jit(run).lower(params, cache).as_text().replace(run.__name__, "")
        for run in (at_once, in_portions)
    )
    assert whole == parts


def test_memory_grows_with_the_length_and_not_its_square():
    """Of what XLA allocates for temporaries, twice the prompt at most about doubles."""
    config = gpt.Config(50, 16, 32, 1, 8)
    model = chunks.in_chunks(gpt.build(config), 64)

    def temporary(model, length: int) -> int:
        params = model.shapes
        tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
        start = jax.ShapeDtypeStruct((1,), jnp.int32)
        cache = jax.eval_shape(
            lambda: gpt.empty(1, (1, 8, length, 2), jnp.dtype("float32"))
        )
        run = jax.jit(lambda *arguments: model.apply(*arguments)[1], donate_argnums=3)
        compiled = run.lower(params, tokens, start, cache).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    grown = temporary(model, 4096) / temporary(model, 2048)
    assert grown < 2.5
    assert temporary(gpt.build(config), 2048) > 8 * temporary(model, 2048)


def test_portions_of_nothing_are_refused():
    with pytest.raises(ValueError, match="portions of 0 tokens: take 1 or more"):
        chunks.in_chunks(gpt.build(gpt.Config(50, 16, 32, 1, 2)), 0)


def test_a_call_without_a_cache_is_left_whole():
    config = gpt.Config(50, 16, 32, 1, 2)
    model = gpt.build(config)
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape) * 0.1, model.shapes)
    text, start = jnp.arange(7)[None], jnp.zeros(1, jnp.int32)
    cut = chunks.in_chunks(model, 3)
    whole, parts = (m.apply(params, text, start, None)[0] for m in (model, cut))
    np.testing.assert_array_equal(whole, parts)
