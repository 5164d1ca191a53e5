"""What tokens see where a call is a tree: its slots apart from its positions.

A slot holds position `held` of a chain, less than 0 if it is empty. In a call
that begins at `start`, the slot of a tree's token j is that of a chain's j-th
token. Of a tree of M tokens a call reads the last T.
Axes: B rows, T tokens of one call, M of the tree so far, S slots attended to.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from specjax.types import Branches


def positions_of(start: Array, count: int, branches: Branches | None) -> Array:
    """Of a call's tokens, [B, T]; start: [B]."""
    if branches is None:
        return start[:, None] + jnp.arange(count)
    return first_slot(branches, start)[:, None] + branches.depth[:, -count:]


def first_slot(branches: Branches, start: Array) -> Array:
    """The slot of a tree's first token, [B], where the call begins in `start` [B]."""
    _, count, whole = branches.sees.shape
    return start if whole == count else start - (whole - count)


def embed_positions(table: Array, positions: Array) -> Array:
    """Vectors of learned positions: [P, E] at [B, T] -> [B, T, E]. A buffer is longer
    than what a model knows by what a step may write beyond a text's end. Such a token
    is never kept, and stands at the last position."""
    return table[jnp.clip(positions, 0, table.shape[0] - 1)]


def visible_slots(branches: Branches, start: Array, held: Array) -> Array:
    """Which slots each token sees: [B, T, S] bool. start: [B], held: [B or 1, S]."""
    index = held - first_slot(branches, start)[:, None]  # of a token in the tree
    last = branches.sees.shape[2] - 1
    inside = jnp.clip(index, 0, last)[:, None]
    of_call = jnp.take_along_axis(branches.sees, inside, axis=2)
    before = (index < 0) & (held >= 0)
    return before[:, None] | (of_call & ((0 <= index) & (index <= last))[:, None])


def positions_of_slots(branches: Branches, start: Array, held: Array) -> Array:
    """Of what lies in each slot, [B, S]: a tree's tokens stand at their depth."""
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
    """None for a chain. slots: S, of a cache that keeps all; None without one, where a
    call's tokens see each other alone."""
    if branches is None:
        return None
    if slots is None:
        held = start[:, None] + jnp.arange(branches.depth.shape[1])
    else:
        held = jnp.arange(slots)[None]
    over = branches, start, held
    return Tree(start, visible_slots(*over), positions_of_slots(*over))
