"""The cache of keys and values of a text, by position and with no cursor of its own.

A call of T tokens writes slots `start .. start + T - 1` of each row, and its tokens
attend to slots up to their own. What lies beyond is never read, so that rejecting a
drafted token needs no undo: the row's length does not grow, and the next call writes
over it.
Axes: B rows, T tokens in one call, S slots, H heads, D head width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array


class KeyValues(NamedTuple):
    """Of one layer: `keys` [B, H, D, S], as the product with queries reads them, and
    `values` [B, H, S, D], as the product with weights does. With keys [B, H, S, D] a
    CPU transposes the cache at every call of several tokens."""

    keys: Array
    values: Array


Cache = Sequence[KeyValues]  # a layer each


def empty(layers: int, sizes: tuple[int, int, int, int], dtype) -> list[KeyValues]:
    """The cache of a stack of layers before its first call; sizes: B, H, S, D."""
    batch, heads, slots, width = sizes

    def zeros(*axes: tuple[str, int]) -> Array:
        names, shape = zip(("batch", batch), ("heads", heads), *axes, strict=True)
        return nn.with_logical_constraint(jnp.zeros(shape, dtype), names)

    slot, inner = ("slots", slots), ("head_width", width)
    return [KeyValues(zeros(inner, slot), zeros(slot, inner)) for _ in range(layers)]


def slots_of(cache: Cache | None) -> int | None:
    """S of a stack's cache; None without one."""
    return None if cache is None else cache[0].values.shape[2]


def write_rows(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Puts T tokens into slots `start .. start + T - 1` [B] of each row."""
    return jax.vmap(write_row)(cache, new, start)


def write_row(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """`write_rows` of one row, or of rows that all begin at the same slot."""
    put = jax.lax.dynamic_update_slice_in_dim
    keys = put(cache.keys, new.keys, start, axis=-1)
    return KeyValues(keys, put(cache.values, new.values, start, axis=-2))


def taken(cache: KeyValues, slots: Array) -> KeyValues:
    """What lies in slots [B, D] of each row, D of them one after the other."""
    at = slots[:, None, :] % cache.values.shape[2]
    keys = jnp.take_along_axis(cache.keys, at[:, :, None], axis=3)
    return KeyValues(keys, jnp.take_along_axis(cache.values, at[..., None], axis=2))
