"""A product with weights in eight bits of activations that are rounded too.

Each row of x is rounded to whole numbers of sixteen bits times a scale of its own, of
as many levels as the sum holds. A sum of whole numbers is exact: the result is the same
in any order, of however many rows a call has, by our C++ and by XLA. Eight bits would
not do: a few activations of a row are far larger than the rest.

That is said of a product, not of a model. Attention and norms sum floats, by the number
of rows in another order; where their last bit moves an activation to another level, the
step is as large as the rounding itself, and logits move far more than with `Int8`.
Axes: M rows, K features in, N outputs.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.native import product
from specjax.quantized import int8_product
from specjax.quantized.int8 import Dynamic

SUM = 2**31 - 1  # the largest of 32 bits
WEIGHT = 128  # the largest of eight


def dot(x: Array, w: Dynamic, transposed: bool) -> Array:
    """x [..., K] times w [K, N], or [N, K] transposed: [..., N] float32."""
    if w.scale.shape[transposed] != 1:
        raise ValueError("the outputs of a table are its rows, of a matrix its columns")
    y = _dot(x.reshape(-1, x.shape[-1]), w.outputs, w.scale.reshape(-1))
    return y.reshape(*x.shape[:-1], -1)


def bits(K: int) -> int:
    """So many has the largest whole number of a row, 2 to their power: a sum of K
    products is one of 32 bits."""
    return min(2**15 - 1, SUM // (WEIGHT * K)).bit_length() - 1


def rounded(x: Array) -> tuple[Array, Array]:
    """q int32 [M, K] and s float32 [M, 1], of which x is q s up to rounding: s is a
    power of two, by which nothing else is rounded. Of a row that is not finite it is no
    number."""
    x, most = x.astype(jnp.float32), bits(x.shape[-1])
    unsigned = jax.lax.bitcast_convert_type(jnp.abs(x), jnp.int32)  # ordered as |x|
    exponent = unsigned.max(-1, keepdims=True) >> 23  # of the largest, and 127 more
    finite, exponent = exponent < 255, jnp.maximum(exponent, most)
    q = jnp.round(x * _power(253 + most - exponent))
    s = jnp.where(finite, _power(exponent + 1 - most), jnp.nan)
    return jnp.where(finite, q, 0).astype(jnp.int32), s


def _power(exponent: Array) -> Array:
    """2 to `exponent` - 127."""
    return jax.lax.bitcast_convert_type(exponent << 23, jnp.float32)


def _dot(x: Array, values: Array, scale: Array, transposed: bool = True) -> Array:
    """Of any number of rows, by our C++ where there is a library."""
    exact = x.dtype.name in int8_product.READ and values.ndim == 2
    if exact and x.size and int8_product.most_rows():
        return dynamic_p.bind(x, values, scale, transposed=transposed)
    return _plain(x, values, scale, transposed)


def _plain(x, values, scale, transposed):
    """Two products of eight bits, 256 high + low; what overflows comes back in."""
    del transposed  # it always is
    q, of_row = rounded(x)
    low = (q + 128) % 256 - 128
    high = (q - low) // 256

    def times(part: Array) -> Array:
        return jnp.dot(
            part.astype(jnp.int8), values.T, preferred_element_type=jnp.int32
        )

    sums = 256 * times(high) + times(low)
    return sums.astype(jnp.float32) * of_row * scale


# Of x, values [N, K], scale [N]. They are not trained: it has no gradient.
dynamic_p = product.primitive("thin_int8_dynamic", _plain, 1)
product.batched(dynamic_p, _dot, _plain)
