"""Weights stored as whole numbers of eight bits, a scale for each output.

The weights are what is read back: q * s, with s such that the largest of an output's
is 127. An output is a column of a matrix that multiplies, and a row of an embedding.
"""

import math
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jax import Array

SCALE = "/scale8"  # after the name of what it scales
LARGEST = 127
LEAST = 4096  # numbers of a matrix that is worth it
TABLES = ("embedding", "positions")  # an output is a row


def pack(flat: Mapping[str, Array]) -> dict[str, Array]:
    """Each large matrix as int8 and, by its name and `SCALE`, float32 scales of its
    shape but for 1 along the axis of inputs; anything else as float32."""
    packed = {}
    for name, leaf in flat.items():
        packed[name] = leaf = jnp.asarray(leaf, jnp.float32)
        if not jnp.isfinite(leaf).all():
            raise ValueError(f"{name} is not finite: the training diverged, save none")
        if rounds(leaf.shape):
            packed[name], packed[name + SCALE] = rounded(leaf, inputs_of(name))
    return packed


def rounds(shape: Sequence[int]) -> bool:
    """Whether an array of this shape is a matrix that is worth it."""
    return len(shape) == 2 and math.prod(shape) >= LEAST


def inputs_of(name: str) -> int:
    """The axis of a matrix along which an output's numbers lie."""
    return 1 if name.split("/")[-1] in TABLES else 0


def rounded(leaf: Array, inputs: int) -> tuple[Array, Array]:
    """q int8 and s float32, of which a float32 matrix is q s up to rounding."""
    largest = jnp.abs(leaf).max(inputs, keepdims=True)
    scale = jnp.where(largest > 0, largest, 1.0) / LARGEST
    return jnp.round(leaf / scale).astype(jnp.int8), scale
