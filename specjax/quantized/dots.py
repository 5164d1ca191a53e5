"""`dot(x, w)`, of weights in floats or in eight bits.

Axes: K features in, N features out.
"""

from jax import Array

from specjax.native import product
from specjax.quantized import int8_product
from specjax.quantized.int8 import Int8


def dot(x: Array, w: Array | Int8, transposed: bool = False) -> Array:
    """x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    multiply = int8_product.dot if isinstance(w, Int8) else product.dot
    return multiply(x, w, transposed)
