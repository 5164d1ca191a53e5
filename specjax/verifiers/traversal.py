"""Traversal verification: decides on whole paths of a tree, from the leaves up.

Weng et al. (2025), https://arxiv.org/abs/2505.12398. A node is decided after all of its
descendants were rejected, with the probability that they left over, so a path can be
kept that a rule working from the root down would have given up. It is as exact as
recursive rejection, and on a chain it is block verification. It reads every row of both
distributions.

p is the target, q the drafter, and w the probability that a node is kept given its
path, as in `verifiers.block`. Axes: B rows, G nodes, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs, trees
from specjax.native import laws
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import block, recursive, token


class Walk(NamedTuple):
    """The position of each row in its tree.

    Attributes:
      at: [B], row of the call, 0 for the root.
      child: [B], the child of that node to visit next, G for none.
      w: [B, G + 1], the probability that each row of the call is kept.
      r, q: [B, G + 1, V], for each row the target's distribution less what was rejected
        below it, and the distribution of its next child.
      done: [B] bool.
      chance: [B, G], `Verdict.accept_prob` of the decided nodes.
    """

    at: Array
    child: Array
    w: Array
    r: Array
    q: Array
    done: Array
    chance: Array


def build(with_replacement: bool = False) -> Verifier:
    """Returns the verifier for siblings drawn with or without replacement."""

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """Decides as `verifiers.recursive` does, but from the leaves up.

        The noise must be fresh in every iteration, as for `verifiers.block`.
        """
        if draft.parent is None:
            return block.verify(target, draft, noise, keep_residual)
        if keep_residual:
            return decide(target, draft, noise)
        trial, parent = token.trial(target, draft), draft.parent
        of = laws.TreeOperands(trial, parent, noise.accept, noise.sample)
        path, n, chance, extra = laws.traversal(_decide, of, with_replacement)
        return Verdict(n, recursive.path_tokens(draft, path, n, extra), chance, path)

    def _decide(of: laws.TreeOperands) -> list[Array]:
        target, law, tokens, num = of.trial
        draft = Draft(tokens, num, law, of.parent)
        verdict = decide(target, draft, token.Noise(of.accept, of.u))
        n, path = verdict.num_accepted, verdict.path
        assert path is not None  # as of trees
        extra = jnp.take_along_axis(verdict.tokens, n[:, None], axis=1)[:, 0]
        return [path, n, verdict.accept_prob, extra]

    def decide(target: Law, draft: Draft, noise: token.Noise) -> Verdict:
        """Returns the verdict with its residual."""
        assert draft.parent is not None
        parent, (batch, size) = draft.parent, draft.tokens.shape
        rows, live = jnp.arange(batch), jnp.arange(size) < draft.num[:, None]
        above = jnp.pad(parent + 1, ((0, 0), (1, 0)))  # the parent rows
        tokens = jnp.pad(draft.tokens, ((0, 0), (1, 0)))

        def next_child(row: Array, after: Array) -> Array:
            return trees.next_child(parent, live, row - 1, after)

        def step(walk: Walk) -> Walk:
            at, child = walk.at, walk.child
            # Down to the next child: w min(1, r(x) / q(x)) of its parent's w and r.
            down = (child < size) & ~walk.done
            row = jnp.where(down, child + 1, at)
            x = tokens[rows, row]
            q = recursive.proposal(probs.take_fn(at, rows)(walk.q), x)
            ratio = walk.r[rows, at, x] / q[rows, x]
            w = jnp.minimum(1.0, walk.w[rows, at] * ratio)
            w = walk.w.at[rows, row].set(jnp.where(down, w, walk.w[rows, row]))
            # No child is left: keep the path to here while u < w; the root's w is 1.
            decided = ~down & ~walk.done
            u = noise.accept[rows, jnp.maximum(at - 1, 0)]
            kept = decided & ((at == 0) | (u < walk.w[rows, at]))
            put = jnp.where(decided & (at > 0), at - 1, size)
            chance = walk.chance.at[rows, put].set(walk.w[rows, at], mode="drop")
            # Back to its parent: s = max(0, w r - q), w = S / (S + 1 - w), S = sum s.
            back = decided & ~kept
            up = above[rows, at]
            y = tokens[rows, at]
            of_up = probs.take_fn(up, rows)
            q = recursive.proposal(of_up(walk.q), y)
            w_up, r_up = walk.w[rows, up], of_up(walk.r)
            s = jnp.maximum(w_up[:, None] * r_up - q, 0.0)
            mass = s.sum(-1)
            below = mass + (1 - w_up)  # mass + 1 would round a small mass away
            rest = jnp.where(below > 0, mass / jnp.where(below > 0, below, 1.0), 1.0)
            some = mass[:, None] > 0
            less = jnp.where(some, s / jnp.where(some, mass[:, None], 1.0), r_up)
            further = of_up(walk.q)
            further = further if with_replacement else recursive.exclude(further, y)
            put = probs.put_fn(jnp.where(back, up, size + 1), rows)
            w = put(w, jnp.where(up == 0, 1.0, rest))
            r, q = put(walk.r, less), put(walk.q, further)
            after = jnp.where(back, at - 1, trees.ROOT)
            at = jnp.where(back, up, row)
            child = next_child(at, after)
            return Walk(at, child, w, r, q, walk.done | kept, chance)

        walk = initial_walk(target, draft, live)
        if size:
            walk = jax.lax.while_loop(lambda walk: ~walk.done.all(), step, walk)
        path, n = path_to(above, walk.at)
        weights = probs.take_fn(walk.at, rows)(walk.r)
        extra = probs.pick(weights, noise.sample)
        kept = recursive.path_tokens(draft, path, n, extra)
        return Verdict(n, kept, walk.chance, path, weights)

    kinds = "with" if with_replacement else "without", "certain"
    return Verifier(token.noise, verify, siblings=kinds)


def initial_walk(target: Law, draft: Draft, live: Array) -> Walk:
    """Returns the walk at the root, before anything is decided."""
    (batch, size), r = draft.tokens.shape, probs.dense(target)
    assert draft.parent is not None
    parent, rows = draft.parent, jnp.arange(batch)
    q = jnp.zeros_like(r)
    for node in reversed(range(size)):  # a row has the law of its first child
        if draft.law is not None:
            put = probs.put_fn(parent[:, node] + 1, rows)
            q = put(q, probs.dense(probs.take(draft.law, jnp.full(batch, node))))
    at, chance = jnp.zeros(batch, jnp.int32), jnp.zeros((batch, size), r.dtype)
    child = trees.next_child(parent, live, at - 1, at - 1)
    w = jnp.ones((batch, size + 1), r.dtype)
    return Walk(at, child, w, r, q, jnp.zeros(batch, bool), chance)


def path_to(above: Array, row: Array) -> tuple[Array, Array]:
    """Returns the nodes from the root to a row [B] of the call, and their number.

    The results are [B, G] and [B]. above: [B, G + 1], the parent row of each row.
    """
    batch, count = above.shape
    rows, size = jnp.arange(batch), count - 1
    upwards = []
    for _ in range(size):
        upwards.append(row - 1)
        row = jnp.where(row > 0, above[rows, row], 0)
    if not upwards:
        return jnp.zeros((batch, 0), jnp.int32), jnp.zeros(batch, jnp.int32)
    nodes = jnp.stack(upwards, axis=1)  # from the row upwards, then -1
    n = (nodes >= 0).sum(1).astype(jnp.int32)
    index = jnp.arange(size, dtype=jnp.int32)
    turned = jnp.take_along_axis(nodes, jnp.maximum(n[:, None] - 1 - index, 0), axis=1)
    return jnp.where(index < n[:, None], turned, index), n


verifier = build()
