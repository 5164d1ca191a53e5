"""What compilers ask for: the same models, in words that make fewer kernels and copies.

The other modules say what a model computes, and here is how XLA is asked for the same
numbers: a GPU's compiler above all, where a small draft takes as long as it launches
kernels, and a CPU's, which copies caches. A model without `model`, `in_memory`, `once`
and `join`, written by `cache.write_rows`, would compute the same.

One token of one row is what a draft consists of. Its products are those of a vector
with a matrix, which a GPU's compiler takes apart: it multiplies in one kernel, into
memory, and adds up in another, and a norm is two more. Two equal rows it multiplies as
matrices, in one kernel that reads the weights once, and normalises in another. So there
the row is repeated, but for its cache and for attention (`model`, `in_memory`, `once`).

A joined cache is one buffer for all layers. One kernel writes it, after all layers
have read what it is going to be, where a buffer each is written by one each (`join`).

Axes: B rows, T tokens in one call, N layers, S slots, H heads, D head width.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax.models.cache import KeyValues, write_row, write_rows
from specjax.types import Model

# One token of one row.


def model(plain: Model) -> Model:
    """The same model as compilers want it. The cache that its `init` makes may hold
    `Joined` ones."""
    return plain._replace(apply=_apply(plain.apply), readout=_readout(plain.readout))


def _apply(apply: Callable) -> Callable:
    def run(params, tokens: Array, start: Array, cache):
        def plainly(params, tokens: Array, start: Array, cache):
            features, layers = apply(params, tokens, start, cache)
            return features, _settle(cache, layers)

        def twice(params, tokens: Array, start: Array, cache):
            features, cache = plainly(params, _repeat(tokens), start, cache)
            return features[:1], cache

        arguments = params, tokens, start, cache
        if tokens.size > 1:
            return plainly(*arguments)
        return jax.lax.platform_dependent(*arguments, cuda=twice, default=plainly)

    return run


def _readout(readout: Callable) -> Callable:
    def twice(params, features: Array) -> Array:
        logits = readout(params, _repeat(features.reshape(1, -1)))[:1]
        return logits.reshape(*features.shape[:-1], -1)

    def run(params, features: Array) -> Array:
        if features.size > features.shape[-1]:
            return readout(params, features)
        return jax.lax.platform_dependent(params, features, cuda=twice, default=readout)

    return run


def _repeat(row: Array, times: int = 2) -> Array:
    """[1, ...] -> [2, ...]."""
    return jnp.broadcast_to(row, (times, *row.shape[1:]))


def in_memory(x: Array, cache: Sequence[KeyValues] | None) -> Array:
    """x [B, ...] as it is, and in memory if it is a repeated row, of a cache of one: a
    norm of what is gathered, and not there yet, is two kernels."""
    if cache is None or len(x) == len(cache[0].values):
        return x
    return jax.lax.optimization_barrier(x)


def once(attend: Callable) -> Callable:
    """`attention.attend`, computed once for a row that is repeated, and for one token
    without the axis T: products of a vector, as such, are one kernel with the softmax
    on a GPU, and no copy of the cache on a CPU."""

    @functools.wraps(attend)
    def run(query: Array, memory: KeyValues, mask: Array, scale: float, bias) -> Array:
        rows = len(memory.values)
        if query.shape[2] > 1:
            return attend(query, memory, mask, scale, bias)
        bias = None if bias is None else bias[:, :, 0]
        mixed = attend(query[:rows, :, 0], memory, mask[:, 0], scale, bias)[:, None]
        return mixed if len(query) == rows else _repeat(mixed, len(query))

    return run


# A joined cache.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joined:
    """The cache of N layers in one buffer, to be read as a sequence of them.

    keys: [B, N, H, D, S]. values: [B, N, H, S, D].
    """

    keys: Array
    values: Array

    def __len__(self) -> int:
        return self.keys.shape[1]

    def __getitem__(self, layers: int | slice) -> "Slice | Joined":
        of = Joined if isinstance(layers, slice) else Slice
        return of(self.keys[:, layers], self.values[:, layers])

    def __iter__(self) -> Iterator["Slice"]:
        return map(self.__getitem__, range(len(self)))


class Slice(NamedTuple):
    """A layer's part of a joined cache, laid out as `KeyValues` and only to be read."""

    keys: Array
    values: Array


class Unwritten(NamedTuple):
    """A layer's new keys and values, to be written from slot `start` [B] on."""

    new: KeyValues
    start: Array


def join(layers: Sequence[KeyValues]) -> Joined:
    """A joined cache of what layers hold. A CPU copies it at every call."""
    return Joined(*(jnp.stack(each, axis=1) for each in zip(*layers, strict=True)))


def _settle(cache: Any, after: Any) -> Any:
    """`after` a call, where joined caches of `cache` are still lists of `Unwritten`."""

    def joined(node) -> bool:
        return isinstance(node, Joined)

    def settled(old: Any, layers: Any) -> Any:
        if not joined(old):
            return layers
        new, start = join([layer.new for layer in layers]), layers[-1].start
        return Joined(*_put(KeyValues(old.keys, old.values), new, start))

    if any(map(joined, jax.tree.leaves(cache, is_leaf=joined))):
        return jax.tree.map(settled, cache, after, is_leaf=joined)
    return after


# Writing a layer's cache.


def write(
    cache: KeyValues | Slice, new: KeyValues, start: Array
) -> tuple[KeyValues | Unwritten, KeyValues]:
    """`cache.write_rows` of one layer, and what attention is to read.

    Args:
      cache: of the layer.
      new: its keys and values of T tokens, of as many rows as the cache has or of one
        that is repeated.
      start: [B], the slot of the first token.

    Returns:
      The cache with slots `start .. start + T - 1` of each row written, or what is to
      be written there; and the same numbers to read, at best not yet in memory.
    """
    new = KeyValues(
        *(x[: len(old)].astype(old.dtype) for x, old in zip(new, cache, strict=True))
    )
    if isinstance(cache, Slice):
        memory = _ahead(cache, new, start)
        if new.values.shape[2] > 1:  # written before it was read, the cache is copied
            start, _ = jax.lax.optimization_barrier((start, memory))
        return Unwritten(new, start), memory
    return jax.lax.platform_dependent(
        cache, new, start, cpu=_write_by_row, default=_write_at_once
    )


def _write_at_once(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    written = _put(cache, new, start)
    if new.values.shape[2] > 1:
        return written, written
    return written, _ahead(cache, new, start)


@jax.named_scope("write_cache")
def _put(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    if start.size == 1:  # a batched update is several kernels
        return write_row(cache, new, start[0])
    return write_rows(cache, new, start)


def _ahead(cache: KeyValues | Slice, new: KeyValues, start: Array) -> KeyValues:
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
        only = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, row, 1), new)
        update, slot = jax.lax.dynamic_update_slice, start[row]
        keys = update(cache.keys, only.keys, (row, 0, 0, slot))
        return KeyValues(keys, update(cache.values, only.values, (row, 0, slot, 0)))

    count = start.size + (start[0] < 0)  # no slot is negative
    written = jax.lax.fori_loop(0, count, put, cache)
    return written, written
