"""Drafts no token: the step is then plain autoregression.

With `build(gamma)` the target is still called on gamma + 1 tokens, of which one counts:
the baseline of a speculative run's own shape. A call rounds by its number of rows, so
that this text, and not that of calls of one row, is what a greedy run must repeat to
the last token (`specjax microscope`).
Axes: B rows, G = gamma.
"""

import jax.numpy as jnp

from specjax.types import Draft, Drafter


def no_cache(params, prompt, slots) -> tuple:
    """The `init` of every drafter that keeps nothing."""
    del params, prompt, slots
    return ()


def build(gamma: int) -> Drafter:
    """A drafter of `gamma` slots, `num` 0 of them real; 0 slots are `nothing`'s. Raises
    ValueError if gamma < 0."""
    if gamma < 0:
        raise ValueError(f"gamma must be at least 0 (0 is autoregression); got {gamma}")

    def draft(key, params, request, state) -> tuple[Draft, tuple]:
        del key, params, request
        none = jnp.zeros_like(state.length)
        tokens = jnp.zeros((none.size, gamma), jnp.int32)
        return Draft(tokens, none, None), state.draft_cache

    return Drafter(no_cache, draft, gamma)


drafter = build(0)
