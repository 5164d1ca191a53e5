"""`dot(x, w)`, of weights in floats or in eight bits.

Axes: K features in, N features out.
"""

from jax import Array

from specjax.native import product
from specjax.quantized import int8_product
from specjax.quantized.int8 import Int8


def dot(x: Array, w: Array | Int8) -> Array:
    """x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    if isinstance(w, Int8):
        return int8_product.dot(x, w, transposed=False)
    return product.dot(x, w)


def dot_transposed(x: Array, w: Array | Int8) -> Array:
    """x [..., K] times w [N, K] transposed, which is not copied: [..., N] float32."""
    if isinstance(w, Int8):
        return int8_product.dot(x, w, transposed=True)
    return product.dot_transposed(x, w)
