"""Calls in portions give the same numbers as whole calls, in less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import chunks, native
from specjax.inputs import make_prompt
from specjax.models import cache as kv
from specjax.models import gpt
from tests.support.model_cases import (
    GEMMA2,
    GPT,
    IDS,
    SLOTS,
    T5,
    TOKENS,
    ZERO,
    B,
    T,
    assert_close,
    compile_call,
)

each_cache = pytest.mark.parametrize(
    "case", [GPT, T5, GEMMA2], ids=lambda case: case.name
)


@each_cache
def test_a_call_in_portions_gives_the_same_logits_and_cache(case):
    """The last portion may be incomplete and end at the cache's last slot."""
    world = case.world()
    start = ZERO + (SLOTS - T) * (np.arange(B) == 1).astype(np.int32)
    whole = case.call(TOKENS, start, case.fresh())
    for width in (2, T + 1) if case is GEMMA2 else (2,):
        run = compile_call(chunks.read_in_portions(world.target, width))
        parts = run(world.target_weights, TOKENS, start, case.fresh())
        jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), whole, parts)


LONG, LENGTHS = 11, np.array([11, 3, 6])
ROWS = np.random.default_rng(4).integers(1, IDS, (B, LONG))


@each_cache
def test_a_padded_prompt_in_portions_is_each_row_by_itself(case):
    """A row may have ended portions ago, and a ring still holds its last tokens."""
    world, length = case.world(), jnp.array(LENGTHS)
    text = np.where(np.arange(LONG) < LENGTHS[:, None], ROWS, 0)
    prompt = case.prompt()._replace(tokens=jnp.array(text), length=length)

    @functools.partial(jax.jit, static_argnums=1)
    def run(params, width):
        cache = world.target.init(params, prompt, LONG + 2)
        cache = chunks.prefill(world.target, params, prompt, cache, width)
        last = jnp.take_along_axis(prompt.tokens, length[:, None] - 1, axis=1)
        features, _ = world.target.apply(params, last, length - 1, cache)
        return world.target.readout(params, features)[:, 0]

    whole = jax.jit(functools.partial(case.whole, case.config))
    logits = np.asarray(whole(world.target_weights, jnp.array(ROWS), case.inputs()))
    for width in (2, 4) if case is GEMMA2 else (4,):
        assert_close(
            run(world.target_weights, width), logits[np.arange(B), LENGTHS - 1]
        )


def test_a_start_token_alone_is_left_to_the_first_step():
    def unread(*_):
        raise AssertionError("a step reads the last token anyway")

    model = gpt.build(gpt.Config(50, 16, 32, 1, 8))
    prompt = make_prompt([[3], [4]])
    cache = model.init(None, prompt, 8)
    assert chunks.prefill(model._replace(apply=unread), None, prompt, cache) is cache


def test_memory_grows_with_the_length_and_not_its_square():
    """When the prompt is twice as long, the memory that XLA allocates for temporary
    arrays about doubles."""
    config = gpt.Config(50, 16, 32, 1, 8)
    model = chunks.read_in_portions(gpt.build(config), 64)

    def temporary(model, length: int) -> int:
        params = model.shapes
        tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
        start = jax.ShapeDtypeStruct((1,), jnp.int32)
        cache = jax.eval_shape(
            lambda: kv.empty(
                1, batch=1, heads=8, slots=length, width=2, dtype=jnp.float32
            )
        )
        run = jax.jit(lambda *arguments: model.apply(*arguments)[1], donate_argnums=3)
        with native.products(native.XLA):
            compiled = run.lower(params, tokens, start, cache).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    grown = temporary(model, 4096) / temporary(model, 2048)
    assert grown < 2.5
    assert temporary(gpt.build(config), 2048) > 8 * temporary(model, 2048)


def test_portions_of_nothing_are_refused():
    with pytest.raises(ValueError, match="portions of 0 tokens: take 1 or more"):
        chunks.read_in_portions(gpt.build(gpt.Config(50, 16, 32, 1, 2)), 0)
