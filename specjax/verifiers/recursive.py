"""Recursive rejection: Algorithm 1 among the children of each node, from the root down.

The i-th child is accepted with probability min(1, r(x) / q_i(x)). r starts as the
target's distribution and becomes norm(max(0, r - q_i)) when a child is rejected (Miao
et al. 2024, https://arxiv.org/abs/2305.09781, Algorithm 2). Siblings are drawn without
replacement: q_{i+1} is q_i without the i-th child, normalized again (Chen et al. 2024,
https://arxiv.org/abs/2402.12374, Algorithm 1). On a chain it is Algorithm 1.

p is the target, q the drafter. Axes: B rows, G nodes, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs, trees
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import token


class Walk(NamedTuple):
    """The position of each row in its tree.

    Attributes:
      at: [B], the node whose children are tried, -1 for the root.
      child: [B], the child to try next, G for none.
      r, q: [B, V], the target's distribution at the node less what was rejected, and
        the distribution of the next child.
      n, path: [B] and [B, G], the number of accepted nodes and the nodes.
      chance: [B, G], `Verdict.accept_prob`.
    """

    at: Array
    child: Array
    r: Array
    q: Array
    n: Array
    path: Array
    chance: Array


def build(with_replacement: bool = False) -> Verifier:
    """Returns the verifier for siblings drawn with or without replacement."""

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """Decides as `verifiers.token.verify` does; the kept nodes are the verdict's
        path.

        A child whose own law gives it probability 0 was not drawn from that law. It
        counts as certain, and is judged by a law with all mass on it; so are all
        children of a draft without a law.
        """
        if draft.parent is None:
            return token.verify(target, draft, noise, keep_residual)
        parent, (batch, size) = draft.parent, draft.tokens.shape
        rows, live = jnp.arange(batch), jnp.arange(size) < draft.num[:, None]

        def next_child(at: Array, after: Array) -> Array:
            return trees.next_child(parent, live, at, after)

        def has_siblings(walk: Walk) -> Array:
            return (walk.child < size).any()

        def step(walk: Walk) -> Walk:
            active = walk.child < size
            child = jnp.minimum(walk.child, size - 1)
            x = draft.tokens[rows, child]
            q = proposal(walk.q, x)
            # Accept while u < r(x) / q_i(x), multiplied out as in Algorithm 1.
            r_x, q_x = walk.r[rows, x], q[rows, x]
            accepted = noise.accept[rows, child] * q_x < r_x
            down, on = active & accepted, active & ~accepted
            at = jnp.where(down, child, walk.at)
            after = next_child(at, child)
            p = probs.dense(probs.take(target, jnp.where(down, child + 1, 0)))
            r = jnp.where(on[:, None], residual_law(walk.r, q), walk.r)
            r = jnp.where(down[:, None], p, r)
            further = node_law(draft, after, r.shape[-1])
            if not with_replacement:  # the law of the first sibling, less others
                further = jnp.where(down[:, None], further, exclude(walk.q, x))
            q = jnp.where(active[:, None], further, walk.q)
            put = jnp.where(down, walk.n, size)
            path = walk.path.at[rows, put].set(child, mode="drop")
            ratio = jnp.minimum(1.0, r_x / q_x)
            put = jnp.where(active, child, size)
            chance = walk.chance.at[rows, put].set(ratio, mode="drop")
            child = jnp.where(active, after, size)
            return Walk(at, child, r, q, walk.n + down, path, chance)

        walk = initial_walk(target, draft, next_child)
        if size:
            walk = jax.lax.while_loop(has_siblings, step, walk)
        extra = probs.pick(walk.r, noise.sample)
        tokens = path_tokens(draft, walk.path, walk.n, extra)
        residual = walk.r if keep_residual else None
        return Verdict(walk.n, tokens, walk.chance, walk.path, residual)

    kinds = ("with", "own") if with_replacement else ("without",)
    return Verifier(token.noise, verify, siblings=(*kinds, "certain"))


def initial_walk(target: Law, draft: Draft, next_child: Any) -> Walk:
    """Returns the walk at the root, before any child is tried."""
    batch, size = draft.tokens.shape
    root = jnp.full(batch, trees.ROOT, jnp.int32)
    child = next_child(root, root)
    r = probs.dense(probs.take(target, jnp.zeros(batch, jnp.int32)))
    path = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (batch, size))
    chance = jnp.zeros((batch, size), r.dtype)
    zero = jnp.zeros(batch, jnp.int32)
    return Walk(root, child, r, node_law(draft, child, r.shape[-1]), zero, path, chance)


def node_law(draft: Draft, node: Array, vocab: int) -> Array:
    """Returns q [B, V], the law of a node without siblings before it; 0 if the node is
    certain."""
    size = draft.tokens.shape[1]
    if draft.law is None or not size:
        return jnp.zeros((node.shape[0], vocab))
    return probs.dense(probs.take(draft.law, jnp.minimum(node, size - 1)))


def proposal(q: Array, x: Array) -> Array:
    """Returns the law [B, V] by which child x [B] is judged: q, or certainty if q(x) =
    0."""
    certain = q[jnp.arange(x.size), x] <= 0
    sure = jax.nn.one_hot(x, q.shape[-1], dtype=q.dtype)
    return jnp.where(certain[:, None], sure, q)


def residual_law(r: Array, q: Array) -> Array:
    """Returns norm(max(0, r - q)) [B, V], or r where rounding leaves nothing."""
    left = jnp.maximum(r - q, 0.0)
    mass = left.sum(-1, keepdims=True)
    return jnp.where(mass > 0, left / jnp.where(mass > 0, mass, 1.0), r)


def exclude(q: Array, x: Array) -> Array:
    """Returns q [B, V] conditioned on any id other than x [B]; 0 where q has no other
    id."""
    left = q.at[jnp.arange(x.size), x].set(0.0)
    mass = left.sum(-1, keepdims=True)
    return left / jnp.where(mass > 0, mass, 1.0)


def path_tokens(draft: Draft, path: Array, n: Array, extra: Array) -> Array:
    """Returns `Verdict.tokens` [B, G + 1]: the path's first n nodes, then `extra`."""
    tokens = jnp.take_along_axis(draft.tokens, path, axis=1)
    return token.emit(draft._replace(tokens=tokens), n, extra)


verifier = build()
