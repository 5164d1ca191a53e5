"""The norms of activations, as functions of their parameters."""

from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Norm:
    """A norm over the last axis, computed in float32: `norm(x)`, [..., E] -> [..., E].

    Attributes:
      scale: [E], or None for 1.
      bias: [E], or None.
      law: "rms" divides by the root of the mean square; "layer" takes the mean away
        first.
      eps: added to the mean square.
      offset: whether the scale is 1 + the parameter.
    """

    scale: Array | None
    bias: Array | None
    law: Literal["rms", "layer"] = field(metadata=dict(static=True))
    eps: float = field(metadata=dict(static=True))
    offset: bool = field(default=False, metadata=dict(static=True))

    def __call__(self, x: Array) -> Array:
        y = x.astype(jnp.float32)
        if self.law == "layer":
            y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * self.factor(y)
        if self.scale is not None:
            y = y * self.scaled()
        return (y if self.bias is None else y + self.bias).astype(x.dtype)

    def factor(self, y: Array) -> Array:
        """Returns 1 / rms of y [..., E] in float32, [..., 1]."""
        return jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)

    def scaled(self) -> Array:
        """Returns the factor that a normalized row is multiplied by, [E]."""
        assert self.scale is not None
        return 1 + self.scale if self.offset else self.scale
