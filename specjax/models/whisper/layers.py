"""The layers of Whisper (Radford et al. 2022, Section 2.2): all norms come first, keys
have no bias, and GELU is exact.

Axes: B rows, T tokens in one call, S states of the encoder, F frames, E features.
"""

import functools

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models.attention import Attention
from specjax.models.blocks import FeedForward, Norm
from specjax.models.branching import Tree
from specjax.models.cache import KeyValues
from specjax.models.parameters import NORMAL

GELU = functools.partial(nn.gelu, approximate=False)


def sinusoids(count: int, width: int) -> np.ndarray:
    """Of positions 0 .. count - 1, [count, width]: sines before cosines, of wavelengths
    from 2 pi to 10000 times that, both included."""
    frequency = 10_000.0 ** -np.linspace(0.0, 1.0, width // 2)
    angle = np.arange(count)[:, None] * frequency
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


class Convolution(nn.Module):
    """Of three frames each, zeros beyond both ends: [B, F, K] -> [B, F / stride, E].

    A product of windows, as which a CPU computes it fastest.
    """

    width: int
    stride: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Array) -> Array:
        init = nn.with_logical_partitioning(NORMAL, ("window", "bands", "embed"))
        shape = 3, x.shape[-1], self.width
        kernel = self.param("kernel", init, shape).astype(self.dtype)
        zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("embed",))
        bias = self.param("bias", zeros, shape[2:]).astype(self.dtype)
        padded = jnp.pad(x.astype(self.dtype), ((0, 0), (1, 1), (0, 0)))
        last = x.shape[1]
        parts = [padded[:, i : i + last : self.stride] for i in range(3)]
        windows = jnp.concatenate(parts, axis=-1)
        wide = dict(preferred_element_type=jnp.float32)
        y = jnp.dot(windows, kernel.reshape(-1, self.width), **wide)
        return y.astype(self.dtype) + bias


def attention(features: int, heads: int, dtype: jnp.dtype, joined=False) -> Attention:
    options = dict(use_bias=True, key_bias=False, joined=joined)
    return Attention(features, heads, features // heads, dtype, **options)


class EncoderLayer(nn.Module):
    """Every state sees every other."""

    features: int
    heads: int
    mlp_width: int
    dtype: jnp.dtype

    def setup(self):
        self.attention_norm = Norm(learned=True)
        self.attention = attention(self.features, self.heads, self.dtype)
        self.mlp_norm = Norm(learned=True)
        self.mlp = FeedForward(self.mlp_width, self.dtype, True, GELU)

    def __call__(self, x: Array) -> Array:
        """x [B, S, E] -> [B, S, E]."""
        positions = jnp.arange(x.shape[1])[None]
        mask = jnp.ones((1, 1, x.shape[1]), bool)
        y = self.attention_norm(x)
        x = x + self.attention(y, positions, mask=mask)[0]
        return x + self.mlp(self.mlp_norm(x))


class DecoderLayer(nn.Module):
    """A token sees those before it, and all that the encoder gave. joined: as in
    `Config`."""

    features: int
    heads: int
    mlp_width: int
    dtype: jnp.dtype
    joined: bool = False

    def setup(self):
        sizes = self.features, self.heads, self.dtype
        self.attention_norm = Norm(learned=True)
        self.attention = attention(*sizes, self.joined)
        self.cross_attention_norm = Norm(learned=True)
        self.cross_attention = attention(*sizes)
        self.mlp_norm = Norm(learned=True)
        self.mlp = FeedForward(self.mlp_width, self.dtype, True, GELU)

    def read(self, states: Array) -> KeyValues:
        """Keys and values of what the encoder gave, [B, S, E]."""
        return self.cross_attention.read(states)

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: KeyValues | None,
        heard: KeyValues,
        tree: Tree | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E] at `positions` [B, T]; heard: what `read` gave; tree: as in
        `Attention`."""
        y = self.attention_norm(x)
        y, cache = self.attention(y, positions, cache, tree=tree)
        x = x + y
        everything = jnp.ones((1, 1, heard.values.shape[2]), bool)
        y = self.cross_attention_norm(x)
        x = x + self.cross_attention.across(y, heard, everything)
        return x + self.mlp(self.mlp_norm(x)), cache
