"""Layers applied to few rows, as calls of compiled code on a CPU: see
`native.operation`.

A decoder's token is read by hundreds of small programs, each of which takes longer to
begin than to run. Here a layer is four calls: a norm with the products of its result,
attention with all that belongs to it, the product after it, and the feed-forward
layer. What each computes is defined by its twin, in `dense`, `blocks` and `attention`.

A row's numbers do not depend on how many rows a call has, on the other rows, on unseen
slots or on the number of threads.
Axes: B rows, T tokens in one call, S slots, H heads of queries, K of keys and values,
D head width.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models.cache import KeyValues
from specjax.models.int8_cache import Int8Layer, Layer
from specjax.models.norms import Norm
from specjax.native import operation
from specjax.quantized import Dynamic, Int8

MOST = 512  # rows of a call
MOST_FLOAT32 = 48  # of a product with float32 weights; of 64, XLA's takes less time
FLOATS = "float32", "bfloat16"
LAWS = {None: 0, "rms": 1, "layer": 2}
ACTIVATIONS = {"none": 0, "silu": 1, "gelu": 2, "relu": 3, "exact_gelu": 4}


class Weights(NamedTuple):
    """A matrix [K, N], or [N, K] for a transposed product, and its bias [N] or None."""

    kernel: Any
    bias: Array | None = None


def serves(x: Array, kernels: Sequence[Any], transposed: bool = False) -> bool:
    """Returns whether compiled code multiplies x [..., K] by these matrices."""
    kinds = {_kind(kernel, transposed) for kernel in kernels}
    known = None not in kinds and not {"int8", "dynamic"} <= kinds
    most = MOST_FLOAT32 if "float32" in kinds else MOST
    return known and _has_few_rows(x, most) and operation.in_use()


def _has_few_rows(x: Array, most: int = MOST) -> bool:
    few = 1 <= math.prod(x.shape[:-1]) <= most
    return few and x.dtype.name in FLOATS and jax.sharding.get_abstract_mesh().empty


def _kind(kernel: Any, transposed: bool) -> str | None:
    """Returns the name of the code for a matrix, None if there is none."""
    if kernel.ndim != 2 or kernel.dtype.name not in FLOATS:
        return None
    if not isinstance(kernel, Int8):
        return kernel.dtype.name
    if kernel.scale.shape[transposed] != 1:  # its outputs are not those of the product
        return None
    return "dynamic" if isinstance(kernel, Dynamic) else "int8"


def _empty_array() -> Array:
    return jnp.zeros(0, jnp.float32)


def _or_nothing(x: Array | None) -> Array:
    return _empty_array() if x is None else x


def _buffers(weights: Sequence[Weights]) -> Sequence[Array]:
    """Returns three arrays for each matrix: its numbers, scales and bias."""
    out = []
    for kernel, bias in weights:
        numbers, scale = kernel, None
        if isinstance(kernel, Int8):
            numbers = kernel.values
            if isinstance(kernel, Dynamic):
                numbers = kernel.outputs
            scale = kernel.scale.reshape(-1)
        out += [numbers, _or_nothing(scale), _or_nothing(bias)]
    return out


def _norm_buffers(norm: Norm | None) -> tuple[Array, Array]:
    if norm is None:
        return _empty_array(), _empty_array()
    return _or_nothing(norm.scale), _or_nothing(norm.bias)


def _norm_attributes(norm: Norm | None) -> dict[str, Any]:
    return dict(
        kind=np.int32(LAWS[norm.law if norm else None]),
        eps=np.float32(norm.eps if norm else 0),
        offset=np.float32(norm.offset if norm else False),
    )


def _is_dynamic(weights: Sequence[Weights]) -> bool:
    return any(isinstance(each.kernel, Dynamic) for each in weights)


class NormOperands(NamedTuple):
    """The operands of norm(x), [..., E]."""

    x: Array
    norm: Norm


def normalize(x: Array, norm: Norm) -> Array:
    """Returns norm(x), computed by compiled code for few rows."""
    if not (_has_few_rows(x) and operation.in_use()):
        return norm(x)
    return operation.run(NORM, NormOperands(x, norm))[0]


def _normalize(of: NormOperands) -> Sequence[Array]:
    return [of.norm(of.x)]


def same_shape(of: Any) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of an operation's result, which is that of its input x."""
    return [jax.ShapeDtypeStruct(of.x.shape, of.x.dtype)]


def native_norm(of: NormOperands) -> Sequence[Array]:
    """Calls the native code in rows_norm.cc."""
    return jax.ffi.ffi_call("specjax_rows_norm", same_shape(of))(
        of.x, *_norm_buffers(of.norm), **_norm_attributes(of.norm)
    )


NORM = operation.Operation("norm", _normalize, native_norm, same_shape)


class Products(NamedTuple):
    """The operands of norm(x) W_i + b_i, to the first of which a residual is added.

    Attributes:
      x: [..., K].
      weights: the weights of each product.
      norm: the norm that is applied to x, or None.
      residual: [..., N], or None.
    """

    x: Array
    weights: tuple[Weights, ...]
    norm: Norm | None = None
    residual: Array | None = None


def product_shapes(of: Products) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of products, which have the dtype of x."""
    return [
        jax.ShapeDtypeStruct((*of.x.shape[:-1], each.kernel.shape[1]), of.x.dtype)
        for each in of.weights
    ]


def native_products(of: Products) -> Sequence[Array]:
    """Calls the native code in rows_products.cc."""
    return jax.ffi.ffi_call("specjax_rows_products", product_shapes(of))(
        of.x,
        _or_nothing(of.residual),
        *_norm_buffers(of.norm),
        *_buffers(of.weights),
        **_norm_attributes(of.norm),
        transposed=False,
        dynamic=_is_dynamic(of.weights),
    )


class Logits(NamedTuple):
    """The operands of a readout x W in float32. table: [V, E] if `tied`, with a row for
    each id, else [E, V]."""

    x: Array
    table: Any


def readout_shapes(of: Logits, tied: bool) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of logits, which are float32."""
    shape = *of.x.shape[:-1], of.table.shape[not tied]
    return [jax.ShapeDtypeStruct(shape, jnp.float32)]


def native_readout(of: Logits, tied: bool) -> Sequence[Array]:
    """Calls the native code in rows_products.cc for logits [..., V] of features [...,
    E]."""
    weights = (Weights(of.table),)
    return jax.ffi.ffi_call("specjax_rows_products", readout_shapes(of, tied))(
        of.x,
        _empty_array(),
        *_norm_buffers(None),
        *_buffers(weights),
        **_norm_attributes(None),
        transposed=tied,
        dynamic=_is_dynamic(weights),
    )


class FeedForward(NamedTuple):
    """The operands of a feed-forward layer of x [..., E], see `blocks.FeedForward`.

    Attributes:
      weights: the weights of the gate, if there is one, in and out.
      norm: the norm that is applied to x, or None.
    """

    x: Array
    weights: tuple[Weights, ...]
    norm: Norm | None


def native_feed_forward(of: FeedForward, activation: str, add: bool) -> Sequence[Array]:
    """Calls the native code in rows_feed_forward.cc. add: whether x is added."""
    return jax.ffi.ffi_call("specjax_rows_feed_forward", same_shape(of))(
        of.x,
        *_norm_buffers(of.norm),
        *_buffers(of.weights),
        **_norm_attributes(of.norm),
        activation=np.int32(ACTIVATIONS[activation]),
        gated=len(of.weights) == 3,
        add=add,
        dynamic=_is_dynamic(of.weights),
    )


class AttentionOperands(NamedTuple):
    """The operands of the attention of a text to its cache.

    Attributes:
      query: [B, T, H D]; not yet normalised or turned, and so are keys.
      key: [B, T, K D].
      value: [B, T, K D].
      cache: the cache of the layer.
      start: [B], the slot of the first token.
      mask: bool [B or 1, T, S], True where a token sees a slot.
      bias: the bias of scores, [B or 1, H, T, S], or None.
      norms: the norms of each head's queries and keys, or None.
      turn: a `blocks.Turn`, or None.
    """

    query: Array
    key: Array
    value: Array
    cache: Layer
    start: Array
    mask: Array
    bias: Array | None
    norms: tuple[Norm, Norm] | None
    turn: Any


class AttentionKind(NamedTuple):
    """The static arguments of attention, beside its `AttentionOperands`.

    Attributes:
      width: D, of a head.
      scale: the scale of scores.
      cap: the cap of scores, see `attention.attend`; None leaves them.
      ring: whether slots are a ring, see `window_cache`.
    """

    width: int
    scale: float
    cap: float | None = None
    ring: bool = False


def attended_shapes(of: AttentionOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of the attention's output, [B, T, H D], and of the cache's
    arrays."""
    arrays = of.query, *jax.tree.leaves(of.cache)
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def serves_attention(of: AttentionOperands, kind: AttentionKind) -> bool:
    """Returns whether compiled code computes the attention to a layer's cache for these
    queries. It adds a bias before it caps scores, and `attention.attend` after, so it
    takes only one of both."""
    if of.bias is not None and kind.cap is not None:
        return False
    if not isinstance(of.cache, Layer) or not _fits_slots(of.query, of.cache.values):
        return False
    count, slots = of.query.shape[1], of.cache.values.shape[2]
    if of.bias is not None:
        heads = of.query.shape[2] // kind.width
        if of.bias.shape[1:] != (heads, count, slots):
            return False
    eight_bits = isinstance(of.cache, Int8Layer)
    stored = jnp.int8 if eight_bits else of.query.dtype
    return count <= slots and of.cache.values.dtype == stored


def _fits_slots(query: Array, values: Array) -> bool:
    """Returns whether compiled code attends with few queries [B, T, H D] to values [B,
    K, S, D] of a text each."""
    return len(values) == len(query) and _has_few_rows(query) and operation.in_use()


def native_attention(of: AttentionOperands, kind: AttentionKind) -> Sequence[Array]:
    """Calls the native code in rows_attention.cc, which writes the cache in place."""
    scales = (
        (None, None) if of.norms is None else (of.norms[0].scale, of.norms[1].scale)
    )
    turn = (None, None) if of.turn is None else of.turn
    norm = None if of.norms is None else of.norms[0]
    cache = jax.tree.leaves(of.cache)
    in_place = {10 + i: 1 + i for i in range(len(cache))}
    call = jax.ffi.ffi_call(
        "specjax_rows_attention", attended_shapes(of), input_output_aliases=in_place
    )
    shape = (len(of.mask), *of.query.shape[1:2], of.cache.values.shape[2])
    return call(
        of.query,
        of.key,
        of.value,
        *map(_or_nothing, scales),
        *map(_or_nothing, turn),
        of.start.astype(jnp.int32),
        jnp.broadcast_to(of.mask, shape),
        _or_nothing(of.bias),
        *cache,
        scale=np.float32(kind.scale),
        cap=np.float32(kind.cap or 0),
        eps=np.float32(norm.eps if norm else 0),
        offset=np.float32(norm.offset if norm else False),
        ring=kind.ring,
    )


class AcrossOperands(NamedTuple):
    """The operands of the attention to a text that was read before.

    Attributes:
      query: [B, T, H D].
      memory: keys [B, K, D, S] and values [B, K, S, D] of that text.
      mask: bool [B or 1, T or 1, S], True where a token sees a slot.
    """

    query: Array
    memory: KeyValues
    mask: Array


def serves_across(of: AcrossOperands) -> bool:
    """Returns whether compiled code computes the attention to another text for these
    queries."""
    return of.memory.values.dtype == of.query.dtype and _fits_slots(
        of.query, of.memory.values
    )


def across_shapes(of: AcrossOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of the attention's output, which is that of the queries."""
    return [jax.ShapeDtypeStruct(of.query.shape, of.query.dtype)]


def native_across(of: AcrossOperands, kind: AttentionKind) -> Sequence[Array]:
    """Calls the native code in rows_attention.cc, which writes nothing."""
    shape = len(of.mask), of.query.shape[1], of.memory.values.shape[2]
    call = jax.ffi.ffi_call("specjax_rows_across", across_shapes(of))
    mask = jnp.broadcast_to(of.mask, shape)
    return call(of.query, mask, *of.memory, scale=np.float32(kind.scale))


class Path(NamedTuple):
    """The operands of slots of a layer's cache that move to others.

    Attributes:
      start: [B], the first slot that is written.
      path: [B, N], from which slots after it, see `types.KeepPath`.
      cache: the cache of the layer.
    """

    start: Array
    path: Array
    cache: KeyValues


def serves_path(cache: Any) -> bool:
    """Tells whether compiled code moves slots of this layer's cache."""
    if not isinstance(cache, KeyValues) or cache.keys.ndim != 4:
        return False
    sizes = {leaf.dtype.itemsize for leaf in cache}
    known = len(sizes) == 1 and sizes <= {1, 2, 4}
    return known and jax.sharding.get_abstract_mesh().empty and operation.in_use()


def path_shapes(of: Path) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of keys and values."""
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in of.cache]


def native_path(of: Path) -> Sequence[Array]:
    """Calls rows_keep of handlers_rows.cc, which moves slots in place."""
    call = jax.ffi.ffi_call(
        "specjax_rows_keep", path_shapes(of), input_output_aliases={2: 0, 3: 1}
    )
    start, path = of.start.astype(jnp.int32), of.path.astype(jnp.int32)
    size = np.int32(of.cache.keys.dtype.itemsize)
    return call(start, path, *of.cache, bytes=size)
