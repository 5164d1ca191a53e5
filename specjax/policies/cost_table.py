"""Chooses gamma from what each costs, and what was accepted so far (Section 3.5).

Serving engines switch between a few lengths by a running acceptance, as SGLang does;
here by the cost a token of each, (c gamma + v(gamma)) / E(tokens) of Theorem 3.8 with
the measured v. Axes: B rows, W lengths.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.types import Info, Policy


class Carry(NamedTuple):
    """tested, kept [B]: drafted tokens, the longer ago the less each counts."""

    tested: Array
    kept: Array


def cost_table(
    v: str = "1:1/2:1/4:1.1/8:1.25",
    c: float = 0.05,
    margin: float = 0.05,
    memory: float = 50,
) -> Policy:
    """v: lengths, with what the target's call on each costs, in calls on one token. c:
    what a drafted token costs (Definition 3.7). margin: by which share the cost a token
    must fall for the length to change. memory: how many tested tokens are remembered.
    Raises ValueError for a table that is none, or numbers out of range."""
    try:
        pairs = sorted(
            (int(g), float(x)) for g, x in (w.split(":") for w in v.split("/"))
        )
    except ValueError:
        raise ValueError(f"v={v}: write gamma:cost with / between, 1:1/4:1.1") from None
    lengths, costs = np.int32([g for g, _ in pairs]), np.float32([x for _, x in pairs])
    if lengths[0] < 1 or costs.min() <= 0 or c < 0 or not 0 <= margin < 1 or memory < 1:
        raise ValueError(
            "need gamma >= 1, v > 0, c >= 0, 0 <= margin < 1 and memory >= 1; got"
            f" v={v}, c={c}, margin={margin}, memory={memory}"
        )

    def fitting(gamma: int) -> np.ndarray:
        """Which lengths a draft of `gamma` has; the least stands in for none."""
        return lengths <= max(gamma, lengths[0])

    def best(carry: Carry, gamma: int, now: Array) -> Array:
        """The length [B] to draft, `now` unless another is better by the margin."""
        alpha = (carry.kept / carry.tested)[:, None]
        # Eq. 1, summed: 1 + alpha + .. + alpha^gamma.
        powers = alpha[..., None] ** np.arange(lengths[-1] + 1)
        tokens = jnp.cumsum(powers, axis=-1)[:, 0, lengths]
        cost = (c * lengths + costs) / tokens
        cost = jnp.where(fitting(gamma), cost, jnp.inf)
        own = jnp.where(lengths == now[:, None], cost, jnp.inf).min(1)
        other = jnp.take(lengths, cost.argmin(1))
        return jnp.where(cost.min(1) < (1 - margin) * own, other, now)

    def init(batch: int, gamma: int) -> tuple[Array, Carry]:
        one = jnp.ones(batch, jnp.float32)
        carry = Carry(4 * one, 3 * one)  # 3 / 4 is supposed before the first call
        return best(carry, gamma, jnp.full(batch, lengths[0], jnp.int32)), carry

    def update(budget: Array, carry: Carry, info: Info) -> tuple[Array, Carry]:
        fade = (1 - 1 / memory) ** info.tested
        carry = Carry(
            fade * carry.tested + info.tested, fade * carry.kept + info.accepted
        )
        return best(carry, info.tokens.shape[1], budget), carry

    return Policy(init, update, widths=tuple(lengths.tolist()))
