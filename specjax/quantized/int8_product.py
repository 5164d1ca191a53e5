"""A product of a few rows with eight-bit weights, in one pass, on a CPU.

It works like `product` for floats: a primitive that batches, for a limited number of
rows; for more rows, and on other devices, XLA multiplies by the same integers. Axes: M
rows, K features in, N features out.
"""

import math

import jax.numpy as jnp
from jax import Array

from specjax.native import product
from specjax.quantized.int8 import Int8

READ = "float32", "bfloat16"  # dtypes of x whose numbers are exact in float32


def dot(x: Array, w: Int8, transposed: bool) -> Array:
    """Returns x [..., K] times w [K, N], or [N, K] transposed: [..., N] float32."""
    scale = w.scale.reshape(-1)
    if w.scale.shape[transposed] != 1:
        x, scale = x.astype(jnp.float32) * scale, jnp.ones(1)
    rows, outputs = math.prod(x.shape[:-1]), w.shape[not transposed]
    scale = jnp.broadcast_to(scale.astype(jnp.float32), (outputs,))
    y = _dot(x.reshape(rows, x.shape[-1]), w.values, scale, transposed)
    return y.reshape(*x.shape[:-1], outputs)


def _dot(x: Array, values: Array, scale: Array, transposed: bool) -> Array:
    few = 1 <= len(x) <= product.MOST_ROWS and serves(x, values)
    if few and len(x) <= product.max_rows():
        return thin_p.bind(x, values, scale, transposed=transposed)
    return _xla_product(x, values, scale, transposed)


def serves(x: Array, values: Array) -> bool:
    """Returns whether there is compiled code for these operands, and the matrix is
    large enough."""
    return x.dtype.name in READ and values.ndim == 2 and values.size >= product.LEAST


def _xla_product(x: Array, values: Array, scale: Array, transposed: bool) -> Array:
    values = values.astype(x.dtype)
    return product.xla_product(x, values.T if transposed else values) * scale


# Operands: x, values [K, N] or [N, K], scale [N]. It has no gradient: such weights are
# not trained.
thin_p = product.primitive("thin_int8", _xla_product, 1)


product.register_batching(thin_p, _dot, _xla_product)
