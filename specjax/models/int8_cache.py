"""Caches of keys and values in eight bits: a quarter of float32's memory, at rest.

A slot's key and value, of each row and head, are whole numbers from -127 to 127 times
a scale of their own, rounded once, as they are written, and multiplied out one layer
at a time where attention reads them. A token sees its own key rounded too, so that a
text's cache does not depend on how many tokens a call had: the rounded model is a
target of its own, to which drafts make no difference.
Axes: B rows, T tokens in one call, S slots, H heads, D head width.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from specjax.models import cache as floats
from specjax.models.cache import KeyValues

KINDS = (None, "int8")  # of a config's cache; None has its dtype


class Int8Layer(NamedTuple):
    """Of one layer: `whole` numbers, int8 and shaped as `KeyValues` has them, and the
    `scale` of each slot, float32: of keys [B, H, 1, S], of values [B, H, S, 1]."""

    whole: KeyValues
    scale: KeyValues

    @property
    def values(self) -> Array:
        return self.whole.values


Layer = KeyValues | Int8Layer


def check(kind: str | None) -> None:
    """Raises ValueError for a kind of cache that there is not."""
    if kind not in KINDS:
        raise ValueError(f"unknown cache {kind!r}: it is one of {KINDS}")


def empty(
    layers: int, sizes: tuple[int, int, int, int], dtype, kind: str | None
) -> list[Layer]:
    """As `cache.empty`, of a kind of `KINDS`."""
    if kind is None:
        return floats.empty(layers, sizes, dtype)
    whole = floats.empty(layers, sizes, jnp.int8)
    scale = floats.empty(layers, (*sizes[:3], 1), jnp.float32)
    return list(map(Int8Layer, whole, scale))


def quantize(new: KeyValues) -> Int8Layer:
    """To the nearest, the largest of each slot to 127."""

    def round_rows(x: Array, axis: int) -> tuple[Array, Array]:
        x = x.astype(jnp.float32)
        scale = jnp.max(jnp.abs(x), axis, keepdims=True) / 127
        whole = jnp.round(x / jnp.where(scale == 0, 1, scale))
        return whole.astype(jnp.int8), scale

    return Int8Layer(
        *map(KeyValues, round_rows(new.keys, -2), round_rows(new.values, -1))
    )


def dequantize(layer: Int8Layer, dtype) -> KeyValues:
    """What `layer` stands for, in `dtype`."""
    each = zip(*layer, strict=True)
    return KeyValues(*((whole * scale).astype(dtype) for whole, scale in each))


def with_int8(write: Callable) -> Callable:
    """`lowering.write`, and its like, which then write layers that are `Int8Layer` too
    and give them multiplied out to be read."""

    @functools.wraps(write)
    def run(cache: Layer, new: KeyValues, start: Array) -> tuple[Layer, KeyValues]:
        if not isinstance(cache, Int8Layer):
            return write(cache, new, start)
        each = zip(cache, quantize(new), strict=True)
        parts, read = zip(*(write(*part, start) for part in each), strict=True)
        return Int8Layer(*parts), dequantize(Int8Layer(*read), new.values.dtype)

    return run
