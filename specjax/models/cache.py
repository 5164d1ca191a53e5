"""The cache of keys and values of a text, addressed by slot and without a cursor.

A call of T tokens writes slots `start .. start + T - 1` of each row, and its tokens
attend to slots up to their own. Later slots are never read, so that rejecting a drafted
token needs no undo: the row's length does not grow, and the next call writes over it.
Axes: B rows, T tokens in one call, S slots, H heads, D head width.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike


class KeyValues(NamedTuple):
    """The keys and values of one layer.

    `keys` [B, H, D, S] lie as the product with queries reads them, `values`
    [B, H, S, D] as the product with weights does. With keys [B, H, S, D] a CPU
    transposes the cache at every call of several tokens.
    """

    keys: Array
    values: Array


Cache = Sequence[Any]  # a layer each: KeyValues, or an `int8_cache.Int8Layer`


def empty(
    layers: int,
    *,
    batch: int,
    heads: int,
    slots: int,
    width: int,
    dtype: DTypeLike,
) -> list[KeyValues]:
    """Returns the cache of a stack of layers before its first call: zeros for B rows, H
    heads, S slots and the head width D."""

    def zeros(*axes: tuple[str, int]) -> Array:
        names, shape = zip(("batch", batch), ("heads", heads), *axes, strict=True)
        return nn.with_logical_constraint(jnp.zeros(shape, dtype), names)

    slot, inner = ("slots", slots), ("head_width", width)
    return [KeyValues(zeros(inner, slot), zeros(slot, inner)) for _ in range(layers)]


def count_slots(cache: Cache | None) -> int | None:
    """Returns S, the number of slots of a stack's cache; None without a cache."""
    return None if cache is None else cache[0].values.shape[2]


def write_rows(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Writes T tokens to slots `start .. start + T - 1`, start [B], of each row."""
    return jax.vmap(write_row)(cache, new, start)


def write_row(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Writes as `write_rows` does, but to one row, or to rows that all begin at the
    same slot."""
    put = jax.lax.dynamic_update_slice_in_dim
    keys = put(cache.keys, new.keys, start, axis=-1)
    return KeyValues(keys, put(cache.values, new.values, start, axis=-2))


def read_slots(cache: KeyValues, slots: Array) -> KeyValues:
    """Returns the keys and values in the given slots [B, D] of each row, in order."""
    at = slots[:, None, :] % cache.values.shape[2]
    keys = jnp.take_along_axis(cache.keys, at[:, :, None], axis=3)
    return KeyValues(keys, jnp.take_along_axis(cache.values, at[..., None], axis=2))
