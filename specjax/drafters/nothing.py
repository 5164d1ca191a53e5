"""Drafts no token: gamma = 0, which makes the step plain autoregression."""

import jax.numpy as jnp

from specjax.types import Draft, Drafter


def no_cache(params, prompt, slots) -> tuple:
    """The `init` of every drafter that keeps nothing."""
    del params, prompt, slots
    return ()


def _draft(key, params, request, state):
    del key, params, request
    zero = jnp.zeros_like(state.length)
    return Draft(jnp.zeros((zero.size, 0), jnp.int32), zero, None), state.draft_cache


drafter = Drafter(no_cache, _draft, gamma=0)
