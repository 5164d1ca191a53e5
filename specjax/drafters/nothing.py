"""A drafter of no tokens: the step is then plain autoregression.

With `build(gamma)` the target is still called on gamma + 1 tokens, of which one counts:
a baseline with the shape of a speculative run. A call rounds differently for each
number of rows, so this text, and not that of calls on one row, is what a greedy run
must repeat to the last token (`specjax microscope`). Axes: B rows, G = gamma.
"""

from typing import Any

import jax.numpy as jnp

from specjax.types import Draft, Drafter


def no_cache(params: Any, prompt: Any, slots: int) -> tuple:
    """Returns an empty cache: the `init` of every drafter that stores nothing."""
    del params, prompt, slots
    return ()


def build(gamma: int) -> Drafter:
    """Returns a drafter that never proposes a token, of drafts with `gamma` slots; 0
    slots for `nothing`.

    Raises ValueError if gamma < 0.
    """
    if gamma < 0:
        raise ValueError(f"gamma must be at least 0 (0 is autoregression); got {gamma}")

    def draft(key: Any, params: Any, request: Any, state: Any) -> tuple[Draft, tuple]:
        del key, params, request
        none = jnp.zeros_like(state.length)
        tokens = jnp.zeros((none.size, gamma), jnp.int32)
        return Draft(tokens, none, None), state.draft_cache

    return Drafter(no_cache, draft, gamma)


drafter = build(0)
