"""Rotary positions (Su et al. 2021), as published checkpoints were trained with them.

Axes: B rows, T tokens, H heads, D head width.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models.llama.sizes import Rotation, Stretch


def rotator(rotation: Rotation, width: int, positions: Array, dtype) -> Callable:
    """x [B, H, T, D] -> x, pairs of its features turned by angles that grow with
    positions [B, T]: feature i by the same as i + D / 2.

    Angles are float32; their cosines and sines are rounded to `dtype`.
    """
    frequency = jnp.asarray(frequencies(rotation, width))
    angle = positions[:, None, :, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)

    def turn(x: Array) -> Array:
        left, right = jnp.split(x, 2, axis=-1)
        turned = left * cos - right * sin, right * cos + left * sin
        return jnp.concatenate(turned, axis=-1)

    return turn


def frequencies(rotation: Rotation, width: int) -> np.ndarray:
    """Radians a position, [D / 2] float32."""
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequency = 1 / np.float32(rotation.base) ** exponent
    if rotation.stretch is not None:
        frequency = stretched(rotation.stretch, frequency)
    return np.float32(frequency / rotation.slower)


def stretched(stretch: Stretch, frequency: np.ndarray) -> np.ndarray:
    """Llama 3.1's: slow turns slower by `factor`, fast ones as they were."""
    turns = stretch.original * frequency / (2 * math.pi)  # within the original length
    share = (turns - stretch.low) / (stretch.high - stretch.low)
    share = np.clip(share, 0, 1)  # 0 is slow, 1 is fast
    return share * frequency + (1 - share) * frequency / stretch.factor
