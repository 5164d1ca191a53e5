"""A policy that drafts on while one more token is worth its cost (Section 3.5).

A text is decoded in cycles of one draft and one call, so its cost per token is the mean
cost over the mean reward of a cycle (the renewal-reward theorem). At the lowest cost
per token, S, the draft after x_i pays off where

    P(x_1 .. x_{i + 1} are kept) S > c + v',

where v' is what one more token adds to the target's call; for i.i.d. acceptances this
is the best gamma of Theorem 3.8. S is estimated while the row decodes. So is how often
a token is kept, given how sure the drafter was of it. Both use past tokens only, so the
rule does not look ahead. Axes: B rows, G = gamma, K bins.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.policies.confidence import WIDTHS
from specjax.types import Info, Law, Policy

EDGES = np.array([0.1, 0.3, 0.6, 0.9], np.float32)  # of the bins of q(x)
CENTRES = np.array([0.05, 0.2, 0.45, 0.75, 0.95], np.float32)


class Carry(NamedTuple):
    """The running estimates of a row; they start from assumed values.

    tested, kept: [B, K], tokens of each bin that were decided on, and that were kept.
    cost, tokens: [B], the total cost of all calls, and their tokens.
    alive: [B], the probability that the whole present draft is kept.
    bins: [B, G], the bin of each of its tokens.
    """

    tested: Array
    kept: Array
    cost: Array
    tokens: Array
    alive: Array
    bins: Array


def renewal(c: float = 0.05, slope: float = 0.02, prior: float = 3.0) -> Policy:
    """Returns the policy that stops where the next token would cost more time than it
    saves.

    At least one token is drafted, or nothing would be learnt.

    Args:
      c: the cost of a drafted token, in calls of the target (Definition 3.7).
      slope: what a drafted token adds to the cost of the call that reads it.
      prior: the weight, in tokens, of the initial assumption that a bin keeps (1 +
        q(x)) / 2.

    Raises:
      ValueError: for c or slope below 0, or a prior that is not above 0.
    """
    if not (c >= 0 and slope >= 0 and prior > 0):
        raise ValueError(
            f"c and slope must be at least 0, prior above it; got {c}, {slope}, {prior}"
        )

    def init(batch: int, gamma: int) -> tuple[Array, Carry]:
        def rows(x: np.ndarray) -> Array:
            return jnp.tile(jnp.asarray(x, jnp.float32), (batch, 1))

        tested = np.full(len(CENTRES), prior)
        one = jnp.ones(batch, jnp.float32)
        bins = jnp.zeros((batch, gamma), jnp.int32)
        carry = Carry(
            tested=rows(tested),
            kept=rows(tested * (1 + CENTRES) / 2),
            cost=prior * one,
            tokens=2 * prior * one,
            alive=one,
            bins=bins,
        )
        return jnp.full(batch, gamma, jnp.int32), carry

    def go_on(carry: Carry, law: Law, token: Array, slot: Any) -> tuple[Carry, Array]:
        own = jnp.searchsorted(EDGES, probs.at_temperature_one(law, token)).astype(
            jnp.int32
        )
        rate = carry.kept / carry.tested
        kept = jnp.take_along_axis(rate, own[:, None], axis=1)[:, 0]
        alive = jnp.where(slot == 0, 1.0, carry.alive) * kept
        after = carry.kept.sum(1) / carry.tested.sum(1)  # for a token not yet drawn
        pays = alive * after * carry.cost > (c + slope) * carry.tokens
        bins = carry.bins.at[:, slot].set(own)
        return carry._replace(alive=alive, bins=bins), pays

    def update(budget: Array, carry: Carry, info: Info) -> tuple[Array, Carry]:
        slot = jnp.arange(carry.bins.shape[1])
        each = carry.bins[..., None] == jnp.arange(len(CENTRES))

        def count_per_bin(count: Array) -> Array:
            return jnp.sum(each & (slot < count[:, None])[..., None], axis=1)

        called, drafted = info.emitted > 0, info.drafted.astype(jnp.float32)
        cost = jnp.where(called, 1 + (c + slope) * drafted, 0.0)
        return budget, carry._replace(
            tested=carry.tested + count_per_bin(info.tested),
            kept=carry.kept + count_per_bin(info.accepted),
            cost=carry.cost + cost,
            tokens=carry.tokens + info.emitted,
        )

    return Policy(init, update, go_on, WIDTHS)
