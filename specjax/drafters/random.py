"""Draws tokens uniformly: the lower bound of every comparison (Section 3.6).

Axes: B rows, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import Proposal, draw_independent, rollout
from specjax.types import Draft, Drafter, Request, Sampling, State, Table


def build(vocab: int, gamma: int = 1, draw: Callable = draw_independent) -> Drafter:
    """Returns a drafter with q(x) = 1 / V at any temperature.

    See `drafters.rollout` for `draw`. Raises ValueError if gamma < 1.
    """
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1 for a random draft; got {gamma}")

    def draft(
        key: Array,
        params: Any,
        request: Request,
        state: State,
        go_on: Callable | None = None,
    ) -> tuple[Draft, tuple]:
        del params
        row = jnp.zeros_like(state.length)
        logits = jnp.zeros((row.size, vocab))
        none = jnp.zeros((1, 0))
        table = Table(jnp.zeros(vocab), jnp.zeros(1), none.astype(jnp.int32), none)
        same = Proposal(logits, (), table, row)
        at_one = request._replace(sampling=Sampling(jnp.ones(row.size)))
        draft, _ = rollout(
            draw(key, at_one, state, gamma),
            state,
            gamma,
            initial=same,
            advance=lambda *_: same,
            go_on=go_on,
        )
        return draft, ()

    return Drafter(no_cache, draft, gamma, vocab, stops=True)
