"""The target drafts for itself with its own first layers.

This is self-speculation as in LayerSkip (Elhoushi et al. 2024), without training. It
reads the target's cache, so it has no cache and no prefill of its own. What it writes
there while drafting is dropped, and the target's call writes the same slots again.
Axes: B rows, E features.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from specjax.drafters.autoregressive import advance_fn
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import draw_independent, rollout
from specjax.types import Draft, Drafter, Model, Request, State


def build(
    shallow: Model, cache_of: Callable, gamma: int, draw: Callable = draw_independent
) -> Drafter:
    """Returns a drafter of `gamma` tokens, whose parameters are the target's.

    Args:
      shallow: the target, cut after some layers.
      cache_of: the target's cache -> the cache of those layers, the first of a
        sequence.
      gamma: at least 1.
      draw: see `drafters.rollout`.

    Raises:
      ValueError: if gamma < 1.
    """
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1 for an early exit; got {gamma}")

    def draft(
        key: Array,
        params: Any,
        request: Request,
        state: State,
        go_on: Callable | None = None,
    ) -> tuple[Draft, tuple]:
        advance = advance_fn(shallow, params, state)
        last = jnp.take_along_axis(state.tokens, state.length[:, None] - 1, axis=1)
        draft, _ = rollout(
            draw(key, request, state, gamma),
            state,
            gamma,
            initial=advance(cache_of(state.target_cache), last[:, 0], -1),
            advance=advance,
            positions=shallow.slots,
            go_on=go_on,
        )
        return draft, ()

    return Drafter(
        no_cache,
        draft,
        gamma,
        vocab=shallow.vocab,
        shapes=shallow.shapes,
        slots=shallow.slots,
        stops=True,
    )
