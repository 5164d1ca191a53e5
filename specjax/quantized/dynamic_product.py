"""A product of eight-bit weights with activations that are rounded as well.

Each row of x is rounded to 16-bit integers times a scale of its own, with as many
levels as the sum can hold. A sum of integers is exact, so the result is the same in any
order, for any number of rows in a call, and in our C++ as in XLA. Eight bits would not
be enough: a few activations of a row are far larger than the rest.

For a model this holds where norms and attention are native operations too
(`models.few_rows`). Elsewhere these sum floats, in an order that depends on the number
of rows. Where their last bit moves an activation to another level, the step is as large
as the rounding itself, and logits move far more than with `Int8`. Axes: M rows, K
features in, N outputs.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.native import product
from specjax.quantized import int8_product
from specjax.quantized.int8 import Dynamic

SUM = 2**31 - 1  # the largest integer of 32 bits
WEIGHT = 128  # the largest absolute value of an eight-bit integer


def dot(x: Array, w: Dynamic, transposed: bool) -> Array:
    """Returns x [..., K] times w [K, N], or [N, K] transposed: [..., N] float32.

    Raises ValueError unless the outputs are the columns of w, or its rows if
    transposed.
    """
    if w.scale.shape[transposed] != 1:
        raise ValueError(
            "the outputs of a table must be its rows, those of a matrix its columns"
        )
    y = _dot(x.reshape(-1, x.shape[-1]), w.outputs, w.scale.reshape(-1))
    return y.reshape(*x.shape[:-1], -1)


def row_bits(K: int) -> int:
    """Returns the bits that the integers of a row may have so that a sum of K products
    fits into 32 bits.

    The integers are at most 2 to this power.
    """
    return min(2**15 - 1, SUM // (WEIGHT * K)).bit_length() - 1


def round_rows(x: Array) -> tuple[Array, Array]:
    """Returns q int32 [M, K] and s float32 [M, 1] such that x is q s up to rounding.

    s is a power of two, so it adds no rounding. For a row that is not finite s is NaN.
    """
    x, most = x.astype(jnp.float32), row_bits(x.shape[-1])
    unsigned = jax.lax.bitcast_convert_type(jnp.abs(x), jnp.int32)  # ordered as |x|
    exponent = unsigned.max(-1, keepdims=True) >> 23  # that of the largest, plus 127
    finite, exponent = exponent < 255, jnp.maximum(exponent, most)
    q = jnp.round(x * _power_of_two(253 + most - exponent))
    s = jnp.where(finite, _power_of_two(exponent + 1 - most), jnp.nan)
    return jnp.where(finite, q, 0).astype(jnp.int32), s


def _power_of_two(exponent: Array) -> Array:
    """Returns 2 to the power `exponent` - 127."""
    return jax.lax.bitcast_convert_type(exponent << 23, jnp.float32)


def _dot(x: Array, values: Array, scale: Array, transposed: bool = True) -> Array:
    """Returns the product for any number of rows, by our C++ code where it is
    compiled."""
    exact = x.dtype.name in int8_product.READ and values.ndim == 2
    if exact and x.size and product.max_rows():
        return dynamic_p.bind(x, values, scale, transposed=transposed)
    return _xla_product(x, values, scale, transposed)


def _xla_product(x: Array, values: Array, scale: Array, transposed: bool) -> Array:
    """Returns the product as two eight-bit products, 256 high + low, whose overflows
    cancel out."""
    del transposed  # always True
    q, row_scale = round_rows(x)
    low = (q + 128) % 256 - 128
    high = (q - low) // 256

    def times(part: Array) -> Array:
        return jnp.dot(
            part.astype(jnp.int8), values.T, preferred_element_type=jnp.int32
        )

    sums = 256 * times(high) + times(low)
    return sums.astype(jnp.float32) * row_scale * scale


# Operands: x, values [N, K], scale [N]. No gradient: such weights are not trained.
dynamic_p = product.primitive("thin_int8_dynamic", _xla_product, 1)
product.register_batching(dynamic_p, _dot, _xla_product)
