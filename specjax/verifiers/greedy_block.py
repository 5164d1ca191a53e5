"""Greedy multi-path block verification: the best of several drawn paths, as one block.

Thomas & Pal (2026), https://arxiv.org/abs/2602.16961; implemented from its abstract,
and the order of ids is ours. The M children of a node are drawn independently from q.
The rule follows the child with the largest p(x) / q(x), and repeats this from there.
The path that it follows is a draft from another distribution, q', and block
verification decides on it. With ids in ascending order of p / q,

    q'(x) = H(x)^M - L(x)^M,

where H(x) is the sum of q up to and including x, and L(x) the sum below x: all M
children are at most x, but not all are below it. Children with the same token count as
one node, which has the children of all of them. On a chain the rule is block
verification.

p is the target, q the drafter. Axes: B rows, G nodes, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import block, token, traversal


class Selection(NamedTuple):
    """The path that is followed in the tree, level by level.

    Attributes:
      group: [B, G + 1] bool, the rows of the call that agree with the path so far; 0 is
        the root.
      num: [B], tokens on the path.
      node: [B, G], at each level one node of the path.
      level: [B, G], the level of each node that agreed, -1 for the others.
      q: [B, G, V], the distribution q' of the token at each level.
    """

    group: Array
    num: Array
    node: Array
    level: Array
    q: Array


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """Decides as `verifiers.block.verify` does, on siblings drawn with replacement.

    The kept nodes are `Verdict.path`.
    """
    if draft.parent is None:
        return block.verify(target, draft, noise, keep_residual)
    parent, (batch, size) = draft.parent, draft.tokens.shape
    rows, live = jnp.arange(batch)[:, None], jnp.arange(size) < draft.num[:, None]
    assert draft.law is not None  # of siblings drawn with replacement
    p, drawn_from = probs.dense(target), probs.dense(draft.law)

    def children(group: Array) -> Array:
        return jnp.take_along_axis(group, parent + 1, axis=1) & live

    def step(now: Selection, depth: Array) -> Selection:
        child = children(now.group)
        p_here = probs.take_fn(jnp.argmax(now.group, axis=1))(p)
        q_here = probs.take_fn(jnp.argmax(child, axis=1))(drawn_from)
        rank, q = best_child_law(p_here, q_here, child.sum(1))
        place = jnp.where(child, jnp.take_along_axis(rank, draft.tokens, axis=1), -1)
        chosen, some = jnp.argmax(place, axis=1).astype(jnp.int32), child.any(1)
        agrees = child & (place == place.max(1, keepdims=True))
        group = jnp.pad(agrees, ((0, 0), (1, 0)))
        return Selection(
            group=group,
            num=now.num + some,
            node=now.node.at[:, depth].set(jnp.where(some, chosen, depth)),
            level=jnp.where(agrees, depth, now.level),
            q=now.q.at[:, depth].set(q),
        )

    root = jnp.zeros((batch, size + 1), bool).at[:, 0].set(True)
    now = Selection(
        group=root,
        num=jnp.zeros(batch, jnp.int32),
        node=jnp.zeros((batch, size), jnp.int32),
        level=jnp.zeros((batch, size), jnp.int32) - 1,
        q=jnp.zeros_like(drawn_from),
    )
    now, _ = jax.lax.while_loop(
        lambda walk: children(walk[0].group).any() & (walk[1] < size),
        lambda walk: (step(*walk), walk[1] + 1),
        (now, jnp.int32(0)),
    )
    at = jnp.pad(now.node + 1, ((0, 0), (1, 0)))
    followed = probs.take_fn(now.node, rows)
    chain = draft._replace(tokens=followed(draft.tokens), num=now.num)
    coins = noise._replace(accept=followed(noise.accept))
    verdict = block.decide(probs.take_fn(at, rows)(p), now.q, chain, coins)
    last = probs.take_fn(verdict.num_accepted)(at)
    path, n = traversal.path_to(jnp.pad(parent + 1, ((0, 0), (1, 0))), last)
    chance = jnp.take_along_axis(verdict.accept_prob, now.level, axis=1)
    chance = jnp.where(now.level >= 0, chance, 0.0)
    residual = verdict.residual if keep_residual else None
    return Verdict(n, verdict.tokens, chance, path, residual)


def best_child_law(p: Array, q: Array, count: Array) -> tuple[Array, Array]:
    """Returns the rank of each id by p / q, and q' of the best of `count` draws.

    Args:
      p: [B, V], target probabilities.
      q: [B, V], drafter probabilities.
      count: [B], the number M of children.

    Returns:
      (rank, q'), [B, V] each. Of two ids with equal p / q the larger id ranks higher.
    """
    ratio = jnp.where(q > 0, p / jnp.where(q > 0, q, 1.0), -1.0)
    order = jnp.argsort(ratio, axis=1)
    rank = jnp.argsort(order, axis=1)
    ascending = jnp.take_along_axis(q, order, axis=1)
    high = jnp.cumsum(ascending, axis=1)
    whole = high[:, -1:]
    high, low = high / whole, (high - ascending) / whole

    # H^M - L^M = (H - L) (H^(M - 1) + H^(M - 2) L + .. + L^(M - 1)): no digits cancel.
    def add_term(m: Array, sums: tuple) -> tuple:
        total, power = sums
        on = (m < count)[:, None]
        power = power * low
        return jnp.where(on, total * high + power, total), power

    ones = jnp.ones_like(low)
    most = jnp.maximum(jnp.max(count), 1)
    total = jax.lax.fori_loop(1, most, add_term, (ones, ones))[0]
    return rank, jnp.take_along_axis(ascending / whole * total, rank, axis=1)


verifier = Verifier(token.noise, verify, siblings=("with",))
