"""Weights stored as eight-bit integers, with a scale for each output.

Reading gives q * s, where s makes the largest |q| of an output 127. An output is a
column of a matrix that multiplies, and a row of an embedding.
"""

import math
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jax import Array

SCALE = "/scale8"  # follows the name of the matrix that it scales
LARGEST = 127
LEAST = 4096  # the smallest matrix that is worth rounding, in numbers
TABLES = ("embedding", "positions")  # matrices whose outputs are rows


def pack_arrays(flat: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the arrays to store: large matrices as int8 with scales, else float32.

    The scales of a matrix, float32, are stored under its name and `SCALE`. They have
    its shape, but size 1 along the axis of inputs. Raises ValueError for weights that
    are not finite.
    """
    packed = {}
    for name, leaf in flat.items():
        packed[name] = leaf = jnp.asarray(leaf, jnp.float32)
        if not jnp.isfinite(leaf).all():
            raise ValueError(f"{name} is not finite: the training diverged")
        if is_quantized(leaf.shape):
            packed[name], packed[name + SCALE] = quantize(leaf, input_axis(name))
    return packed


def is_quantized(shape: Sequence[int]) -> bool:
    """Returns whether an array of this shape is stored in eight bits."""
    return len(shape) == 2 and math.prod(shape) >= LEAST


def input_axis(name: str) -> int:
    """Returns the axis of a matrix along which the numbers of one output lie."""
    return 1 if name.split("/")[-1] in TABLES else 0


def quantize(leaf: Array, inputs: int) -> tuple[Array, Array]:
    """Returns q int8 and s float32, such that a float32 matrix is q s up to rounding.

    inputs: the axis along which the numbers of one output lie.
    """
    largest = jnp.abs(leaf).max(inputs, keepdims=True)
    scale = jnp.where(largest > 0, largest, 1.0) / LARGEST
    return jnp.round(leaf / scale).astype(jnp.int8), scale
