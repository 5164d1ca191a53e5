"""Parts that several models share: norms, rotary positions, the feed-forward layer."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from specjax.models.dense import Dense, declare, multiply


def rms_norm(x: Array) -> Array:
    """Returns x / rms(x) over the last axis, in float32, without a learned scale."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
    return y.astype(x.dtype)


def rotary(x: Array, positions: Array) -> Array:
    """Turns pairs of features by an angle that grows with position (Su et al. 2021).

    x: [B, H, T, D] with D even. positions: [B, T]. Returns [B, H, T, D].
    """
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions[:, None, :, None] * frequency  # [B, 1, T, D / 2]
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    return turn(x, cos=cos, sin=sin)


def turn(x: Array, *, cos: Array, sin: Array) -> Array:
    """Turns features i and i + D / 2 of x [..., D] by an angle; cos, sin:
    [..., D / 2]."""
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate(
        [left * cos - right * sin, right * cos + left * sin], axis=-1
    )


def check_heads(dim: int, heads: int) -> None:
    """Raises ValueError for features that are not divided among so many heads."""
    if dim % heads:
        raise ValueError(f"dim {dim} is no multiple of heads {heads}")


def check_rotary(head_width: int) -> None:
    """Raises ValueError for heads whose features do not turn in pairs."""
    if head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {head_width}")


class Norm(nn.Module):
    """The norm `rms_norm`, or, if `learned`, a layer norm with a scale and a bias.
    [..., E] -> [..., E]."""

    learned: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if not self.learned:
            return rms_norm(x)
        axes, shape = ("embed",), x.shape[-1:]
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        scale = declare(self, "scale", ones, axes=axes, shape=shape)
        bias = declare(self, "bias", zeros, axes=axes, shape=shape)
        y = x.astype(jnp.float32)
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
        return (y * scale + bias).astype(x.dtype)


class RMSNorm(nn.Module):
    """The norm x / rms(x) times a learned scale, in float32: no mean is taken, no bias
    added.

    Attributes:
      eps: added to the mean square.
      offset: whether the scale is 1 + the parameter.
      axis: the logical name of the last axis.
    """

    eps: float = 1e-6
    offset: bool = False
    axis: str = "embed"

    def __call__(self, x: Array) -> Array:
        y, factor, scale = self._parts(x)
        return (y * factor * scale).astype(x.dtype)

    def scale_and_factor(self, x: Array) -> tuple[Array, Array]:
        """Returns scale * x and 1 / rms [..., 1], by which a product of the former is
        to be multiplied: a GPU then makes no kernel of the norm."""
        y, factor, scale = self._parts(x)
        return (y * scale).astype(x.dtype), factor

    @nn.compact
    def _parts(self, x: Array) -> tuple[Array, Array, Array]:
        init = nn.initializers.zeros if self.offset else nn.initializers.ones
        scale = declare(self, "scale", init, axes=(self.axis,), shape=x.shape[-1:])
        scale = 1 + scale if self.offset else scale
        y = x.astype(jnp.float32)
        factor = jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
        return y, factor, scale


class FeedForward(nn.Module):
    """The feed-forward layer activation(x W_in) W_out, [..., E] -> [..., E].

    width and activation are those of the hidden features, dtype that of the products;
    use_bias: whether these have biases; gated: whether the layer is
    (activation(x W_gate) * (x W_in)) W_out (Shazeer 2020).
    """

    width: int
    dtype: DTypeLike = jnp.float32
    use_bias: bool = False
    activation: Callable[[Array], Array] = nn.gelu
    gated: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        shape, axes = (x.shape[-1], self.width), ("embed", "mlp")
        product = functools.partial(Dense, dtype=self.dtype, use_bias=self.use_bias)
        names = ("gate", "in") if self.gated else ("in",)
        by = [product(shape, axes=axes, name=name) for name in names]
        hidden, *other = multiply(x, *by)
        hidden = self.activation(hidden)
        hidden = hidden * other[0] if other else hidden
        return product(shape[::-1], axes=axes[::-1], name="out")(hidden)
