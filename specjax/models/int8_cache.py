"""Caches of keys and values stored in eight bits: a quarter of the memory of float32.

A slot's key and value, of each row and head, are whole numbers from -127 to 127 times
a scale of their own, rounded once, as they are written, and multiplied out one layer
at a time where attention reads them. A token sees its own key rounded too, so that a
text's cache does not depend on how many tokens a call had: the rounded model is a
target of its own, to which drafts make no difference.
Axes: B rows, T tokens in one call, S slots, H heads, D head width.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from specjax.models import cache as floats
from specjax.models.cache import KeyValues

KINDS = (None, "int8")  # of a config's cache; None has its dtype


class Int8Layer(NamedTuple):
    """The keys and values of one layer in eight bits.

    whole: whole numbers, int8, in the shapes of `KeyValues`. scale: one for each slot,
    float32, of keys [B, H, 1, S] and of values [B, H, S, 1].
    """

    whole: KeyValues
    scale: KeyValues

    @property
    def values(self) -> Array:
        return self.whole.values


Layer = KeyValues | Int8Layer


def check(kind: str | None) -> None:
    """Raises ValueError for a kind of cache that does not exist."""
    if kind not in KINDS:
        raise ValueError(f"unknown cache {kind!r}: it is one of {KINDS}")


def empty(
    layers: int,
    *,
    batch: int,
    heads: int,
    slots: int,
    width: int,
    dtype: DTypeLike,
    kind: str | None,
) -> list[Layer]:
    """Returns an empty cache as `cache.empty` does, of a kind of `KINDS`."""
    zeros = partial(floats.empty, layers, batch=batch, heads=heads, slots=slots)
    if kind is None:
        return [*zeros(width=width, dtype=dtype)]
    whole = zeros(width=width, dtype=jnp.int8)
    return list(map(Int8Layer, whole, zeros(width=1, dtype=jnp.float32)))


def quantize(new: KeyValues) -> Int8Layer:
    """Rounds each slot to the nearest integers, scaled so that the largest is 127."""

    def round_rows(x: Array, axis: int) -> tuple[Array, Array]:
        x = x.astype(jnp.float32)
        scale = jnp.max(jnp.abs(x), axis, keepdims=True) / 127
        whole = jnp.round(x / jnp.where(scale == 0, 1, scale))
        return whole.astype(jnp.int8), scale

    return Int8Layer(
        *map(KeyValues, round_rows(new.keys, -2), round_rows(new.values, -1))
    )


def dequantize(layer: Int8Layer, dtype: DTypeLike) -> KeyValues:
    """Returns the numbers that a layer stands for, in `dtype`."""
    each = zip(*layer, strict=True)
    return KeyValues(*((whole * scale).astype(dtype) for whole, scale in each))


def with_int8(write: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function like `lowering.write`, which also writes an `Int8Layer` and
    returns its numbers dequantized, to be read."""

    @functools.wraps(write)
    def run(cache: Any, new: KeyValues, start: Array) -> tuple[Any, KeyValues]:
        if not isinstance(cache, Int8Layer):
            return write(cache, new, start)
        each = zip(cache, quantize(new), strict=True)
        parts, read = zip(*(write(*part, start) for part in each), strict=True)
        return Int8Layer(*parts), dequantize(Int8Layer(*read), new.values.dtype)

    return run
