"""A policy that chooses gamma from the cost of each length and past acceptances.

Serving engines, for example SGLang, switch between a few lengths by a running
acceptance rate. This policy minimizes the cost per token of each length, (c gamma +
v(gamma)) / E(tokens) of Theorem 3.8 with the measured v (Section 3.5). Axes: B rows, W
lengths.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.types import Info, Policy


class Carry(NamedTuple):
    """The discounted counts of a row: older tokens count less.

    tested: [B], drafted tokens that were decided on.
    kept: [B], those of them that were kept.
    """

    tested: Array
    kept: Array


def cost_table(
    v: str = "1:1/2:1/4:1.1/8:1.25",
    c: float = 0.05,
    margin: float = 0.05,
    memory: float = 50,
) -> Policy:
    """Returns the policy that minimizes the cost per token.

    Args:
      v: lengths, and the cost of the target's call on each, in units of its call on one
        token: "1:1/2:1/4:1.1".
      c: the cost of a drafted token (Definition 3.7).
      margin: the share by which the cost per token must fall before the length changes.
      memory: the number of tested tokens that are remembered.

    Raises:
      ValueError: for a malformed table, or numbers out of range.
    """
    try:
        pairs = sorted(
            (int(g), float(x)) for g, x in (w.split(":") for w in v.split("/"))
        )
    except ValueError:
        raise ValueError(f"v={v}: write gamma:cost with / between, 1:1/4:1.1") from None
    lengths = np.array([g for g, _ in pairs], np.int32)
    costs = np.array([x for _, x in pairs], np.float32)
    if lengths[0] < 1 or costs.min() <= 0 or c < 0 or not 0 <= margin < 1 or memory < 1:
        raise ValueError(
            "need gamma >= 1, v > 0, c >= 0, 0 <= margin < 1 and memory >= 1; got"
            f" v={v}, c={c}, margin={margin}, memory={memory}"
        )

    def is_possible(gamma: int) -> np.ndarray:
        """Returns which lengths are at most gamma; the smallest always counts."""
        return lengths <= max(gamma, lengths[0])

    def best(carry: Carry, gamma: int, now: Array) -> Array:
        """Returns the length [B] to draft: `now`, or one better by the margin."""
        alpha = (carry.kept / carry.tested)[:, None]
        # Eq. 1, summed: 1 + alpha + .. + alpha^gamma.
        powers = alpha[..., None] ** np.arange(lengths[-1] + 1)
        tokens = jnp.cumsum(powers, axis=-1)[:, 0, lengths]
        cost = (c * lengths + costs) / tokens
        cost = jnp.where(is_possible(gamma), cost, jnp.inf)
        own = jnp.where(lengths == now[:, None], cost, jnp.inf).min(1)
        other = jnp.take(lengths, cost.argmin(1))
        return jnp.where(cost.min(1) < (1 - margin) * own, other, now)

    def init(batch: int, gamma: int) -> tuple[Array, Carry]:
        one = jnp.ones(batch, jnp.float32)
        carry = Carry(4 * one, 3 * one)  # 3 / 4 is assumed before the first call
        return best(carry, gamma, jnp.full(batch, lengths[0], jnp.int32)), carry

    def update(budget: Array, carry: Carry, info: Info) -> tuple[Array, Carry]:
        fade = (1 - 1 / memory) ** info.tested
        carry = Carry(
            fade * carry.tested + info.tested, fade * carry.kept + info.accepted
        )
        return best(carry, info.tokens.shape[1], budget), carry

    return Policy(init, update, widths=tuple(lengths.tolist()))
