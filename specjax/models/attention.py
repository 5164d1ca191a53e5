"""Attention on per-row positions: the one place that writes a key-value cache.

Axes: B rows, T tokens in one call, S cache slots, E features, H heads, D head width.
A cache holds keys and values by slot and no index. A call writes slots
`start .. start + T - 1` of each row and attends to slots up to each token's own
position, so whatever lies beyond is never read, and rejecting a drafted token needs
no undo: the row's cursor does not advance, and the next call writes over it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models.alone import hold


class KeyValues(NamedTuple):
    """One layer's cache, indexed by position: `keys` [B, H, D, S], as the product with
    queries reads them, and `values` [B, H, S, D], as the product with weights does.

    With keys [B, H, S, D] a CPU transposes the cache at every call of several tokens.
    Joined, one buffer for the N layers of a stack, both have the axis N after B.
    """

    keys: Array
    values: Array


Cache = list[KeyValues] | KeyValues  # of a stack: a layer each, or joined


class Joined(NamedTuple):
    """What a layer is given of a joined cache: all of it, which layer it is, and what
    is yet to be written of those before it, a layer each, from slot `start` [B] on."""

    cache: KeyValues
    start: Array
    layer: int = 0
    unwritten: tuple[KeyValues, ...] = ()


def empty(layers: int, sizes: tuple, dtype, joined: bool = False) -> Cache:
    """A cache with nothing in it; slots are read only after they were written.

    sizes: B, H, S, D. joined: one buffer for all layers, which takes a GPU fewer
    kernels to write, and which a CPU copies at every call.
    """
    batch, heads, slots, width = sizes
    count, axes = ((layers,), ("layers",)) if joined else ((), ())

    def zeros(*part: tuple[str, int]) -> Array:
        names, shape = zip(*part, strict=True)
        zero = jnp.zeros((batch, *count, *shape), dtype)
        return nn.with_logical_constraint(zero, ("batch", *axes, *names))

    def made() -> KeyValues:
        first, slot, inner = ("heads", heads), ("slots", slots), ("head_width", width)
        return KeyValues(zeros(first, inner, slot), zeros(first, slot, inner))

    return made() if joined else [made() for _ in range(layers)]


def first(cache: Cache, layers: int) -> Cache:
    """The part of a stack's cache that belongs to its first layers."""
    if isinstance(cache, KeyValues):
        return jax.tree.map(lambda x: x[:, :layers], cache)
    return cache[:layers]


def slots_of(cache: Cache) -> int:
    return jax.tree.leaves(cache)[-1].shape[-2]


def through(
    layers: Sequence[Callable], x: Array, cache: Cache | None, start: Array
) -> tuple[Array, Cache | None]:
    """x through a stack of layers, (x, cache=its part) -> (x, its part), all of which
    write their tokens from slot `start` [B] on. Returns x and the whole cache."""
    if isinstance(cache, KeyValues):
        part = Joined(cache, start)
        for layer in layers:
            x, part = layer(x, cache=part)
        return x, _settled(part)
    parts = []
    for i, layer in enumerate(layers):
        x, part = layer(x, cache=None if cache is None else cache[i])
        parts.append(part)
    return x, None if cache is None else parts


EXPAND = ("embed", "joined_heads")


def write(
    cache: KeyValues | Joined, new: KeyValues, start: Array
) -> tuple[KeyValues | Joined, KeyValues]:
    """Puts `new`, T tokens laid out alike, at slots `start .. start + T - 1` [B].

    Returns the cache and what attention is to read: the same numbers, at best before
    they are in memory.
    """
    if isinstance(cache, Joined):
        return _write_joined(cache, new, start)
    new = _like(cache, new)
    return jax.lax.platform_dependent(
        cache, new, start, cpu=_write_by_row, default=_write_at_once
    )


def _like(cache: KeyValues, new: KeyValues) -> KeyValues:
    return jax.tree.map(lambda old, row: row.astype(old.dtype), cache, new)


def _write_joined(
    part: Joined, new: KeyValues, start: Array
) -> tuple[Joined, KeyValues]:
    """What is new waits for that of the other layers, and is read before that."""
    new = _like(part.cache, new)
    own = jax.tree.map(lambda x: x[:, part.layer], part.cache)
    seen, waiting = _ahead(own, new, start), (*part.unwritten, new)
    if new.values.shape[2] > 1:  # not to be written before it was read, or it is copied
        start, _ = jax.lax.optimization_barrier((start, seen))
    return Joined(part.cache, start, part.layer + 1, waiting), seen


def _settled(part: Joined) -> KeyValues:
    new = jax.tree.map(lambda *each: jnp.stack(each, axis=1), *part.unwritten)
    return _put(part.cache, new, part.start, (0,))


def _write_at_once(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    written = _put(cache, new, start)
    if new.values.shape[2] > 1:
        return written, written
    return written, _ahead(cache, new, start)


@jax.named_scope("write_cache")
def _put(
    cache: KeyValues, new: KeyValues, start: Array, layer: tuple[int, ...] = ()
) -> KeyValues:
    """layer: of a joined cache, the first that `new` holds."""
    put = jax.lax.dynamic_update_slice
    if start.size == 1:  # a batched update is several kernels
        whole, at = (0, *layer), start[0]
        keys = put(cache.keys, new.keys, (*whole, 0, 0, at))
        return KeyValues(keys, put(cache.values, new.values, (*whole, 0, at, 0)))

    def row(cache: KeyValues, new: KeyValues, at: Array) -> KeyValues:
        keys = put(cache.keys, new.keys, (*layer, 0, 0, at))
        return KeyValues(keys, put(cache.values, new.values, (*layer, 0, at, 0)))

    return jax.vmap(row)(cache, new, start)


def _ahead(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Tokens put where they are read: of a single one a GPU's compiler makes one kernel
    of all of attention, and none waits for what is written."""
    count = new.values.shape[2]
    place = jnp.arange(cache.values.shape[2]) - start[:, None]  # in `new`, [B, S]
    here = ((place >= 0) & (place < count))[:, None, None]  # [B, 1, 1, S]
    if count > 1:
        place = jnp.clip(place, 0, count - 1)[:, None, None]
        keys = jnp.take_along_axis(new.keys, place, axis=3)
        values = jnp.take_along_axis(new.values, place.swapaxes(2, 3), axis=2)
        new = KeyValues(keys, values)
    keys = jnp.where(here, new.keys, cache.keys)
    return KeyValues(keys, jnp.where(here.swapaxes(2, 3), new.values, cache.values))


def _write_by_row(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    """In place. Fused with what reads the cache, a CPU's compiler makes four
    copies of it for one token of one row; a loop is not fused, but one of a single turn
    would be unrolled first, so its count is hidden."""

    def put(row: Array, cache: KeyValues) -> KeyValues:
        one = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, row, 1), new)
        update, at = jax.lax.dynamic_update_slice, start[row]
        keys = update(cache.keys, one.keys, (row, 0, 0, at))
        return KeyValues(keys, update(cache.values, one.values, (row, 0, at, 0)))

    count = start.size + (start[0] < 0)  # no slot is negative
    written = jax.lax.fori_loop(0, count, put, cache)
    return written, written


def attend(
    query: Array, seen: KeyValues, visible: Array, scale: float, bias: Array | None
) -> Array:
    """Softmax attention of queries [B, H, T, D] -> [B, T, H * D].

    visible: bool, broadcast over [B, T, S]; every token must see some slot. bias: added
    to the scaled scores, broadcast over [B, H, T, S], or None.
    """
    dtype, (batch, heads, length, width) = query.dtype, query.shape
    keys, values = (x.astype(dtype) for x in seen)  # a stale slot weighs exactly 0
    shut = jnp.where(visible[:, None], 0.0 if bias is None else bias, -jnp.inf)
    if length == 1:  # products of a vector, as such: a GPU makes one kernel of it all
        scores = jnp.einsum("bhd,bhds->bhs", query[:, :, 0], keys)
        weights = _weights(scores, scale, shut[:, :, 0]).astype(dtype)
        mixed = jnp.einsum("bhs,bhsd->bhd", weights, values)[:, :, None]
    else:
        scores = jnp.einsum("bhtd,bhds->bhts", query, keys)
        weights = _weights(scores, scale, shut).astype(dtype)
        mixed = jnp.einsum("bhts,bhsd->bhtd", weights, values)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def _weights(scores: Array, scale: float, shut: Array) -> Array:
    scores = scores.astype(jnp.float32) * scale + shut
    return jax.nn.softmax(jnp.where(jnp.isneginf(shut), -jnp.inf, scores))


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
        cache: KeyValues | Joined | None = None,
        visible: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array, KeyValues | Joined | None]:
        """x [B, T, E] at `positions` [B, T] -> ([B, T, E], cache).

        With no cache the call sees only its own T tokens. visible: for `attend`; None
        is causal, each token the slots up to its own.
        """
        rows = x.shape[0] if cache is None else positions.shape[0]
        query, key, value = (
            self._split(dense(x)[:rows]) for dense in (self.query, self.key, self.value)
        )
        if self.rotate is not None:
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        seen, slots = KeyValues(key.swapaxes(2, 3), value), positions
        if cache is not None:
            cache, seen = write(cache, seen, positions[:, 0])
            slots = jnp.arange(seen.values.shape[2])[None]
        if visible is None:
            visible = slots[:, None, :] <= positions[:, :, None]  # [B, T, S]
        mixed = attend(query, seen, visible, self._scale(), bias)
        return self.out(hold(mixed, x.shape[0] // rows)), cache

    def read(self, x: Array) -> KeyValues:
        """Keys and values of a text [B, S, E] that others will attend to."""
        key, value = self._split(self.key(x)), self._split(self.value(x))
        return KeyValues(key.swapaxes(2, 3), value)

    def across(self, x: Array, seen: KeyValues, visible: Array) -> Array:
        """x [B, T, E] attends to what `read` gave -> [B, T, E]."""
        rows = seen.values.shape[0]
        query = self._split(self.query(x)[:rows])
        mixed = attend(query, seen, visible, self._scale(), None)
        return self.out(hold(mixed, x.shape[0] // rows))

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
