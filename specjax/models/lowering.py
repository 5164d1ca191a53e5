"""Rewrites of models with the same results, for which compilers create fewer kernels
and copies.

The other modules define what a model computes; this one computes the same numbers for
XLA: on a GPU, where a small draft takes as long as it launches kernels, and on a CPU,
whose compiler copies caches. A model without `model`, `in_memory`,
`share_repeated_rows` and `join`, written by `cache.write_rows`, computes the same.

A draft consists of calls on one token of one row. Its products with matrices, and its
norms, are two kernels each on a GPU; of two equal rows they are one. So there the row
is repeated, except for its cache and for attention. A target verifies a few tokens of a
row: attention is one kernel if each token is a row of its own. A joined cache is one
buffer for the keys and values of all layers, written by one kernel.
Axes: B rows, T tokens in one call, N layers, S slots, H heads, D head width.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import quantized
from specjax.models import few_rows
from specjax.models.cache import Cache, KeyValues, read_slots, write_row, write_rows
from specjax.models.int8_cache import Int8Layer, with_int8
from specjax.native.operation import Operation, run
from specjax.types import (
    Branches,
    Hidden,
    Model,
    ModelApply,
    ModelInit,
    ModelReadout,
    Prompt,
)

FEW = 8  # tokens of a call, up to which it is a step's and not a text's
COPIED = 2**22  # bytes, which take longer to copy than a kernel to launch
SHORT = 1024  # slots, up to which a GPU reads them once more for each of few tokens

# (query, memory, mask, bias) -> what `attention.attend` returns.
Attend = Callable[[Array, KeyValues, Array, Array | None], Array]

# One token of one row.


def model(plain: Model, joined: bool = False) -> Model:
    """Returns the same model, rewritten for compilers. joined: whether each list of
    layers' caches that its `init` makes becomes one buffer."""
    init = _join_initial(plain.init) if joined else plain.init
    apply, readout = _apply(plain.apply), _readout(plain.readout)
    return plain._replace(init=init, apply=apply, readout=readout, hidden=hidden)


def _apply(apply: ModelApply) -> ModelApply:
    def run(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Any,
        branches: Branches | None = None,
    ) -> tuple[Any, Any]:
        def apply_once(
            params: Any,
            tokens: Array,
            start: Array,
            cache: Any,
            branches: Branches | None,
        ) -> tuple[Any, Any]:
            features, layers = apply(params, tokens, start, cache, branches)
            return features, _write_unwritten(cache, layers)

        def apply_to_twins(
            params: Any,
            tokens: Array,
            start: Array,
            cache: Any,
            branches: Branches | None,
        ) -> tuple[Any, Any]:
            twins = _repeat(tokens)
            features, cache = apply_once(params, twins, start, cache, branches)
            return jax.tree.map(lambda x: x[:1], features), cache

        if tokens.size > 1:
            return apply_once(params, tokens, start, cache, branches)
        return jax.lax.platform_dependent(
            params,
            tokens,
            start,
            cache,
            branches,
            cuda=apply_to_twins,
            default=apply_once,
        )

    return run


def _readout(readout: ModelReadout) -> ModelReadout:
    def read_out_twins(params: Any, features: Array) -> Array:
        logits = readout(params, _repeat(features.reshape(1, -1)))[:1]
        return logits.reshape(*features.shape[:-1], -1)

    def run(params: Any, features: Array | Hidden) -> Any:
        features = hidden(features).last
        if features.size > features.shape[-1]:
            return readout(params, features)
        return jax.lax.platform_dependent(
            params, features, cuda=read_out_twins, default=readout
        )

    return run


def hidden(features: Array | Hidden) -> Hidden:
    """Returns the hidden states in a model's features: see `ReadHidden`. They are an
    array where no layer is tapped."""
    return features if isinstance(features, Hidden) else Hidden(features)


def _repeat(row: Array, times: int = 2) -> Array:
    """Repeats a row: [1, ...] -> [times, ...]."""
    return jnp.broadcast_to(row, (times, *row.shape[1:]))


def in_memory(x: Array, cache: Sequence[KeyValues] | None) -> Array:
    """Returns x [B, ...], forced into memory if it repeats a row for a cache of one
    row: a norm of gathered values that are not in memory yet takes two kernels."""
    if cache is None or len(x) == len(cache[0].values):
        return x
    return jax.lax.optimization_barrier(x)


def share_repeated_rows(attend: Attend) -> Attend:
    """Returns the same attention, computed once for a row that is repeated, and without
    the axis T for a single token.

    Products of a vector are one kernel with the softmax on a GPU, and no copy of the
    cache on a CPU. On a GPU so are those of a few tokens, each of which is a row then;
    the cache is not copied for them.
    """

    def attend_by_token(
        query: Array, memory: KeyValues, mask: Array, bias: Array | None
    ) -> Array:
        batch, _, count, _ = query.shape

        def rows(x: Array) -> Array:
            """Makes each token a row: [B or 1, T or 1, ...] -> [B * T, ...]."""
            shape = x.shape[2:]
            return jnp.broadcast_to(x, (batch, count, *shape)).reshape(-1, *shape)

        memory = jax.tree.map(lambda x: rows(x[:, None]), memory)
        bias = None if bias is None else rows(bias.swapaxes(1, 2))
        mixed = attend(rows(query.swapaxes(1, 2)), memory, rows(mask), bias)
        return mixed.reshape(batch, count, -1)

    @functools.wraps(attend)
    def run(query: Array, memory: KeyValues, mask: Array, bias: Array | None) -> Array:
        rows, count = len(memory.values), query.shape[2]
        if 1 < count <= FEW and memory.values.shape[2] <= SHORT:
            return jax.lax.platform_dependent(
                query, memory, mask, bias, cuda=attend_by_token, default=attend
            )
        if count > 1:
            return attend(query, memory, mask, bias)
        bias = None if bias is None else bias[:, :, 0]
        mixed = attend(query[:rows, :, 0], memory, mask[:, 0], bias)[:, None]
        return mixed if len(query) == rows else _repeat(mixed, len(query))

    return run


# Several products of one text.


def products(x: Array, kernels: Sequence[Array]) -> list[Array]:
    """Returns x [..., K] times each of kernels [K, N], [..., N] in float32 each.

    For a few tokens they are one product on a GPU, whose kernel reads each matrix where
    it is: XLA makes one by itself of matrices of less than 32 MB.
    """

    def multiply_each(x: Array, *kernels: Array) -> list[Array]:
        return [quantized.dot(x, kernel) for kernel in kernels]

    def multiply_joined(x: Array, *kernels: Array) -> list[Array]:
        ends = np.cumsum([kernel.shape[1] for kernel in kernels])
        return jnp.split(
            quantized.dot(x, quantized.concatenate(kernels)), ends[:-1], -1
        )

    if x.size > FEW * x.shape[-1] or not quantized.can_concatenate(kernels):
        return multiply_each(x, *kernels)
    return jax.lax.platform_dependent(
        x, *kernels, cuda=multiply_joined, default=multiply_each
    )


def mark_separate(x: Array, kernel: Array) -> Array:
    """Returns x [B, T, K], marked so that its product with a large kernel [K, N] is
    computed on its own.

    XLA for GPUs multiplies one text by all matrices of up to 32 MB at once, and copies
    them beside each other first where they are many.
    """

    def add_barrier(x: Array, kernel: Array) -> Array:
        return jax.lax.optimization_barrier((x, kernel))[0]

    def unchanged(x: Array, kernel: Array) -> Array:
        del kernel
        return x

    if not isinstance(kernel, jax.Array) or kernel.nbytes < COPIED:
        return x
    return jax.lax.platform_dependent(x, kernel, cuda=add_barrier, default=unchanged)


# A joined cache.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joined:
    """The cache of N layers in one buffer, which reads as a sequence of layers. buffer:
    [B, N, 2, H, S, D], keys before values."""

    buffer: Array

    def __len__(self) -> int:
        return self.buffer.shape[1]

    @overload
    def __getitem__(self, layers: int) -> KeyValues: ...
    @overload
    def __getitem__(self, layers: slice) -> "Joined": ...
    def __getitem__(self, layers: int | slice) -> "KeyValues | Joined":
        part = self.buffer[:, layers]
        if isinstance(layers, slice):
            return Joined(part)
        return KeyValues(part[:, 0].swapaxes(2, 3), part[:, 1])

    def __iter__(self) -> Iterator[KeyValues]:
        return (self[layer] for layer in range(len(self)))


class Slice(NamedTuple):
    """The part of a joined cache that belongs to one layer."""

    joined: Joined
    layer: int


def num_slots(cache: KeyValues | Slice) -> int:
    """Returns S, the number of slots of a layer's cache."""
    if isinstance(cache, Slice):
        return cache.joined.buffer.shape[4]
    return cache.values.shape[2]


class Unwritten(NamedTuple):
    """The new keys and values of a layer, to be written from slot `start` [B] on."""

    new: KeyValues
    start: Array


class Layers:
    """A joined cache while a call passes through its layers, in the form of a list of
    them."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self.unwritten: list[Unwritten] = []

    def __getitem__(self, layer: int) -> Slice:
        return Slice(self.joined, layer)

    def __setitem__(self, layer: int, after: Joined | Unwritten) -> None:
        if isinstance(after, Joined):
            self.joined = after
        else:
            self.unwritten.append(after)


def layers(cache: Cache | None, count: int) -> Any:
    """Returns the caches of `count` layers, one for each, as a list or as `Layers`.

    A call reads each layer's cache from it, and writes it back there. Without a cache
    each is None.
    """
    if isinstance(cache, Joined):
        return Layers(cache)
    return [None] * count if cache is None else list(cache)


def join(layers: Sequence[KeyValues]) -> Joined:
    """Returns a joined cache of several layers. A CPU copies it at every call."""
    return Joined(jnp.stack(list(map(_pack, layers)), axis=1))


def _join_initial(init: ModelInit) -> ModelInit:
    def stack(node: Any) -> bool:
        return isinstance(node, list) and isinstance(node[0], KeyValues)

    def run(params: Any, prompt: Prompt, slots: int) -> Any:
        cache = init(params, prompt, slots)
        joined = lambda node: join(node) if stack(node) else node  # noqa: E731
        return jax.tree.map(joined, cache, is_leaf=stack)

    return run


def _pack(layer: KeyValues) -> Array:
    """Packs keys and values of a layer: [B, 2, H, S, D]."""
    return jnp.stack([layer.keys.swapaxes(2, 3), layer.values], axis=1)


def _write_unwritten(cache: Any, after: Any) -> Any:
    """Returns the caches after a call, with `Layers` turned back into the joined caches
    of `cache`."""

    def is_joined(node: Any) -> bool:
        return isinstance(node, Joined)

    def write_all(old: Any, after: Any) -> Any:
        if not isinstance(after, Layers):
            return after
        if not after.unwritten:
            return after.joined
        new = join([layer.new for layer in after.unwritten])
        return _put_joined(old, new, after.unwritten[-1].start, layer=0)

    if any(map(is_joined, jax.tree.leaves(cache, is_leaf=is_joined))):
        return jax.tree.map(write_all, cache, after, is_leaf=is_joined)
    return after


# Writing a layer's cache.


def keep(
    cache: Cache, start: Array, path: Array, writes: Sequence[Callable[..., Any]] = ()
) -> Cache:
    """Keeps a path of a tree in a stack's cache, see `specjax.types.KeepPath`. writes:
    the functions that write each layer; () stands for `write`."""
    slots = start[:, None] + path
    if isinstance(cache, Joined):
        new = join([read_slots(layer, slots) for layer in cache])
        return _put_joined(cache, new, start, layer=0)

    def move_slots(layer: Any, put: Callable[..., Any]) -> Any:
        if isinstance(layer, Int8Layer):  # as they are: nothing is rounded twice
            return Int8Layer(*(move_slots(part, put) for part in layer))
        if put is write and few_rows.serves_path(layer):
            return KeyValues(*run(KEEP, few_rows.Path(start, path, layer)))
        return put(layer, read_slots(layer, slots), start)[0]

    return list(map(move_slots, cache, writes or [write] * len(cache)))


def _keep(of: few_rows.Path) -> KeyValues:
    slots = of.start[:, None] + of.path
    return write(of.cache, read_slots(of.cache, slots), of.start)[0]


KEEP = Operation("keep", _keep, few_rows.native_path, few_rows.path_shapes)


@with_int8
def write(
    cache: KeyValues | Slice, new: KeyValues, start: Array
) -> tuple[KeyValues | Joined | Unwritten, KeyValues]:
    """Writes one layer's new keys and values as `cache.write_rows` does.

    Args:
      cache: the cache of the layer.
      new: its keys and values of T tokens, of as many rows as the cache has or of one
        that is repeated.
      start: [B], the slot of the first token.

    Returns:
      The cache, of all layers if it is joined, with slots `start .. start + T - 1` of
      each row written, or what is to be written there; and the same numbers of the
      layer for attention to read, which are best not yet in memory for one token.
    """
    layer = cache.joined[cache.layer] if isinstance(cache, Slice) else cache
    keys, values = new
    new = KeyValues(
        keys[: len(layer.keys)].astype(layer.keys.dtype),
        values[: len(layer.values)].astype(layer.values.dtype),
    )
    if isinstance(cache, Slice):
        if new.values.shape[2] == 1:
            return Unwritten(new, start), _insert_where_read(layer, new, start)
        written = _put_joined(cache.joined, join([new]), start, cache.layer)
        return written, written[cache.layer]
    if not jax.sharding.get_abstract_mesh().empty:  # a loop over rows gathers them
        return _write_at_once(cache, new, start)
    return jax.lax.platform_dependent(
        cache, new, start, cpu=_write_by_row, default=_write_at_once
    )


def _write_at_once(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    written = _write(cache, new, start)
    if new.values.shape[2] > 1:
        return written, written
    return written, _insert_where_read(cache, new, start)


@jax.named_scope("write_cache")
def _write(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    if start.size == 1:  # a batched update is several kernels
        return write_row(cache, new, start[0])
    return write_rows(cache, new, start)


@jax.named_scope("write_cache")
def _put_joined(cache: Joined, new: Joined, start: Array, layer: int) -> Joined:
    """Writes `new`, of one or more layers, from layer `layer` and slots `start` [B]
    on."""

    def write_layer(cache: Array, new: Array, start: Array) -> Array:
        return jax.lax.dynamic_update_slice(cache, new, (layer, 0, 0, start, 0))

    if start.size == 1:
        return Joined(write_layer(cache.buffer[0], new.buffer[0], start[0])[None])
    return Joined(jax.vmap(write_layer)(cache.buffer, new.buffer, start))


def _insert_where_read(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """Inserts a token where the cache is read, which lets a GPU's compiler make one
    kernel of all of attention that does not wait for a write."""
    here = jnp.arange(cache.values.shape[2]) == start[:, None]  # [B, S]
    here = here[:, None, None]  # [B, 1, 1, S]
    keys = jnp.where(here, new.keys, cache.keys)
    return KeyValues(keys, jnp.where(here.swapaxes(2, 3), new.values, cache.values))


def _write_by_row(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    """Writes in place. A CPU's compiler fuses a write with what reads the cache and
    then makes four copies of it for one token of one row; it does not fuse a loop, but
    unrolls one of a single turn first, so the count is hidden."""

    def write_one_row(row: Array, cache: KeyValues) -> KeyValues:
        only = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, row, 1), new)
        update, slot, zero = jax.lax.dynamic_update_slice, start[row], row * 0
        keys = update(cache.keys, only.keys, (row, zero, zero, slot))
        values = update(cache.values, only.values, (row, zero, slot, zero))
        return KeyValues(keys, values)

    # Of the slots' own type, whichever JAX_ENABLE_X64 makes the default.
    rows = jnp.asarray([0, start.size], start.dtype)
    count = rows[1] + (start[0] < 0)  # no slot is negative
    written = jax.lax.fori_loop(rows[0], count, write_one_row, cache)
    return written, written
