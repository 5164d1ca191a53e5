"""Drafts on while one more token is worth what it costs (Section 3.5).

A text is decoded in cycles of a draft and a call, so that its cost a token is a mean
cost over a mean reward (the renewal-reward theorem). At the least cost a token, S, the
draft that follows x_i pays where

    P(x_1 .. x_{i + 1} are kept) S > c + v',

v' being what a token more adds to the target's call: for i.i.d. acceptances the best
gamma of Theorem 3.8. S is measured as the row decodes, and so is how often tokens were
kept of which the drafter was as sure: both of the past alone, so that the rule does not
anticipate. Axes: B rows, G = gamma, K bins.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.policies.confidence import WIDTHS
from specjax.types import Info, Law, Policy

EDGES = np.float32([0.1, 0.3, 0.6, 0.9])  # of bins of q(x)
CENTRES = np.float32([0.05, 0.2, 0.45, 0.75, 0.95])


class Carry(NamedTuple):
    """tested, kept [B, K]: tokens of each bin that were decided on, and kept. cost,
    tokens [B]: of all calls. All begin with what is supposed before the first call.
    alive [B]: the chance that all of the draft is kept. bins [B, G]: of its tokens."""

    tested: Array
    kept: Array
    cost: Array
    tokens: Array
    alive: Array
    bins: Array


def renewal(c: float = 0.05, slope: float = 0.02, prior: float = 3.0) -> Policy:
    """c: what a drafted token costs, in calls of the target (Definition 3.7). slope:
    what it adds to the call that reads it. prior: as how many tokens a bin counts what
    is supposed of it at first, that it keeps (1 + q(x)) / 2. At least one token is
    drafted, or nothing would be learnt. Raises ValueError for numbers below 0, or no
    prior."""
    if not (c >= 0 and slope >= 0 and prior > 0):
        raise ValueError(
            f"c and slope must be at least 0, prior above it; got {c}, {slope}, {prior}"
        )

    def init(batch: int, gamma: int) -> tuple[Array, Carry]:
        def rows(x) -> Array:
            return jnp.tile(jnp.asarray(x, jnp.float32), (batch, 1))

        tested = np.full(len(CENTRES), prior)
        one = jnp.ones(batch, jnp.float32)
        bins = jnp.zeros((batch, gamma), jnp.int32)
        counts = rows(tested), rows(tested * (1 + CENTRES) / 2)
        carry = Carry(*counts, prior * one, 2 * prior * one, one, bins)
        return jnp.full(batch, gamma, jnp.int32), carry

    def go_on(carry: Carry, law: Law, token: Array, slot) -> tuple[Carry, Array]:
        own = jnp.searchsorted(EDGES, probs.unheated(law, token)).astype(jnp.int32)
        rate = carry.kept / carry.tested
        kept = jnp.take_along_axis(rate, own[:, None], axis=1)[:, 0]
        alive = jnp.where(slot == 0, 1.0, carry.alive) * kept
        after = carry.kept.sum(1) / carry.tested.sum(1)  # of a token not yet seen
        pays = alive * after * carry.cost > (c + slope) * carry.tokens
        bins = carry.bins.at[:, slot].set(own)
        return carry._replace(alive=alive, bins=bins), pays

    def update(budget: Array, carry: Carry, info: Info) -> tuple[Array, Carry]:
        slot = jnp.arange(carry.bins.shape[1])
        each = carry.bins[..., None] == jnp.arange(len(CENTRES))

        def counted(count: Array) -> Array:
            return jnp.sum(each & (slot < count[:, None])[..., None], axis=1)

        called, drafted = info.emitted > 0, info.drafted.astype(jnp.float32)
        cost = jnp.where(called, 1 + (c + slope) * drafted, 0.0)
        return budget, carry._replace(
            tested=carry.tested + counted(info.tested),
            kept=carry.kept + counted(info.accepted),
            cost=carry.cost + cost,
            tokens=carry.tokens + info.emitted,
        )

    return Policy(init, update, go_on, WIDTHS)
