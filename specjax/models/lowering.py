"""What compilers ask for: the same models, in words that make fewer kernels and copies.

The other modules say what a model computes; here XLA is asked for the same numbers: a
GPU's compiler, where a small draft takes as long as it launches kernels, and a CPU's,
which copies caches. A model without `model`, `in_memory`, `share_repeated_rows` and
`join`, written by `cache.write_rows`, would compute the same.

One token of one row is what a draft consists of. Its products with matrices, and its
norms, are two kernels each on a GPU; of two equal rows they are one. So there the row
is repeated, but for its cache and for attention. A few tokens of a row are what a
target verifies: attention is one kernel if each token is a row of its own. A joined
cache is one buffer for the keys and values of all layers, written by one kernel.
Axes: B rows, T tokens in one call, N layers, S slots, H heads, D head width.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import quantized
from specjax.models.cache import KeyValues, taken, write_row, write_rows
from specjax.models.rounded import Layer, Rounded, rounding
from specjax.types import Model

FEW = 8  # tokens of a call, up to which it is a step's and not a text's
COPIED = 2**22  # bytes, which take longer to copy than a kernel to launch
SHORT = 1024  # slots, up to which a GPU reads them once more for each of few tokens

# One token of one row.


def model(plain: Model, joined: bool = False) -> Model:
    """The same model as compilers want it. joined: each list of layers' caches that
    its `init` makes is one buffer."""
    init = _joining(plain.init) if joined else plain.init
    apply, readout = _apply(plain.apply), _readout(plain.readout)
    return plain._replace(init=init, apply=apply, readout=readout)


def _apply(apply: Callable) -> Callable:
    def run(params, tokens: Array, start: Array, cache, branches=None):
        def plainly(params, tokens: Array, start: Array, cache, branches):
            features, layers = apply(params, tokens, start, cache, branches)
            return features, _settle(cache, layers)

        def twice(params, tokens: Array, start: Array, cache, branches):
            twins = _repeat(tokens)
            features, cache = plainly(params, twins, start, cache, branches)
            return features[:1], cache

        arguments = params, tokens, start, cache, branches
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


def share_repeated_rows(attend: Callable) -> Callable:
    """Attention (query, memory, mask, bias), computed once for a row that is repeated,
    and for one token without the axis T: products of a vector, as such, are one kernel
    with the softmax on a GPU, and no copy of the cache on a CPU. On a GPU so are those
    of a few tokens, of which each is a row then; the cache is not copied for them."""

    def by_token(query: Array, memory: KeyValues, mask, bias) -> Array:
        batch, _, count, _ = query.shape

        def rows(x: Array) -> Array:
            """[B or 1, T or 1, ...] -> [B * T, ...]."""
            shape = x.shape[2:]
            return jnp.broadcast_to(x, (batch, count, *shape)).reshape(-1, *shape)

        memory = jax.tree.map(lambda x: rows(x[:, None]), memory)
        bias = None if bias is None else rows(bias.swapaxes(1, 2))
        mixed = attend(rows(query.swapaxes(1, 2)), memory, rows(mask), bias)
        return mixed.reshape(batch, count, -1)

    @functools.wraps(attend)
    def run(query: Array, memory: KeyValues, mask: Array, bias) -> Array:
        rows, count = len(memory.values), query.shape[2]
        if 1 < count <= FEW and memory.values.shape[2] <= SHORT:
            ways = dict(cuda=by_token, default=attend)
            return jax.lax.platform_dependent(query, memory, mask, bias, **ways)
        if count > 1:
            return attend(query, memory, mask, bias)
        bias = None if bias is None else bias[:, :, 0]
        mixed = attend(query[:rows, :, 0], memory, mask[:, 0], bias)[:, None]
        return mixed if len(query) == rows else _repeat(mixed, len(query))

    return run


# Several products of one text.


def products(x: Array, kernels: Sequence[Array]) -> list[Array]:
    """x [..., K] times each of kernels [K, N]: [..., N] in float32 each. Of a few
    tokens they are one product on a GPU, whose kernel reads each matrix where it is:
    XLA makes one by itself of matrices of less than 32 MB."""

    def apart(x: Array, *kernels: Array) -> list[Array]:
        return [quantized.dot(x, kernel) for kernel in kernels]

    def together(x: Array, *kernels: Array) -> list[Array]:
        ends = np.cumsum([kernel.shape[1] for kernel in kernels])
        return jnp.split(quantized.dot(x, quantized.beside(kernels)), ends[:-1], -1)

    if x.size > FEW * x.shape[-1] or not quantized.alike(kernels):
        return apart(x, *kernels)
    return jax.lax.platform_dependent(x, *kernels, cuda=together, default=apart)


def beside_no_other(x: Array, kernel: Array) -> Array:
    """x [B, T, K] as it is, for its product with a large kernel [K, N] to be one by
    itself: XLA for GPUs multiplies one text by all matrices of up to 32 MB at once, and
    copies them beside each other first where they are many."""

    def alone(x: Array, kernel: Array) -> Array:
        return jax.lax.optimization_barrier((x, kernel))[0]

    def as_it_is(x: Array, kernel: Array) -> Array:
        del kernel
        return x

    if not isinstance(kernel, jax.Array) or kernel.nbytes < COPIED:
        return x
    return jax.lax.platform_dependent(x, kernel, cuda=alone, default=as_it_is)


# A joined cache.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joined:
    """The cache of N layers in one buffer, to be read as a sequence of them. buffer:
    [B, N, 2, H, S, D], keys before values."""

    buffer: Array

    def __len__(self) -> int:
        return self.buffer.shape[1]

    def __getitem__(self, layers: int | slice) -> "KeyValues | Joined":
        part = self.buffer[:, layers]
        if isinstance(layers, slice):
            return Joined(part)
        return KeyValues(part[:, 0].swapaxes(2, 3), part[:, 1])

    def __iter__(self) -> Iterator[KeyValues]:
        return map(self.__getitem__, range(len(self)))


class Slice(NamedTuple):
    """A layer's part of a joined cache."""

    joined: Joined
    layer: int


class Unwritten(NamedTuple):
    """A layer's new keys and values, to be written from slot `start` [B] on."""

    new: KeyValues
    start: Array


class Layers:
    """A joined cache while a call passes through its layers, as a list of them."""

    def __init__(self, joined: Joined):
        self.joined, self.unwritten = joined, []

    def __getitem__(self, layer: int) -> Slice:
        return Slice(self.joined, layer)

    def __setitem__(self, layer: int, after: Joined | Unwritten) -> None:
        if isinstance(after, Joined):
            self.joined = after
        else:
            self.unwritten.append(after)


def layers(cache: Sequence[KeyValues] | None, count: int) -> list | Layers:
    """What a call of `count` layers reads a layer's cache from and puts it back to;
    without a cache None, of each."""
    if isinstance(cache, Joined):
        return Layers(cache)
    return [None] * count if cache is None else list(cache)


def join(layers: Sequence[KeyValues]) -> Joined:
    """A joined cache of what layers hold. A CPU copies it at every call."""
    return Joined(jnp.stack(list(map(_packed, layers)), axis=1))


def _joining(init: Callable) -> Callable:
    def stack(node) -> bool:
        return isinstance(node, list) and isinstance(node[0], KeyValues)

    def run(params, prompt, slots: int):
        cache = init(params, prompt, slots)
        joined = lambda node: join(node) if stack(node) else node  # noqa: E731
        return jax.tree.map(joined, cache, is_leaf=stack)

    return run


def _packed(layer: KeyValues) -> Array:
    """[B, 2, H, S, D]."""
    return jnp.stack([layer.keys.swapaxes(2, 3), layer.values], axis=1)


def _settle(cache: Any, after: Any) -> Any:
    """`after` a call, where joined caches of `cache` are still `Layers`."""

    def joined(node) -> bool:
        return isinstance(node, Joined)

    def settled(old: Any, after: Any) -> Any:
        if not isinstance(after, Layers):
            return after
        if not after.unwritten:
            return after.joined
        new = join([layer.new for layer in after.unwritten])
        return _put_joined(old, new, after.unwritten[-1].start, layer=0)

    if any(map(joined, jax.tree.leaves(cache, is_leaf=joined))):
        return jax.tree.map(settled, cache, after, is_leaf=joined)
    return after


# Writing a layer's cache.


def keep(
    cache: Sequence[Layer], start: Array, path: Array, writes: Sequence = ()
) -> Sequence[Layer]:
    """As `specjax.types.Model.keep`, of a stack's cache. writes: of each layer, what
    writes it; () is `write`."""
    slots = start[:, None] + path
    if isinstance(cache, Joined):
        new = join([taken(layer, slots) for layer in cache])
        return _put_joined(cache, new, start, layer=0)

    def moved(layer: Layer, put: Callable) -> Layer:
        if isinstance(layer, Rounded):  # as they are: nothing is rounded twice
            return Rounded(*(moved(part, put) for part in layer))
        return put(layer, taken(layer, slots), start)[0]

    return list(map(moved, cache, writes or [write] * len(cache)))


@rounding
def write(
    cache: KeyValues | Slice, new: KeyValues, start: Array
) -> tuple[KeyValues | Joined | Unwritten, KeyValues]:
    """`cache.write_rows` of one layer, and what attention is to read. cache: of the
    layer. new: its keys and values of T tokens, of as many rows as the cache has or of
    one that is repeated. start: [B], the slot of the first token. Returns the cache, of
    all layers if it is joined, with slots `start .. start + T - 1` of each row written,
    or what is to be written there; and the same numbers of the layer to read, of one
    token at best not yet in memory."""
    layer = cache.joined[cache.layer] if isinstance(cache, Slice) else cache
    new = KeyValues(
        *(x[: len(old)].astype(old.dtype) for x, old in zip(new, layer, strict=True))
    )
    if isinstance(cache, Slice):
        if new.values.shape[2] == 1:
            return Unwritten(new, start), _ahead(layer, new, start)
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
    written = _put(cache, new, start)
    if new.values.shape[2] > 1:
        return written, written
    return written, _ahead(cache, new, start)


@jax.named_scope("write_cache")
def _put(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    if start.size == 1:  # a batched update is several kernels
        return write_row(cache, new, start[0])
    return write_rows(cache, new, start)


@jax.named_scope("write_cache")
def _put_joined(cache: Joined, new: Joined, start: Array, layer: int) -> Joined:
    """`new`, of one layer or more, from layer `layer` and slots `start` [B] on."""

    def put(cache: Array, new: Array, start: Array) -> Array:
        return jax.lax.dynamic_update_slice(cache, new, (layer, 0, 0, start, 0))

    if start.size == 1:
        return Joined(put(cache.buffer[0], new.buffer[0], start[0])[None])
    return Joined(jax.vmap(put)(cache.buffer, new.buffer, start))


def _ahead(cache: KeyValues, new: KeyValues, start: Array) -> KeyValues:
    """A token put where it is read: a GPU's compiler makes one kernel of all of
    attention, which does not wait for what is written."""
    here = jnp.arange(cache.values.shape[2]) == start[:, None]  # [B, S]
    here = here[:, None, None]  # [B, 1, 1, S]
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
        update, slot, zero = jax.lax.dynamic_update_slice, start[row], row * 0
        keys = update(cache.keys, only.keys, (row, zero, zero, slot))
        values = update(cache.values, only.values, (row, zero, slot, zero))
        return KeyValues(keys, values)

    # Of the slots' own type, whichever JAX_ENABLE_X64 makes the default.
    rows = jnp.asarray([0, start.size], start.dtype)
    count = rows[1] + (start[0] < 0)  # no slot is negative
    written = jax.lax.fori_loop(rows[0], count, put, cache)
    return written, written
