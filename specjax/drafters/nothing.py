"""Drafts no token: gamma = 0, which makes the step plain autoregression."""

import jax.numpy as jnp

from specjax.types import Draft, Drafter


def _init(params, prompt, slots):
    del params, prompt, slots
    return ()


def _draft(key, params, request, state):
    del key, params, request
    zero = jnp.zeros_like(state.length)
    return Draft(jnp.zeros((zero.size, 0), jnp.int32), zero, None), state.draft_cache


drafter = Drafter(_init, _draft, gamma=0)
