"""K-SEQ: tries siblings in turn by one acceptance rule that depends on their number.

Sun et al. (2023), https://arxiv.org/abs/2310.15141, Section 5. Each of K children drawn
independently is accepted with probability min(1, p / (rho q)). The smallest rho for
which the rest of p is a distribution solves 1 - (1 - b)^K = rho b, where b = sum_x
min(q, p / rho). Recursive rejection adapts child by child; K-SEQ decides once per node.
On a chain it is Algorithm 1.

p is the target, q the drafter. Axes: B rows, G nodes, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs, trees
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import recursive, token


class Node(NamedTuple):
    """The quantities that decide among the children of each node.

    p, q: [..., V], target and drafter probabilities after the node.
    rho: [...], the divisor of the acceptance ratio.
    children: [...], K, how many there are.
    """

    p: Array
    q: Array
    rho: Array
    children: Array


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """Decides as `verifiers.recursive` does, on siblings drawn with replacement."""
    if draft.parent is None:
        return token.verify(target, draft, noise, keep_residual)
    parent, (batch, size) = draft.parent, draft.tokens.shape
    rows, live = jnp.arange(batch), jnp.arange(size) < draft.num[:, None]
    nodes = node_laws(target, draft, live)
    # min(1, p(x) / (rho q(x))) of each node after its parent, and its test.
    above = rows[:, None], parent + 1
    p_x = nodes.p[(*above, draft.tokens)]
    scaled = nodes.rho[above] * nodes.q[(*above, draft.tokens)]
    accepted = (noise.accept * scaled < p_x) & live
    ratio = jnp.minimum(1.0, p_x / jnp.where(scaled > 0, scaled, 1.0))

    def step(walk: tuple) -> tuple:
        at, child, n, path, chance = walk
        active = child < size
        tried = jnp.minimum(child, size - 1)
        down = active & accepted[rows, tried]
        at = jnp.where(down, tried, at)
        path = path.at[rows, jnp.where(down, n, size)].set(tried, mode="drop")
        put = jnp.where(active, tried, size)
        chance = chance.at[rows, put].set(ratio[rows, tried], mode="drop")
        after = trees.next_child(parent, live, at, tried)
        return at, jnp.where(active, after, size), n + down, path, chance

    root = jnp.full(batch, trees.ROOT, jnp.int32)
    path = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (batch, size))
    first = trees.next_child(parent, live, root, root)
    walk = (root, first, root * 0, path, jnp.zeros_like(ratio))
    going = lambda walk: (walk[1] < size).any()  # noqa: E731
    at, _, n, path, chance = jax.lax.while_loop(going, step, walk)
    weights = residual_weights(jax.tree.map(lambda leaf: leaf[rows, at + 1], nodes))
    tokens = recursive.path_tokens(draft, path, n, probs.pick(weights, noise.sample))
    residual = weights if keep_residual else None
    return Verdict(n, tokens, chance, path, residual)


def node_laws(target: Law, draft: Draft, live: Array) -> Node:
    """Returns the `Node` of every row of the call, [B, G + 1], over its live
    children."""
    size = draft.tokens.shape[1]
    assert draft.parent is not None and draft.law is not None
    below = draft.parent[:, None] == jnp.arange(-1, size)[:, None]
    below &= live[:, None]
    first, count = jnp.argmax(below, axis=2), below.sum(2)
    q = jnp.take_along_axis(probs.dense(draft.law), first[..., None], axis=1)
    p = probs.dense(target)
    return Node(p, q, solve_rho(p, q, count), count)


def overlap(p: Array, q: Array, rho: Array) -> Array:
    """Returns b [...] = sum_x min(q, p / rho), the probability that a child is
    accepted."""
    return jnp.minimum(1.0, jnp.minimum(q, p / rho[..., None]).sum(-1))


def any_accepted(b: Array, count: Array) -> Array:
    """Returns 1 - (1 - b)^K [...], the probability that one of K children is
    accepted."""
    some = -jnp.expm1(jnp.maximum(count, 1) * jnp.log1p(-b))
    return jnp.where(count > 0, some, 0.0)


def solve_rho(p: Array, q: Array, count: Array) -> Array:
    """Returns rho [...] in 1 .. K, by bisection.

    The result is never below the root, so that what is left of p is not negative.
    """

    def halve_interval(_: Any, ends: tuple) -> tuple:
        low, high = ends
        middle = (low + high) / 2
        b = overlap(p, q, middle)
        beyond = any_accepted(b, count) <= middle * b
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    one = jnp.ones(count.shape, p.dtype)
    ends = one, jnp.maximum(one, count)
    halvings = jnp.finfo(p.dtype).nmant + 4  # end at two neighbouring numbers
    high = jax.lax.fori_loop(0, halvings, halve_interval, ends)[1]
    b = overlap(p, q, one)
    return jnp.where(any_accepted(b, count) <= b, one, high)


def residual_weights(node: Node) -> Array:
    """Returns the part of p that is left after all children were rejected, [..., V].

    It is p - min(q, p / rho) (1 - (1 - b)^K) / b; p where there are no children, or
    where rounding leaves nothing.
    """
    p, q, rho, count = node
    b = overlap(p, q, rho)
    share = any_accepted(b, count) / jnp.where(b > 0, b, 1.0)
    left = jnp.maximum(p - jnp.minimum(q, p / rho[..., None]) * share[..., None], 0.0)
    return jnp.where(left.any(-1, keepdims=True), left, p)


verifier = Verifier(token.noise, verify, siblings=("with",))
