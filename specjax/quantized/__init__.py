"""Weights in eight bits with a scale an output, and `dot` for these and floats.

Axes: K features in, N features out.
"""

from jax import Array

from specjax.native import product
from specjax.quantized import dynamic_product, int8_product
from specjax.quantized.int8 import Dynamic, Int8, alike, beside

__all__ = ["Dynamic", "Int8", "alike", "beside", "dot"]


def dot(x: Array, w: Array | Int8, transposed: bool = False) -> Array:
    """x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    if isinstance(w, Dynamic):
        return dynamic_product.dot(x, w, transposed)
    multiply = int8_product.dot if isinstance(w, Int8) else product.dot
    return multiply(x, w, transposed)
