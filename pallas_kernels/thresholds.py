"""Where a truncated law ends, without a sort: top-k, top-p and min-p as (tau, tie).

The ids of a row are ordered by (logit descending, id ascending), and a law keeps a
prefix of them (`specjax.probs`). Its end is found by bisection, first on the logit, as
an integer of the same order, then on the id among equals, several pivots a read of the
row. Reads of a row: 8 for the logit, 5 for the id.
Axes: V vocabulary.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from pallas_kernels.laws import rows_of, wide

BITS = 4  # of the answer that one read decides: 15 pivots


def find(logits: Array, sampling) -> tuple[Array, Array]:
    """(tau, tie) [...] of each row of logits [B, ..., V], settings [B]; argmax rows are
    found as at temperature 1, and count for nothing."""
    temperature, *cuts = sampling
    z = wide(logits)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    top_k, top_p, min_p = (None if c is None else rows_of(c, z) for c in cuts)
    scale = rows_of(1 / jnp.where(temperature == 0, 1.0, temperature), z)
    scaled = (z - z.max(-1, keepdims=True)) * scale[..., None]
    weights, whole = jnp.exp(scaled), jnp.full(z.shape[:-1], -jnp.inf)
    last = jnp.full(z.shape[:-1], z.shape[-1] - 1, jnp.int32)
    end = whole, last
    if top_k is not None:
        ones = jnp.ones(z.shape, jnp.int32)
        end = prefix(z, ones, top_k.astype(jnp.int32), end)
    if top_p is not None:
        inside = jnp.where(kept(z, end), weights, 0.0)
        wanted = top_p * inside.sum(-1)
        cut = prefix(z, inside, wanted, end)
        end = tuple(jnp.where(top_p < 1, a, b) for a, b in zip(cut, end, strict=True))
    if min_p is not None:
        near = scaled >= jnp.log(min_p)[..., None]
        floor = jnp.min(jnp.where(near, z, jnp.inf), axis=-1)
        end = shorter((floor, last), end)
    return end


def kept(z: Array, end: tuple) -> Array:
    tau, tie = (part[..., None] for part in end)
    return (z > tau) | ((z == tau) & (jnp.arange(z.shape[-1]) <= tie))


def shorter(end: tuple, other: tuple) -> tuple:
    """The shorter of two prefixes."""
    less = (end[0] > other[0]) | ((end[0] == other[0]) & (end[1] < other[1]))
    return tuple(jnp.where(less, a, b) for a, b in zip(end, other, strict=True))


def prefix(z: Array, mass: Array, wanted: Array, within: tuple) -> tuple:
    """The end of the shortest prefix whose mass reaches `wanted` [...]; `within` if
    none does."""
    keys = ordered(z)

    def above(key: Array) -> Array:
        return jnp.sum(jnp.where(keys >= key[..., None], mass, 0), -1)

    key = largest(lambda key: above(key) >= wanted, z.shape[:-1])
    tau = logit(key)
    over = jnp.sum(jnp.where(keys > key[..., None], mass, 0), -1)
    ids, equal = jnp.arange(z.shape[-1]), keys == key[..., None]

    def short(count: Array) -> Array:  # the first `count` of the row's ids do not do
        at = jnp.where(equal & (ids < count[..., None]), mass, 0)
        return over + jnp.sum(at, -1) < wanted

    first = jnp.zeros(z.shape[:-1], jnp.int32)
    tie = digits(short, first, (z.shape[-1] - 1).bit_length())
    reached = above(jnp.full(z.shape[:-1], -(2**31), jnp.int32)) >= wanted
    end = jnp.where(reached, tau, within[0]), jnp.where(reached, tie, within[1])
    return shorter(end, within)


def ordered(z: Array) -> Array:
    """float32 -> int32 of the same order; the two zeros are one."""
    bits = jax.lax.bitcast_convert_type(jnp.where(z == 0, 0.0, z), jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def logit(key: Array) -> Array:
    bits = jnp.where(key < 0, key ^ jnp.int32(0x7FFFFFFF), key)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def largest(holds: Callable, shape: tuple) -> Array:
    """The largest int32 for which `holds`, which it does up to some number."""
    lowest = jnp.full(shape, -(2**31), jnp.int32)
    return digits(holds, lowest, 32)  # steps wrap, as int32 does


def digits(holds: Callable, start: Array, bits: int) -> Array:
    """`start` and the largest number of so many bits above it for which `holds`; one
    digit of BITS a turn, all of its pivots in one read."""
    turns = -(-bits // BITS)

    def turn(i, base: Array) -> Array:
        best, low = base, (turns - 1 - i) * BITS
        for step in range(1, 1 << BITS):
            pivot = base + jnp.left_shift(jnp.int32(step), low)
            best = jnp.where(holds(pivot), pivot, best)
        return best

    return jax.lax.fori_loop(0, turns, turn, start)
