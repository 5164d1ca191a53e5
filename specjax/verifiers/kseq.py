"""K-SEQ: tries siblings in turn by one acceptance for all, chosen for their number.

Of K children drawn independently each is accepted with probability min(1, p / (rho q)).
The least rho for which what is left of p is a law solves 1 - (1 - b)^K = rho b, where b
= sum_x min(q, p / rho) (Sun et al. 2023, https://arxiv.org/abs/2310.15141, Section 5).
It knows at a node what recursive rejection learns child by child. On a chain it is
Algorithm 1. p is the target, q the drafter. Axes: B rows, G nodes, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs, trees
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import recursive, token

HALVINGS = 40  # of an interval of at most G, in which rho lies


class Node(NamedTuple):
    """What is decided on at a node. p, q [B, V]: the laws after it; rho [B]; count [B]:
    K, its children."""

    p: Array
    q: Array
    rho: Array
    count: Array


class Walk(NamedTuple):
    """Where each row is. at: [B] the node whose children are tried; child [B]: the one
    to be tried, G for none. n, path, chance: as in `recursive.Walk`."""

    at: Array
    child: Array
    node: Node
    n: Array
    path: Array
    chance: Array


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """As `verifiers.recursive`, of siblings that were drawn with replacement."""
    if draft.parent is None:
        return token.verify(target, draft, noise, keep_residual)
    parent, (batch, size) = draft.parent, draft.tokens.shape
    rows, live = jnp.arange(batch), jnp.arange(size) < draft.num[:, None]

    def looked_at(at: Array, child: Array) -> Node:
        p = probs.dense(probs.take(target, at + 1))
        q = recursive.law_of(draft, child, p.shape[-1])
        count = ((parent == at[:, None]) & live).sum(1)
        return Node(p, q, solved(p, q, count), count)

    def step(walk: Walk) -> Walk:
        active, node = walk.child < size, walk.node
        child = jnp.minimum(walk.child, size - 1)
        x = draft.tokens[rows, child]
        p_x, scaled = node.p[rows, x], node.rho * node.q[rows, x]
        down = active & (noise.accept[rows, child] * scaled < p_x)
        at = jnp.where(down, child, walk.at)
        after = jnp.where(active, trees.next_child(parent, live, at, child), size)
        below = looked_at(at, after)
        node = jax.tree.map(
            lambda a, b: jnp.where(down.reshape(-1, *[1] * (a.ndim - 1)), a, b),
            below,
            node,
        )
        put = jnp.where(down, walk.n, size)
        path = walk.path.at[rows, put].set(child, mode="drop")
        ratio = jnp.minimum(1.0, p_x / jnp.where(scaled > 0, scaled, 1.0))
        put = jnp.where(active, child, size)
        chance = walk.chance.at[rows, put].set(ratio, mode="drop")
        return Walk(at, after, node, walk.n + down, path, chance)

    root = jnp.full(batch, trees.ROOT, jnp.int32)
    child = trees.next_child(parent, live, root, root)
    path = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (batch, size))
    node = looked_at(root, child)
    chance = jnp.zeros((batch, size), node.p.dtype)
    walk = Walk(root, child, node, jnp.zeros(batch, jnp.int32), path, chance)
    if size:
        going = lambda walk: (walk.child < size).any()  # noqa: E731
        walk = jax.lax.while_loop(going, step, walk)
    weights = rest(walk.node)
    tokens = recursive.along(
        draft, walk.path, walk.n, probs.pick(weights, noise.sample)
    )
    residual = weights if keep_residual else None
    return Verdict(walk.n, tokens, walk.chance, walk.path, residual)


def overlap(p: Array, q: Array, rho: Array) -> Array:
    """b [B] = sum_x min(q, p / rho): the chance that one child is accepted."""
    return jnp.minimum(1.0, jnp.minimum(q, p / rho[:, None]).sum(-1))


def any_of(b: Array, count: Array) -> Array:
    """1 - (1 - b)^K [B]: the chance that any of K children is."""
    some = -jnp.expm1(jnp.maximum(count, 1) * jnp.log1p(-b))
    return jnp.where(count > 0, some, 0.0)


def solved(p: Array, q: Array, count: Array) -> Array:
    """rho [B], from 1 to K: what is found is never less than the root, so that what is
    left of p is never negative."""

    def halve(_, ends: tuple) -> tuple:
        low, high = ends
        middle = (low + high) / 2
        b = overlap(p, q, middle)
        beyond = any_of(b, count) <= middle * b
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    one = jnp.ones(len(p), p.dtype)
    ends = one, jnp.maximum(one, count)
    high = jax.lax.fori_loop(0, HALVINGS, halve, ends)[1]
    return jnp.where(any_of(overlap(p, q, one), count) <= overlap(p, q, one), one, high)


def rest(node: Node) -> Array:
    """p - min(q, p / rho) (1 - (1 - b)^K) / b [B, V], of the children that were all
    rejected; p where there is none, or where rounding leaves nothing of it."""
    b = overlap(node.p, node.q, node.rho)
    share = any_of(b, node.count) / jnp.where(b > 0, b, 1.0)
    taken = jnp.minimum(node.q, node.p / node.rho[:, None]) * share[:, None]
    left = jnp.maximum(node.p - taken, 0.0)
    left = jnp.where(left.any(1, keepdims=True), left, node.p)
    return left


verifier = Verifier(token.noise, verify, siblings=("with",))
