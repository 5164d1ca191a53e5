"""Weights in eight bits with a scale an output, and `dot` for these and floats.

Axes: K features in, N features out.
"""

from jax import Array

from specjax.native import product
from specjax.quantized import int8_product
from specjax.quantized.int8 import Int8, alike, beside

__all__ = ["Int8", "alike", "beside", "dot"]


def dot(x: Array, w: Array | Int8, transposed: bool = False) -> Array:
    """x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    multiply = int8_product.dot if isinstance(w, Int8) else product.dot
    return multiply(x, w, transposed)
