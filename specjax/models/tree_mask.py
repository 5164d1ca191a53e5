"""The slots that tokens see in a call on a tree, whose positions differ from its slots.

A slot holds position `held` of a chain, less than 0 if it is empty. In a call that
begins at `start`, the slot of a tree's token j is that of a chain's j-th token. A call
reads the last T tokens of a tree of M.
Axes: B rows, T tokens of one call, M of the tree so far, S slots attended to.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from specjax.native.embed import take_rows
from specjax.types import Branches


def token_positions(start: Array, count: int, branches: Branches | None) -> Array:
    """Returns the positions of a call's tokens, [B, T]; start: [B]."""
    if branches is None:
        return start[:, None] + jnp.arange(count)
    return first_slot(branches, start)[:, None] + branches.depth[:, -count:]


def first_slot(branches: Branches, start: Array) -> Array:
    """Returns the slot of a tree's first token, [B], for a call that begins in slot
    `start` [B]."""
    _, count, whole = branches.sees.shape
    return start if whole == count else start - (whole - count)


def parent_indices(branches: Branches) -> Array:
    """Returns the index of each token's parent in its tree, [B, T]; -1 where the parent
    is the text before the tree."""
    depth, sees = branches.depth, branches.sees
    own = depth[:, -sees.shape[1] :, None]
    above = sees & (depth[:, None, :] == own - 1)
    return jnp.where(above.any(-1), jnp.argmax(above, axis=-1), -1)


def embed_positions(table: Array, positions: Array) -> Array:
    """Returns the vectors of learned positions: [P, E] at [B, T] -> [B, T, E].

    A buffer may be longer than the positions that a model knows, since a step may write
    beyond a text's end. Such a token is never kept, and stands at the last position.
    """
    return take_rows(table, jnp.clip(positions, 0, table.shape[0] - 1))


def visible_slots(branches: Branches, start: Array, held: Array) -> Array:
    """Returns whether each token sees each slot, [B, T, S] bool. start: [B]. held: the
    position in each slot, [B or 1, S]."""
    index = held - first_slot(branches, start)[:, None]  # of a token in the tree
    last = branches.sees.shape[2] - 1
    inside = jnp.clip(index, 0, last)[:, None]
    of_call = jnp.take_along_axis(branches.sees, inside, axis=2)
    before = (index < 0) & (held >= 0)
    return before[:, None] | (of_call & ((0 <= index) & (index <= last))[:, None])


def positions_of_slots(branches: Branches, start: Array, held: Array) -> Array:
    """Returns the position of the token in each slot, [B, S]; that of a tree's token
    follows from its depth."""
    begin = first_slot(branches, start)[:, None]
    index = held - begin
    last = branches.depth.shape[1] - 1
    depth = jnp.take_along_axis(branches.depth, jnp.clip(index, 0, last), axis=1)
    of_tree = (0 <= index) & (index <= last)
    return jnp.where(of_tree, begin + depth, held)


class Tree(NamedTuple):
    """The branches of a call, laid over the slots that its tokens attend to.

    start: [B], the slot of the first token. mask: [B, T, S], see `visible_slots`.
    stands: [B, S], see `positions_of_slots`."""

    start: Array
    mask: Array
    stands: Array


def tree_over_slots(
    branches: Branches | None, start: Array, slots: int | None
) -> Tree | None:
    """Returns a call's tree laid over the slots, or None for a chain.

    slots: S, of a cache that keeps all; None without a cache, where a call's tokens see
    each other alone.
    """
    if branches is None:
        return None
    if slots is None:
        held = start[:, None] + jnp.arange(branches.depth.shape[1])
    else:
        held = jnp.arange(slots)[None]
    mask = visible_slots(branches, start, held)
    return Tree(start, mask, stands=positions_of_slots(branches, start, held))
