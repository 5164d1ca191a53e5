"""Parts that several models share: norms, rotary positions, the feed-forward layer."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models.attention import Attention, KeyValues


def rms_norm(x: Array) -> Array:
    """x / rms(x) over the last axis, in float32, without a learned scale."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
    return y.astype(x.dtype)


def rotary(x: Array, positions: Array, base: float = 10_000.0) -> Array:
    """Turns pairs of features by an angle that grows with position (Su et al. 2021).

    x [B, H, T, D] with D even, positions [B, T] -> [B, H, T, D].
    """
    half = x.shape[-1] // 2
    frequency = base ** (-jnp.arange(half) / half)
    angle = positions[:, None, :, None] * frequency  # [B, 1, T, D / 2]
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate(
        [left * cos - right * sin, right * cos + left * sin], axis=-1
    )


class FeedForward(nn.Module):
    """GELU(x W_in) W_out. [..., E] -> [..., E]."""

    width: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        hidden = self._dense(self.width, "in", ("embed", "mlp"))(x)
        return self._dense(x.shape[-1], "out", ("mlp", "embed"))(nn.gelu(hidden))

    def _dense(self, features: int, name: str, axes: tuple[str, str]) -> nn.Dense:
        init = nn.with_logical_partitioning(nn.initializers.normal(0.02), axes)
        return nn.Dense(
            features, use_bias=False, dtype=self.dtype, kernel_init=init, name=name
        )


class Block(nn.Module):
    """A pre-norm layer: attention, then feed-forward, each added to its input."""

    heads: int
    head_width: int
    mlp_width: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, x: Array, positions: Array, cache: KeyValues | None = None
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E] at `positions` [B, T] -> ([B, T, E], cache)."""
        attention = Attention(
            self.heads, self.head_width, self.dtype, rotary, name="attention"
        )
        mixed, cache = attention(rms_norm(x), positions, cache)
        x = x + mixed
        return x + FeedForward(self.mlp_width, self.dtype, name="mlp")(
            rms_norm(x)
        ), cache
