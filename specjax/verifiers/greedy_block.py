"""Greedy multi-path block verification: the best of several drawn paths, as one block.

Of M children of a node, drawn independently from q, the one of the largest p(x) / q(x)
is followed, and so on from there. What is followed is a draft of another law, q', and
block verification decides on it (Thomas & Pal 2026, https://arxiv.org/abs/2602.16961,
which its abstract tells; the order of ids is ours). Where ids ascend by p / q,

    q'(x) = H(x)^M - L(x)^M,

H(x) being the sum of q up to x and L(x) that below it: all M lie at most at x, and not
all below. Children that agree are one node, whose children are those of all of them. On
a chain it is block verification.
p is the target, q the drafter. Axes: B rows, G nodes, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import block, token, traversal


class Followed(NamedTuple):
    """What is followed, level by level. group [B, G + 1]: rows of the call that agree
    with it so far, 0 the root. num [B] tokens; node [B, G]: one that has each; level
    [B, G] of each node that agreed, -1 of others. q [B, G, V]: what they follow."""

    group: Array
    num: Array
    node: Array
    level: Array
    q: Array


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """As `verifiers.block.verify`, of siblings drawn with replacement; the nodes kept
    are the verdict's path."""
    if draft.parent is None:
        return block.verify(target, draft, noise, keep_residual)
    parent, (batch, size) = draft.parent, draft.tokens.shape
    rows, live = jnp.arange(batch)[:, None], jnp.arange(size) < draft.num[:, None]
    p, drawn_from = probs.dense(target), probs.dense(draft.law)

    def children(group: Array) -> Array:
        return jnp.take_along_axis(group, parent + 1, axis=1) & live

    def step(now: Followed, depth: Array) -> Followed:
        child = children(now.group)
        p_here = probs.taking(jnp.argmax(now.group, axis=1))(p)
        q_here = probs.taking(jnp.argmax(child, axis=1))(drawn_from)
        rank, q = best_of(p_here, q_here, child.sum(1))
        place = jnp.where(child, jnp.take_along_axis(rank, draft.tokens, axis=1), -1)
        chosen, some = jnp.argmax(place, axis=1).astype(jnp.int32), child.any(1)
        agrees = child & (place == place.max(1, keepdims=True))
        group = jnp.pad(agrees, ((0, 0), (1, 0)))
        return Followed(
            group,
            now.num + some,
            now.node.at[:, depth].set(jnp.where(some, chosen, depth)),
            jnp.where(agrees, depth, now.level),
            now.q.at[:, depth].set(q),
        )

    root = jnp.zeros((batch, size + 1), bool).at[:, 0].set(True)
    none = jnp.zeros(batch, jnp.int32), jnp.zeros((batch, size), jnp.int32)
    now = Followed(root, *none, none[1] - 1, jnp.zeros_like(drawn_from))
    now, _ = jax.lax.while_loop(
        lambda walk: children(walk[0].group).any() & (walk[1] < size),
        lambda walk: (step(*walk), walk[1] + 1),
        (now, jnp.int32(0)),
    )
    at = jnp.pad(now.node + 1, ((0, 0), (1, 0)))
    followed = probs.taking(now.node, rows)
    chain = draft._replace(tokens=followed(draft.tokens), num=now.num)
    coins = noise._replace(accept=followed(noise.accept))
    verdict = block.decide(probs.taking(at, rows)(p), now.q, chain, coins)
    last = probs.taking(verdict.num_accepted)(at)
    path, n = traversal.path_to(jnp.pad(parent + 1, ((0, 0), (1, 0))), last)
    chance = jnp.take_along_axis(verdict.accept_prob, now.level, axis=1)
    chance = jnp.where(now.level >= 0, chance, 0.0)
    residual = verdict.residual if keep_residual else None
    return Verdict(n, verdict.tokens, chance, path, residual)


def best_of(p: Array, q: Array, count: Array) -> tuple[Array, Array]:
    """(rank, q') [B, V] of the best of `count` [B] ids drawn from q: by p / q, of two
    that have the same the larger id."""
    ratio = jnp.where(q > 0, p / jnp.where(q > 0, q, 1.0), -1.0)
    order = jnp.argsort(ratio, axis=1)
    rank = jnp.argsort(order, axis=1)
    ascending = jnp.take_along_axis(q, order, axis=1)
    high = jnp.cumsum(ascending, axis=1)
    whole = high[:, -1:]
    high, low = high / whole, (high - ascending) / whole

    # H^M - L^M = (H - L) (H^(M - 1) + H^(M - 2) L + .. + L^(M - 1)): no digits cancel.
    def further(m: Array, sums: tuple) -> tuple:
        total, power = sums
        on = (m < count)[:, None]
        power = power * low
        return jnp.where(on, total * high + power, total), power

    ones = jnp.ones_like(low)
    most = jnp.maximum(jnp.max(count), 1)
    total = jax.lax.fori_loop(1, most, further, (ones, ones))[0]
    return rank, jnp.take_along_axis(ascending / whole * total, rank, axis=1)


verifier = Verifier(token.noise, verify, siblings=("with",))
