"""A policy that drafts more after a full acceptance and less otherwise (Section 3.5).

Only past measurements enter, so the choice does not depend on the tokens that it
decides about, and the output keeps the target's law. Axes: B rows, G = gamma, the
longest draft.
"""

import jax.numpy as jnp
from jax import Array

from specjax.types import Info, Policy


def heuristic(start: int = 5, up: int = 2, down: int = 1, least: int = 1) -> Policy:
    """Returns the schedule of Wagner et al. (2024), Section 4.1.

    It starts with `start` tokens, then adds `up` if all were accepted and subtracts
    `down` otherwise, down to `least`. Raises ValueError unless 1 <= least <= start.
    """
    if not 1 <= least <= start:
        raise ValueError(f"need 1 <= least <= start; got least={least}, start={start}")

    def init(batch: int, gamma: int) -> tuple[Array, None]:
        return jnp.full(batch, min(start, gamma), jnp.int32), None

    def update(budget: Array, carry: None, info: Info) -> tuple[Array, None]:
        change = jnp.where(info.full, up, -down)
        moved = jnp.maximum(budget + change, least)
        return jnp.where(info.drafted > 0, moved, budget), carry

    return Policy(init, update)
