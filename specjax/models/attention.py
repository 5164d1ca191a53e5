"""Attention on per-row positions: the one place that writes a key-value cache.

Axes: B rows, T tokens in one call, S cache slots, E features, H heads, D head width.
A cache holds keys and values by slot and no index. A call writes slots
`start .. start + T - 1` of each row and attends to slots up to each token's own
position, so whatever lies beyond is never read, and rejecting a drafted token needs
no undo: the row's cursor does not advance, and the next call writes over it.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array


class KeyValues(NamedTuple):
    """One layer's cache, indexed by position: `keys` [B, H, D, S], as the product with
    queries reads them, and `values` [B, H, S, D], as the product with weights does.

    With keys [B, H, S, D] a CPU transposes the cache at every call of several tokens.
    """

    keys: Array
    values: Array


def empty(batch: int, heads: int, slots: int, width: int, dtype) -> KeyValues:
    """A cache with nothing in it; slots are read only after they were written."""

    def zeros(axes: tuple[str, ...], *shape: int) -> Array:
        return nn.with_logical_constraint(jnp.zeros(shape, dtype), axes)

    return KeyValues(
        zeros(("batch", "heads", "head_width", "slots"), batch, heads, width, slots),
        zeros(("batch", "heads", "slots", "head_width"), batch, heads, slots, width),
    )


EXPAND = ("embed", "joined_heads")


def write(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Puts `new`, T tokens laid out alike, at slots `start .. start + T - 1` [B]."""
    new = jax.tree.map(lambda old, row: row.astype(old.dtype), cache, new)
    return jax.lax.platform_dependent(
        cache, new, start, cpu=_write_by_row, default=_write_at_once
    )


def _write_at_once(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    put, zero = jax.vmap(jax.lax.dynamic_update_slice), jnp.zeros_like(start)
    keys = put(cache.keys, new.keys, (zero, zero, start))
    return KeyValues(keys, put(cache.values, new.values, (zero, start, zero)))


def _write_by_row(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """The same, in place. Fused with what reads the cache, a CPU's compiler makes four
    copies of it for one token of one row; a loop is not fused, but one of a single turn
    would be unrolled first, so its count is hidden."""

    def put(row: Array, cache: KeyValues) -> KeyValues:
        one = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, row, 1), new)
        update, at = jax.lax.dynamic_update_slice, start[row]
        keys = update(cache.keys, one.keys, (row, 0, 0, at))
        return KeyValues(keys, update(cache.values, one.values, (row, 0, at, 0)))

    count = start.size + (start[0] < 0)  # no slot is negative
    return jax.lax.fori_loop(0, count, put, cache)


def attend(
    query: Array, seen: KeyValues, visible: Array, scale: float, bias: Array | None
) -> Array:
    """Softmax attention of queries [B, H, T, D] -> [B, T, H * D].

    visible: bool, broadcast over [B, T, S]; every token must see some slot. bias: added
    to the scaled scores, broadcast over [B, H, T, S], or None.
    """
    dtype = query.dtype
    scores = jnp.einsum("bhtd,bhds->bhts", query, seen.keys.astype(dtype))
    scores = scores.astype(jnp.float32) * scale
    if bias is not None:
        scores = scores + bias
    weights = jax.nn.softmax(jnp.where(visible[:, None], scores, -jnp.inf))
    values = seen.values.astype(dtype)  # a stale slot weighs exactly 0
    mixed = jnp.einsum("bhts,bhsd->bhtd", weights.astype(dtype), values)
    batch, heads, length, width = query.shape
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


class Attention(nn.Module):
    """Multi-head attention: of a text to itself, or to another that was read before.

    features: E. `rotate(x [B, H, T, D], positions [B, T])` turns queries and keys by
    position, or None. scale: of the scores, None for 1 / sqrt(D). Kernels are
    [E, H * D] and [H * D, E]; query_init: the query's, None for that of the others.
    """

    features: int
    heads: int
    head_width: int
    dtype: jnp.dtype = jnp.float32
    rotate: Callable | None = None
    use_bias: bool = False
    scale: float | None = None
    kernel_init: Callable = nn.initializers.normal(0.02)
    query_init: Callable | None = None

    def setup(self):
        width, init = self.heads * self.head_width, self.kernel_init
        self.query = self._dense(width, EXPAND, self.query_init or init)
        self.key = self._dense(width, EXPAND, init)
        self.value = self._dense(width, EXPAND, init)
        self.out = self._dense(self.features, EXPAND[::-1], init)

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: KeyValues | None = None,
        visible: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E] at `positions` [B, T] -> ([B, T, E], cache).

        With no cache the call sees only its own T tokens. visible: for `attend`; None
        is causal, each token the slots up to its own.
        """
        query, key = self._split(self.query(x)), self._split(self.key(x))
        if self.rotate is not None:
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        seen, slots = (
            KeyValues(key.swapaxes(2, 3), self._split(self.value(x))),
            positions,
        )
        if cache is not None:
            seen = cache = write(cache, seen, positions[:, 0])
            slots = jnp.arange(cache.values.shape[2])[None]
        if visible is None:
            visible = slots[:, None, :] <= positions[:, :, None]  # [B, T, S]
        return self.out(attend(query, seen, visible, self._scale(), bias)), cache

    def read(self, x: Array) -> KeyValues:
        """Keys and values of a text [B, S, E] that others will attend to."""
        key, value = self._split(self.key(x)), self._split(self.value(x))
        return KeyValues(key.swapaxes(2, 3), value)

    def across(self, x: Array, seen: KeyValues, visible: Array) -> Array:
        """x [B, T, E] attends to what `read` gave -> [B, T, E]."""
        query = self._split(self.query(x))
        return self.out(attend(query, seen, visible, self._scale(), None))

    def _scale(self) -> float:
        return self.head_width**-0.5 if self.scale is None else self.scale

    def _split(self, x: Array) -> Array:
        """[B, T, H * D] -> [B, H, T, D]."""
        x = x.reshape(*x.shape[:2], self.heads, self.head_width)
        return x.transpose(0, 2, 1, 3)

    def _dense(self, features: int, axes: tuple, init: Callable) -> nn.Dense:
        init = nn.with_logical_partitioning(init, axes)
        options = dict(use_bias=self.use_bias, dtype=self.dtype, kernel_init=init)
        return nn.Dense(features, **options)
