"""Eight-bit weights with a scale for each output, and `dot` for such weights and for
floats.

Axes: K features in, N features out.
"""

from jax import Array

from specjax.native import product
from specjax.quantized import dynamic_product, int8_product
from specjax.quantized.int8 import Dynamic, Int8, can_concatenate, concatenate

__all__ = ["Dynamic", "Int8", "can_concatenate", "concatenate", "dot"]


def dot(x: Array, w: Array | Int8, transposed: bool = False) -> Array:
    """Returns x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    if isinstance(w, Dynamic):
        return dynamic_product.dot(x, w, transposed)
    if isinstance(w, Int8):
        return int8_product.dot(x, w, transposed)
    return product.dot(x, w, transposed)
