"""Drafts that branch: each drafted token has a parent that it follows.

A node is a drafted token. Parents come before their children, and siblings are in the
order in which they were drawn; nodes that follow the last committed token have the
parent -1. In the target's call that token is row 0 and node i is row i + 1 (Miao et al.
2024, https://arxiv.org/abs/2305.09781, Section 4). Axes: B rows, G nodes.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.types import Branches, Draft, Drafter, Model, Verdict, Verifier

ROOT = -1


def parents(draft: Draft) -> Array:
    """Returns the parent of each node, [B, G] int32; without any, those of a chain."""
    if draft.parent is not None:
        return draft.parent
    chain = jnp.arange(draft.tokens.shape[1], dtype=jnp.int32) - 1
    return jnp.broadcast_to(chain, draft.tokens.shape)


def branches(parent: Array) -> Branches:
    """Returns the `Branches` of a call on the last committed token and the nodes.

    They are those of G + 1 tokens.
    """
    rows = jnp.pad(
        parent + 1, ((0, 0), (1, 0))
    )  # the parent row of each row; row 0 is its own
    size = rows.shape[1]
    sees = jax.nn.one_hot(rows, size, dtype=jnp.int32) + jnp.eye(size, dtype=jnp.int32)
    for _ in range(size.bit_length()):  # each turn doubles the length of the paths
        sees = jnp.minimum(sees @ sees, 1)
    return Branches(sees.sum(-1) - 1, sees > 0)


def depths(parent: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the number of tokens on the path to each node, including itself: [G]."""
    depth: list[int] = []
    for above in parent:
        depth.append(1 if above == ROOT else depth[above] + 1)
    return np.array(depth, int)


def check(parent: Sequence[int]) -> None:
    """Raises ValueError unless every parent comes before its child."""
    wrong = [i for i, above in enumerate(parent) if not ROOT <= above < i]
    if wrong or not len(parent):
        raise ValueError(
            f"{tuple(parent)} is not a tree: the parent of each node must be a node"
            " before it, or -1 for the last committed token"
        )


def next_child(parent: Array, live: Array, at: Array, after: Array) -> Array:
    """Returns the first live node after `after` [B] with parent `at` [B], G if none."""
    size = parent.shape[1]
    index = jnp.arange(size, dtype=jnp.int32)
    child = (parent == at[:, None]) & live & (index > after[:, None])
    return jnp.min(jnp.where(child, index, size), axis=1, initial=size)


def is_leaf(draft: Draft, at: Array) -> Array:
    """Returns whether nothing was drafted after node `at` [B]: [B] bool."""
    parent, size = parents(draft), draft.tokens.shape[1]
    live = jnp.arange(size) < draft.num[:, None]
    return next_child(parent, live, at, jnp.full_like(at, ROOT)) == size


def last_node(path: Array, count: Array) -> Array:
    """Returns the last node of a path [B, G] with `count` [B] nodes, -1 for none."""
    if not path.shape[1]:
        return jnp.full_like(count, ROOT)
    at = jnp.maximum(count - 1, 0)[:, None]
    return jnp.where(count > 0, jnp.take_along_axis(path, at, axis=1)[:, 0], ROOT)


def kept_nodes(verdict: Verdict, depth: int) -> Array:
    """Returns the first `depth` nodes of a verdict's path, [B, D].

    Entries beyond the accepted nodes are their own index, as `Model.keep` requires.
    """
    assert verdict.path is not None  # as of trees
    path = verdict.path[:, :depth]
    index = jnp.arange(path.shape[1], dtype=path.dtype)
    return jnp.where(index < verdict.num_accepted[:, None], path, index)


def order_by_path(verdict: Verdict) -> Array:
    """Returns the accepted nodes in their order, then all other nodes: [B, G]."""
    assert verdict.path is not None  # as of trees
    path, size = verdict.path, verdict.path.shape[1]
    index = jnp.arange(size)
    on = index < verdict.num_accepted[:, None]
    put = jax.vmap(lambda row, at, on: row.at[jnp.where(on, at, size)].set(index))
    rank = put(jnp.broadcast_to(size + index, path.shape), path, on)
    return jnp.argsort(rank, axis=1)


def rows_on_path(rows: Any, verdict: Verdict) -> Any:
    """Returns the rows of a call that precede each token of a verdict, [B, G + 1, ...].

    They are the call's own rows for a chain, and those on the path for a tree; of an
    array, or of each leaf of a pytree.
    """
    if verdict.path is None:
        return rows
    at = jnp.pad(verdict.path + 1, ((0, 0), (1, 0)))

    def take(leaf: Array) -> Array:
        index = at.reshape(*at.shape, *[1] * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, index, 1)

    return jax.tree.map(take, rows)


def check_parts(target: Model, drafter: Drafter, verifier: Verifier) -> None:
    """Raises ValueError if the drafter's trees do not fit the verifier or the target.

    The verifier may keep chains only, or be exact only for siblings drawn in another
    way; the target's cache may not be able to keep a path. The same for a drafter that
    reads the target's features, where the target has none.
    """
    if drafter.needs_features and target.hidden is None:
        raise ValueError(
            "the draft is a head that reads the target's hidden states, and the target"
            " has no `hidden` that gives them: name a target of a known family"
        )
    if drafter.siblings is None:
        return
    if drafter.siblings not in verifier.siblings:
        verified = ", ".join(verifier.siblings) or "chains only"
        raise ValueError(
            f"the draft is a tree whose siblings are drawn {drafter.siblings!r}, and"
            f" the rule verifies {verified}: use the rule recursive, traversal or"
            " match, or recursive_replaced for siblings drawn with replacement or by"
            " several drafters"
        )
    if target.keep is None:
        raise ValueError(
            "the target cannot keep a path of a tree: it has no `keep`; draft chains"
        )
