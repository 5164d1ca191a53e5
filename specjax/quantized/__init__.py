"""Weights in eight bits with a scale an output, and `dot` for these and floats."""

from specjax.quantized.dots import dot
from specjax.quantized.int8 import Int8, alike, beside

__all__ = ["Int8", "alike", "beside", "dot"]
