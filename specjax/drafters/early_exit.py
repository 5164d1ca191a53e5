"""The target drafts for itself with its own first layers.

Self-speculation as in LayerSkip (Elhoushi et al. 2024), with no training of its own.
It reads the target's cache, so it has none of its own, and no prefill: what it writes
there while drafting is dropped, and the target's call writes the same slots again.
Axes: B rows, E features.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from specjax.drafters.autoregressive import calling
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import independent, rollout
from specjax.types import Draft, Drafter, Model, Request, State


def build(
    shallow: Model, cache_of: Callable, gamma: int, draw: Callable = independent
) -> Drafter:
    """A drafter of `gamma` >= 1 tokens; its parameters are the target's own. shallow:
    the target cut after some layers. cache_of: the target's cache -> that of those
    layers, the first of a sequence. draw: see `drafters.rollout`. Raises ValueError if
    gamma < 1."""
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1 for an early exit; got {gamma}")

    def draft(
        key: Array, params, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, tuple]:
        advance = calling(shallow, params, state)
        last = jnp.take_along_axis(state.tokens, state.length[:, None] - 1, axis=1)
        begun = advance(cache_of(state.target_cache), last[:, 0], -1)
        drawn = draw(key, request, state, gamma)
        limits = shallow.slots, *go_on
        return rollout(drawn, state, gamma, begun, advance, *limits)[0], ()

    limits = shallow.vocab, shallow.shapes, shallow.slots
    return Drafter(no_cache, draft, gamma, *limits, stops=True)
