"""The layers of a decoder of Llama's kind.

Axes: B rows, T tokens in one call, E features, D head width.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models.blocks import FeedForward
from specjax.models.cache import KeyValues
from specjax.models.grouped import GroupedAttention
from specjax.models.llama.sizes import STYLES, Config

GATES = {"silu": nn.silu, "gelu": nn.gelu}


class Norm(nn.Module):
    """x / rms(x) times its scale, or 1 + its scale if `offset`, in float32.

    axis: the name of the last one.
    """

    eps: float
    offset: bool = False
    axis: str = "embed"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        init = nn.initializers.zeros if self.offset else nn.initializers.ones
        init = nn.with_logical_partitioning(init, (self.axis,))
        scale = self.param("scale", init, x.shape[-1:])
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
        y = y * (1 + scale if self.offset else scale)
        return y.astype(x.dtype)


class Block(nn.Module):
    """Attention, then feed-forward, each added to its input."""

    config: Config

    @nn.compact
    def __call__(
        self,
        x: Array,
        rotate: Callable,
        mask: Array,
        cache: KeyValues | None,
        write: Callable,
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E]; the others as in `GroupedAttention`."""
        config, style = self.config, STYLES[self.config.style]
        dtype = jnp.dtype(config.dtype)
        norm = functools.partial(Norm, config.eps, style.offset)
        sizes = config.dim, config.num_heads, config.key_heads, config.head_width
        attention = GroupedAttention(
            *sizes,
            dtype,
            norm=functools.partial(_head_norm, norm) if style.normed else None,
            use_bias=config.biased,
            out_bias=config.out_biased,
            scale=config.scale,
            cap=config.score_cap,
            name="attention",
        )
        options = config.mlp_biased, GATES[style.gate], True
        mlp = FeedForward(config.mlp_dim, dtype, *options, name="mlp")
        y = norm(name="attention_norm")(x)
        y, cache = attention(y, rotate, mask, cache, write)
        if style.after:
            y = norm(name="attention_after_norm")(y)
        x = x + y
        y = mlp(norm(name="mlp_norm")(x))
        if style.after:
            y = norm(name="mlp_after_norm")(y)
        return x + y, cache


def _head_norm(norm: Callable, name: str) -> Norm:
    return norm(axis="head_width", name=name)
