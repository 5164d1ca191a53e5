"""A product of a few rows with weights in eight bits, in one pass, on a CPU.

As `product` does it for floats: a primitive that batches, of up to so many rows; of
more, and elsewhere, XLA's product of the same whole numbers.
Axes: M rows, K features in, N features out.
"""

import math

import jax.numpy as jnp
from jax import Array

from specjax.native import product
from specjax.native.library import loaded_int8
from specjax.quantized.int8 import Int8

READ = "float32", "bfloat16"  # dtypes of x that are exact in float32


def dot(x: Array, w: Int8, transposed: bool) -> Array:
    """x [..., K] times w [K, N], or [N, K] transposed: [..., N] float32."""
    scale = w.scale.reshape(-1)
    if w.scale.shape[transposed] != 1:
        x, scale = x.astype(jnp.float32) * scale, jnp.ones(1)
    rows, outputs = math.prod(x.shape[:-1]), w.shape[not transposed]
    scale = jnp.broadcast_to(scale.astype(jnp.float32), (outputs,))
    y = _dot(x.reshape(rows, x.shape[-1]), w.values, scale, transposed)
    return y.reshape(*x.shape[:-1], outputs)


def _dot(x: Array, values: Array, scale: Array, transposed: bool) -> Array:
    few = 1 <= len(x) <= product.MOST_ROWS and serves(x, values)
    if few and len(x) <= most_rows():
        return thin_p.bind(x, values, scale, transposed=transposed)
    return _plain(x, values, scale, transposed)


def most_rows() -> int:
    """How many rows a thin product has here at most; 0 where there is none."""
    most = product.most_rows()
    if not most:
        return 0
    if why := loaded_int8().problem:
        product._warn(why)
    return min(most, loaded_int8().most_rows)


def serves(x: Array, values: Array) -> bool:
    """Whether there is code for these operands, and enough for it to do."""
    return x.dtype.name in READ and values.ndim == 2 and values.size >= product.LEAST


def _plain(x, values, scale, transposed):
    values = values.astype(x.dtype)
    return product.plain(x, values.T if transposed else values) * scale


# Of x, values [K, N] or [N, K], scale [N]. They are not trained: it has no gradient.
thin_p = product.primitive("thin_int8", _plain, 1)


product.batched(thin_p, _dot, _plain)
