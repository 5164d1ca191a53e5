"""Parts that several models share: norms, rotary positions, the feed-forward layer."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models.dense import Dense, multiply


def rms_norm(x: Array) -> Array:
    """x / rms(x) over the last axis, in float32, without a learned scale."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
    return y.astype(x.dtype)


def rotary(x: Array, positions: Array) -> Array:
    """Turns pairs of features by an angle that grows with position (Su et al. 2021). x
    [B, H, T, D] with D even, positions [B, T] -> [B, H, T, D]."""
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions[:, None, :, None] * frequency  # [B, 1, T, D / 2]
    return turned(x, jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype))


def turned(x: Array, cos: Array, sin: Array) -> Array:
    """Features i and i + D / 2 of x [..., D], turned: cos, sin [..., D / 2]."""
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
    """`rms_norm`; `learned`, a layer norm with a scale and a bias. [..., E] -> same."""

    learned: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if not self.learned:
            return rms_norm(x)
        shape = x.shape[-1:]
        ones, zeros = (
            nn.with_logical_partitioning(init, ("embed",))
            for init in (nn.initializers.ones, nn.initializers.zeros)
        )
        scale, bias = self.param("scale", ones, shape), self.param("bias", zeros, shape)
        y = x.astype(jnp.float32)
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
        return (y * scale + bias).astype(x.dtype)


class RMSNorm(nn.Module):
    """x / rms(x) times its scale, or 1 + its scale if `offset`, in float32: no mean is
    taken, no bias added. axis: the name of the last one. apart: scale * x and 1 / rms
    [..., 1], for a product to be multiplied by, after which a GPU makes no kernel of
    the norm."""

    eps: float = 1e-6
    offset: bool = False
    axis: str = "embed"

    @nn.compact
    def __call__(self, x: Array, apart: bool = False) -> Array | tuple[Array, Array]:
        init = nn.initializers.zeros if self.offset else nn.initializers.ones
        init = nn.with_logical_partitioning(init, (self.axis,))
        scale = self.param("scale", init, x.shape[-1:])
        scale = 1 + scale if self.offset else scale
        y = x.astype(jnp.float32)
        factor = jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
        if apart:
            return (y * scale).astype(x.dtype), factor
        return (y * factor * scale).astype(x.dtype)


class FeedForward(nn.Module):
    """activation(x W_in) W_out, with biases if `use_bias`. [..., E] -> [..., E]. gated:
    (activation(x W_gate) * (x W_in)) W_out instead (Shazeer 2020)."""

    width: int
    dtype: jnp.dtype = jnp.float32
    use_bias: bool = False
    activation: Callable = nn.gelu
    gated: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        shape, axes = (x.shape[-1], self.width), ("embed", "mlp")
        options = self.dtype, self.use_bias
        names = ("gate", "in") if self.gated else ("in",)
        by = [Dense(shape, *options, axes, name=name) for name in names]
        hidden, *other = multiply(x, *by)
        hidden = self.activation(hidden)
        hidden = hidden * other[0] if other else hidden
        return Dense(shape[::-1], *options, axes[::-1], name="out")(hidden)
