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
    """One layer's cache: `keys` and `values` [B, H, S, D], indexed by position."""

    keys: Array
    values: Array


def empty(batch: int, heads: int, slots: int, width: int, dtype) -> KeyValues:
    """A cache with nothing in it; slots are read only after they were written."""
    zeros = jnp.zeros((batch, heads, slots, width), dtype)
    zeros = nn.with_logical_constraint(zeros, ("batch", "heads", "slots", "head_width"))
    return KeyValues(zeros, zeros)


def write(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Puts `new` [B, H, T, D] at slots `start .. start + T - 1` of each row."""
    put = jax.vmap(
        lambda old, row, at: jax.lax.dynamic_update_slice(old, row, (0, at, 0))
    )
    return jax.tree.map(
        lambda old, row: put(old, row.astype(old.dtype), start), cache, new
    )


class Attention(nn.Module):
    """Multi-head self-attention.

    `rotate(x [B, H, T, D], positions [B, T])` turns queries and keys by position, or
    None. Kernels are [E, H * D] and [H * D, E], without biases.
    """

    heads: int
    head_width: int
    dtype: jnp.dtype = jnp.float32
    rotate: Callable | None = None

    @nn.compact
    def __call__(
        self, x: Array, positions: Array, cache: KeyValues | None = None
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E] at `positions` [B, T] -> ([B, T, E], cache).

        With no cache the call sees only its own T tokens (training).
        """
        query, key, value = (self._split(x, name) for name in ("query", "key", "value"))
        if self.rotate is not None:
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        seen, slots = KeyValues(key, value), positions
        if cache is not None:
            seen = cache = write(cache, seen, positions[:, 0])
            slots = jnp.arange(cache.keys.shape[2])[None]

        scores = jnp.einsum("bhtd,bhsd->bhts", query, seen.keys.astype(self.dtype))
        scores = scores.astype(jnp.float32) * self.head_width**-0.5
        visible = slots[:, None, :] <= positions[:, :, None]  # [B, T, S]
        weights = jax.nn.softmax(jnp.where(visible[:, None], scores, -jnp.inf))
        values = seen.values.astype(self.dtype)  # a stale slot weighs exactly 0
        mixed = jnp.einsum("bhts,bhsd->bhtd", weights.astype(self.dtype), values)

        mixed = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
        return self._dense(x.shape[-1], "out", ("joined_heads", "embed"))(mixed), cache

    def _split(self, x: Array, name: str) -> Array:
        """[B, T, E] -> [B, H, T, D]."""
        y = self._dense(self.heads * self.head_width, name, ("embed", "joined_heads"))(
            x
        )
        y = y.reshape(*x.shape[:2], self.heads, self.head_width)
        return y.transpose(0, 2, 1, 3)

    def _dense(self, features: int, name: str, axes: tuple[str, str]) -> nn.Dense:
        init = nn.with_logical_partitioning(nn.initializers.normal(0.02), axes)
        return nn.Dense(
            features, use_bias=False, dtype=self.dtype, kernel_init=init, name=name
        )
