"""Whisper (Radford et al. 2022) and Distil-Whisper (Gandhi et al. 2023) write speech.

The encoder runs in `init`, or before it, where two models share what it gives; what the
decoder reads of it stays in the cache. All norms come first, keys have no bias, and
GELU is exact (Section 2.2).
Axes: B rows, T tokens in one call, F frames, M bands, S states of the encoder, E
features, V vocabulary.
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models import cache as caches
from specjax.models import dense, lowering
from specjax.models.attention import Attention
from specjax.models.blocks import FeedForward, Norm, check_heads
from specjax.models.cache import KeyValues
from specjax.models.dense import NORMAL, parameters, table
from specjax.models.tree_mask import (
    Tree,
    embed_positions,
    positions_of,
    tree_over_slots,
)
from specjax.types import Branches, Encoded, Features, Model, Prompt


class Config(NamedTuple):
    """Sizes. `dtype` is that of activations and cache; logits are always float32.
    frames: of a window, twice as many as the encoder gives states. bands: of a frame.
    positions: of a text, with its prompt. joined: one buffer for the caches of all
    decoder layers, see `models.lowering`."""

    vocab: int
    dim: int
    mlp_dim: int
    encoder_layers: int
    decoder_layers: int
    num_heads: int
    bands: int = 80
    frames: int = 3000
    positions: int = 448
    dtype: str = "float32"
    joined: bool = False

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads

    @property
    def states(self) -> int:
        """How many vectors the encoder gives of a window."""
        return self.frames // 2


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    check_heads(config.dim, config.num_heads)


GELU = functools.partial(nn.gelu, approximate=False)


def sinusoids(count: int, width: int) -> np.ndarray:
    """Of positions 0 .. count - 1, [count, width]: sines before cosines, of wavelengths
    from 2 pi to 10000 times that, both included."""
    frequency = 10_000.0 ** -np.linspace(0.0, 1.0, width // 2)
    angle = np.arange(count)[:, None] * frequency
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


class Convolution(nn.Module):
    """Of three frames each, zeros beyond both ends: [B, F, K] -> [B, F / stride, E]. A
    product of windows, as which a CPU computes it fastest."""

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


def attention(config: Config, joined: bool = False) -> Attention:
    options = dict(use_bias=True, key_bias=False, joined=joined)
    sizes = config.dim, config.num_heads, config.head_width
    return Attention(*sizes, jnp.dtype(config.dtype), **options)


def feed_forward(config: Config) -> FeedForward:
    return FeedForward(config.mlp_dim, jnp.dtype(config.dtype), True, GELU)


class EncoderLayer(nn.Module):
    """Every state sees every other."""

    config: Config

    def setup(self):
        self.attention_norm = Norm(learned=True)
        self.attention = attention(self.config)
        self.mlp_norm = Norm(learned=True)
        self.mlp = feed_forward(self.config)

    def __call__(self, x: Array) -> Array:
        """x [B, S, E] -> [B, S, E]."""
        positions = jnp.arange(x.shape[1])[None]
        mask = jnp.ones((1, 1, x.shape[1]), bool)
        y = self.attention_norm(x)
        x = x + self.attention(y, positions, mask=mask)[0]
        return x + self.mlp(self.mlp_norm(x))


class DecoderLayer(nn.Module):
    """A token sees those before it, and all that the encoder gave."""

    config: Config

    def setup(self):
        self.attention_norm = Norm(learned=True)
        self.attention = attention(self.config, self.config.joined)
        self.cross_attention_norm = Norm(learned=True)
        self.cross_attention = attention(self.config)
        self.mlp_norm = Norm(learned=True)
        self.mlp = feed_forward(self.config)

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: KeyValues | None,
        heard: KeyValues,
        tree: Tree | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E] at `positions` [B, T]; heard: of what the encoder gave; tree: as
        in `Attention`."""
        y = self.attention_norm(x)
        y, cache = self.attention(y, positions, cache, tree=tree)
        x = x + y
        everything = jnp.ones((1, 1, heard.values.shape[2]), bool)
        y = self.cross_attention_norm(x)
        x = x + self.cross_attention.across(y, heard, everything)
        return x + self.mlp(self.mlp_norm(x)), cache


class Cache(NamedTuple):
    """own: keys and values of the text so far, None to decode it whole. read: a layer's
    of what the encoder gave, computed once."""

    own: caches.Cache | None
    read: caches.Cache


def first_caches(cache: Cache, layers: int) -> Cache:
    """Returns the caches of the decoder's first `layers` layers."""
    return cache._replace(own=cache.own[:layers], read=cache.read[:layers])


class Encoder(nn.Module):
    """Log-mel frames to what the decoder attends to."""

    config: Config

    @nn.compact
    def __call__(self, frames: Array) -> Array:
        """frames [B, F, M] -> [B, S, E]."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        x = GELU(Convolution(config.dim, 1, dtype, name="conv_0")(frames))
        x = GELU(Convolution(config.dim, 2, dtype, name="conv_1")(x))
        count = dict(positions=config.states, embed=config.dim)
        fixed = table(self, "positions", ("positions", "embed"), _sinusoids, **count)
        x = x + jax.lax.stop_gradient(fixed).astype(dtype)  # never trained
        for i in range(config.encoder_layers):
            x = EncoderLayer(config, name=f"layers_{i}")(x)
        return Norm(learned=True, name="norm")(x)


class Decoder(nn.Module):
    """Tokens to the features that the readout multiplies."""

    config: Config

    def setup(self):
        config = self.config
        sizes = dict(vocab=config.vocab, positions=config.positions, embed=config.dim)
        self.embedding = table(self, "embedding", ("vocab", "embed"), **sizes)
        self.positions = table(self, "positions", ("positions", "embed"), **sizes)
        layers = range(config.decoder_layers)
        self.layers = [DecoderLayer(config) for _ in layers]
        self.norm = Norm(learned=True)

    def read(self, states: Array) -> list[KeyValues]:
        """Each layer's keys and values of what the encoder gave, [B, S, E]."""
        return [layer.cross_attention.read(states) for layer in self.layers]

    def __call__(
        self,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> tuple[Array, Cache]:
        """tokens [B, T] at slots `start` [B] on -> (features [B, T, E], cache)."""
        own = lowering.layers(cache.own, len(self.layers))
        positions = positions_of(start, tokens.shape[1], branches)
        tree = tree_over_slots(branches, start, caches.slots_of(cache.own))
        x = self.embedding[tokens] + embed_positions(self.positions, positions)
        x = lowering.in_memory(x.astype(self.config.dtype), cache.read)
        for i, layer in enumerate(self.layers):
            x, own[i] = layer(x, positions, own[i], cache.read[i], tree)
        return self.norm(x), cache._replace(own=own)


class Whisper(nn.Module):
    config: Config

    def setup(self):
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)

    def __call__(self, frames: Array, tokens: Array) -> Array:
        """Features [B, T, E] of whole texts, each token seeing those before it."""
        cache = Cache(None, self.decoder.read(self.encoder(frames)))
        return self.decoder(tokens, jnp.zeros(1, jnp.int32), cache)[0]


def read(config: Config, params, states: Array) -> list[KeyValues]:
    """Each decoder layer's keys and values of what the encoder gave, [B, S, E]."""
    own = {"params": params["decoder"]}
    return Decoder(config).apply(own, states, method="read")


def listening(
    config: Config, params, states: Array, tokens: Array
) -> tuple[Array, list[Array]]:
    """Whole texts [B, T] over what the encoder gave, [B, S, E]: features [B, T, E], and
    how much each layer's heads attend to each state, before softmax: [B, H, T, S]."""
    own, start = {"params": params["decoder"]}, jnp.zeros(1, jnp.int32)
    cache = Cache(None, read(config, params, states))
    (features, _), kept = Decoder(config).apply(
        own, tokens, start, cache, mutable="intermediates"
    )
    layers = (kept["intermediates"][f"layers_{i}"] for i in range(len(cache.read)))
    return features, [layer["cross_attention"]["scores"][0] for layer in layers]


def _sinusoids(key: Array, shape: tuple[int, int], dtype=jnp.float32) -> Array:
    del key
    return jnp.asarray(sinusoids(*shape), dtype)


def init_params(key: Array, config: Config):
    """A fresh parameter tree, each leaf boxed with its logical axis names."""
    frames = jnp.zeros((1, config.frames, config.bands))
    tokens = jnp.zeros((1, 1), jnp.int32)
    return Whisper(config).init(key, frames, tokens)["params"]


# Whisper tiny has 37,760,640 parameters.
abstract_params, partition_specs, num_params = parameters(init_params)


def readout(config: Config, params, features: Array) -> Array:
    """features [..., E] -> logits [..., V] float32, by the embedding."""
    return dense.readout(features, params["decoder"]["embedding"], True, config.dtype)


def logits(config: Config, params, features: Features, tokens: Array) -> Array:
    """tokens [B, T] from the first one on -> [B, T, V] float32, without a cache."""
    outputs = Whisper(config).apply({"params": params}, features.frames, tokens)
    return readout(config, params, outputs)


def encode(config: Config, params, features: Features) -> Encoded:
    """What the encoder gives, for prompts of every model that shares it."""
    own = {"params": params["encoder"]}
    return Encoded(Encoder(config).apply(own, features.frames))


def same_encoder(params, other) -> bool:
    """Whether two models hear alike: the same numbers in both encoders. Then `encode`
    runs once for both, and `other | {"encoder": params["encoder"]}` needs one copy of
    them."""
    encoders = params["encoder"], other["encoder"]
    shapes = [jax.tree.map(jnp.shape, encoder) for encoder in encoders]
    return shapes[0] == shapes[1] and all(
        bool(jnp.array_equal(a, b))
        for a, b in zip(*map(jax.tree.leaves, encoders), strict=True)
    )


def build(config: Config) -> Model:
    """The model of `specjax.types.Model`: prompts need `inputs`, `Features` or what
    `encode` gave of them."""
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)
    heard_as = (config.frames, config.bands), (config.states, config.dim)
    reads = Features(heard_as[0]), Encoded(heard_as[1])

    def init(params, prompt: Prompt, slots: int) -> Cache:
        heard = prompt.inputs
        if isinstance(heard, Features):
            heard = encode(config, params, heard)
        states = heard.states.astype(dtype)
        across = read(config, params, states)
        sizes = states.shape[0], config.num_heads, slots, config.head_width
        own = caches.empty(config.decoder_layers, sizes, dtype)
        return Cache(own, across)

    def apply(params, tokens, start, cache: Cache, branches=None):
        own = {"params": params["decoder"]}
        return decoder.apply(own, tokens, start, cache, branches)

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        return cache._replace(own=lowering.keep(cache.own, start, path))

    limits = config.vocab, abstract_params(config), config.positions, True
    read_out = functools.partial(readout, config)
    model = Model(init, apply, read_out, *limits, reads=reads, keep=keep)
    return lowering.model(model, config.joined)
