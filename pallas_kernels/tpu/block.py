"""The work of one step of the grid on a TPU: which rows it has, and how it reads them.

All rows of one text, or of eight, are in VMEM at once. One text has its positions along
the sublanes. Eight texts are themselves along the sublanes, which is how XLA lays out a
large batch, so nothing is copied. Every array has three axes, and axis T is reduced
with its size kept, so that the same code serves both. Axes: B rows, T tokens (G + 1 of
p, G of q), S texts of a block, V vocabulary.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from pallas_kernels import laws
from pallas_kernels.plan import Plan
from specjax.types import BLOCK

SUBLANES = 8


class Place(NamedTuple):
    """The layout of a block: S texts, the axis of positions and the axis of texts."""

    texts: int
    t: int
    s: int

    def size(self, rows: int, lanes: int) -> tuple[int, int, int]:
        sizes = [0, 0, lanes]
        sizes[self.t], sizes[self.s] = rows, self.texts
        return tuple(sizes)


def block_place(plan: Plan) -> Place:
    """Returns the layout of a plan's blocks."""
    if plan.batch < SUBLANES:
        return Place(1, t=1, s=0)
    return Place(SUBLANES, t=0, s=1)


def vmem_bytes(plan: Plan, itemsize: int) -> int:
    """Returns the bytes of one copy of a block's logits, padded as VMEM pads them."""
    place, packed = block_place(plan), SUBLANES * 4 // itemsize
    total = 0
    for side in plan.sides:
        sizes = list(place.size(plan.rows(side), plan.count * BLOCK))
        sizes[1] = -(-sizes[1] // packed) * packed
        total += sizes[0] * sizes[1] * sizes[2] * itemsize
    return total


class Block(NamedTuple):
    """The inputs of a step of the grid. first: the index of its first row in the
    batch."""

    plan: Plan
    place: Place
    refs: dict
    first: Array

    def row(self, s: int) -> Array:
        return jnp.minimum(self.first + s, self.plan.batch - 1)

    def iota(self, rows: int, lanes: int, axis: int) -> Array:
        return lax.broadcasted_iota(jnp.int32, self.place.size(rows, lanes), axis)

    def gather(self, name: str, rows: int, fill) -> Array:
        """Returns scalars [B, rows] of this block as an array over T and S."""
        sizes = self.place.size(rows, 1)
        t, s = (lax.broadcasted_iota(jnp.int32, sizes, a) for a in self.place[1:])
        value = jnp.full(sizes, fill)
        for row in range(self.place.texts):
            for k in range(rows):
                here = (t == k) & (s == row)
                value = jnp.where(here, self.refs[name][self.row(row), k], value)
        return value

    def texts(self, name: str, fill) -> Array:
        """Returns one scalar per text [B], as an array over S."""
        sizes = self.place.size(1, 1)
        s = lax.broadcasted_iota(jnp.int32, sizes, self.place.s)
        value = jnp.full(sizes, fill)
        for row in range(self.place.texts):
            value = jnp.where(s == row, self.refs[name][self.row(row)], value)
        return value

    def logits(self, side: str, start: Array) -> Array:
        """Returns BLOCK ids of every row, in float32."""
        at = pl.multiple_of(start, BLOCK)
        return laws.to_float32(self.refs[side][:, :, pl.ds(at, BLOCK)])


def fold_blocks(block: Block, function, start):
    """Folds (block of ids, carry) -> carry over all blocks of the vocabulary."""
    return lax.fori_loop(0, block.plan.count, function, start)
