"""Draws tokens uniformly: the floor of every comparison (Section 3.6).

Axes: B rows, V vocabulary.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import Proposal, independent, rollout
from specjax.types import Draft, Drafter, Request, Sampling, State, Table


def build(vocab: int, gamma: int = 1, draw: Callable = independent) -> Drafter:
    """q(x) = 1 / V at any temperature; see `drafters.rollout` for `draw`. Raises
    ValueError if gamma < 1."""
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1 for a random draft; got {gamma}")

    def draft(
        key: Array, params, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, tuple]:
        del params
        row = jnp.zeros_like(state.length)
        logits = jnp.zeros((row.size, vocab))
        none = jnp.zeros((1, 0))
        table = Table(jnp.zeros(vocab), jnp.zeros(1), none.astype(jnp.int32), none)
        same = Proposal(logits, (), table, row)
        hot = request._replace(sampling=Sampling(jnp.ones(row.size)))
        drawn = draw(key, hot, state, gamma)
        return rollout(drawn, state, gamma, same, lambda *_: same, None, *go_on)[0], ()

    return Drafter(no_cache, draft, gamma, vocab, stops=True)
