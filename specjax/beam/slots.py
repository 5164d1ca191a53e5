"""The place of beams in a cache: all beams of a text are one tree in one row of it.

A prompt ends in slot `base`. The beams of each level, of which the first is the last
token of the prompt, lie in W slots one after the other: level l from slot base + W l
on, at position base + l. So beams share what they have in common, a step moves nothing,
and the prompt lies there once. A call reads the running beams, W tokens, and then the
drafted levels, of U tokens each; what is kept of these is moved to its own level's W
slots, and the rest is written over. A model reads such a call as one tree over its
whole cache.
Axes: B rows, T tokens of a call, W running and U drafted beams, S slots.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.types import Branches


class Place(NamedTuple):
    """The place of a row's running beams, whose last tokens no model has read yet.

    base [B]: slot of the prompt's last token. level [B]: of the running beams. path
    [B, W, S] bool: slots with the text of each before its last token.
    """

    base: Array
    level: Array
    path: Array


def needed_slots(prompt: int, *, most: int, width: int, drafted: int) -> int:
    """Returns how many slots a cache needs for prompts of `prompt` tokens, texts of
    `most` new ones, and calls on `drafted` tokens in addition to the running beams."""
    return prompt + width * most + drafted


def initial_place(length: Array, width: int, slots: int) -> Place:
    """Returns the place after prompts of these lengths [B]."""
    base = length - 1
    path = jnp.arange(slots) < base[:, None]
    path = jnp.broadcast_to(path[:, None], (length.size, width, slots))
    return Place(base, jnp.zeros_like(base), path)


def first_slot(place: Place) -> Array:
    """Returns the slot of the first running beam, [B]: a call begins there."""
    return place.base + place.path.shape[1] * place.level


def extend(path: Array, parent: Array, slot: Array) -> Array:
    """Returns the paths [B, K, S] of children of beams with paths [B, W, S].

    parent: [B, K], the beam that each goes on from. slot: [B, W], where that beam's
    last token lies.
    """
    here = jnp.arange(path.shape[2]) == slot[..., None]
    return jax.vmap(lambda row, at: row[at])(path | here, parent)


def branches(place: Place, path: Array, begin: Array, *, drafted: int) -> Branches:
    """Returns the tree that a call on T tokens reads.

    place: the place of the running beams. path: [B, T, S], slots with the text before
    each token. begin: [B], slot of the call's first token. drafted: U.
    """
    count, size = path.shape[1:]
    slot, own = jnp.arange(size), begin[:, None] + jnp.arange(count)
    sees = path | (slot == own[..., None])
    # The tree has as many tokens as the cache has slots; the call's are its last.
    shift = size - count - begin
    first = -shift[:, None]  # the slot of the tree's first token
    depth = positions(place, drafted, size) - first
    turn = jax.vmap(lambda x, by: jnp.roll(x, by, axis=-1))
    return Branches(turn(depth, shift), turn(sees, shift))


def positions(place: Place, drafted: int, size: int) -> Array:
    """Returns the position of the token in each slot, [B, S]."""
    width, slot = place.path.shape[1], jnp.arange(size)
    base, first = place.base[:, None], first_slot(place)[:, None]
    kept = base + (slot - base) // width
    level = (slot - first - width) // max(drafted, 1) + 1
    new = base + place.level[:, None] + jnp.maximum(level, 0)
    return jnp.where(slot < base, slot, jnp.where(slot < first, kept, new))


def keep_nodes(node: Array, alive: Array, drafted: int) -> Array:
    """Returns the W drafted nodes that a level keeps, in their own order: [B, W].

    node: [B, W], of U, the node of each running beam. alive: [B, W], whether there is
    such a beam; others fill up the level and are never read.
    """
    width = node.shape[1]
    used = (node[..., None] == jnp.arange(drafted)) & alive[..., None]
    order = jnp.argsort(~used.any(1), axis=1, stable=True)
    return jnp.sort(order[:, :width], axis=1)


def own_nodes(levels: int, width: int) -> np.ndarray:
    """Returns the path for `Model.keep` that moves nothing, [levels, W]."""
    return np.arange(levels * width, dtype=np.int32).reshape(levels, width)
