"""Calls in portions are the same calls, and need less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import portions
from specjax.models import gpt
from tests.support.model_cases import CASES, SLOTS, TOKENS, ZERO, T, close, compiled

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
        for model in (world.target, portions.worked_in(world.target, width))
    )
    jax.tree.map(lambda a, b: close(a, b, 1e-5), whole, parts)


def test_memory_grows_with_the_length_and_not_its_square():
    """Of what XLA allocates for temporaries, twice the prompt at most about doubles."""
    config = gpt.Config(50, 16, 32, 1, 8)
    model = portions.worked_in(gpt.build(config), 64)

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
        portions.worked_in(gpt.build(gpt.Config(50, 16, 32, 1, 2)), 0)


def test_a_call_without_a_cache_is_left_whole():
    config = gpt.Config(50, 16, 32, 1, 2)
    model = gpt.build(config)
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape) * 0.1, model.shapes)
    text, start = jnp.arange(7)[None], jnp.zeros(1, jnp.int32)
    cut = portions.worked_in(model, 3)
    whole, parts = (m.apply(params, text, start, None)[0] for m in (model, cut))
    np.testing.assert_array_equal(whole, parts)
