"""Whisper (Radford et al. 2022) and Distil-Whisper (Gandhi et al. 2023), which
transcribe speech.

The encoder runs in `init`, or before it, where two models share its output; what the
decoder reads of it stays in the cache. All norms come first, keys have no bias, and
GELU is exact (Section 2.2).
Axes: B rows, T tokens in one call, F frames, M bands, S states of the encoder, E
features, V vocabulary.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from specjax.models import cache as caches
from specjax.models import dense, lowering
from specjax.models.attention import Attention
from specjax.models.blocks import FeedForward, Norm, check_heads, exact_gelu
from specjax.models.cache import KeyValues
from specjax.models.dense import declare, describe
from specjax.models.tree_mask import (
    Tree,
    embed_positions,
    token_positions,
    tree_over_slots,
)
from specjax.native.embed import take_rows
from specjax.types import Branches, Encoded, Features, Model, Prompt


class Config(NamedTuple):
    """The sizes of a Whisper.

    Attributes:
      vocab: V.
      dim: E.
      mlp_dim: the width of the feed-forward layer.
      num_heads: H.
      bands: the number of bands of a frame, M.
      frames: the number of frames of a window, F: twice as many as the encoder has
        states.
      positions: the most positions of a text and its prompt.
      dtype: the dtype of activations and cache; logits are always float32.
      joined: whether the caches of all decoder layers are one buffer, see
        `models.lowering`.
    """

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
        """The number of vectors that the encoder makes of a window, S."""
        return self.frames // 2


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    check_heads(config.dim, config.num_heads)


def sinusoids(count: int, width: int) -> np.ndarray:
    """Returns the vectors of positions 0 .. count - 1, [count, width]: sines before
    cosines, of wavelengths from 2 pi to 10000 times that, both included."""
    frequency = 10_000.0 ** -np.linspace(0.0, 1.0, width // 2)
    angle = np.arange(count)[:, None] * frequency
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


class Convolution(nn.Module):
    """A convolution over three frames, with zeros beyond both ends: [B, F, K] -> [B, F
    / stride, E]. It is computed as a product of windows, which is fastest on a CPU."""

    width: int
    stride: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array) -> Array:
        axes, shape = ("window", "bands", "embed"), (3, x.shape[-1], self.width)
        kernel = declare(self, "kernel", axes=axes, shape=shape).astype(self.dtype)
        zeros = nn.initializers.zeros
        bias = declare(self, "bias", zeros, axes=axes[2:], shape=shape[2:])
        bias = bias.astype(self.dtype)
        padded = jnp.pad(x.astype(self.dtype), ((0, 0), (1, 1), (0, 0)))
        last = x.shape[1]
        parts = [padded[:, i : i + last : self.stride] for i in range(3)]
        windows = jnp.concatenate(parts, axis=-1)
        flat = kernel.reshape(-1, self.width)
        y = jnp.dot(windows, flat, preferred_element_type=jnp.float32)
        return y.astype(self.dtype) + bias


def attention(config: Config, joined: bool = False) -> Attention:
    """Returns the attention of a Whisper, whose keys have no bias."""
    return Attention(
        features=config.dim,
        heads=config.num_heads,
        head_width=config.head_width,
        dtype=jnp.dtype(config.dtype),
        use_bias=True,
        key_bias=False,
        joined=joined,
    )


def feed_forward(config: Config) -> FeedForward:
    """Returns the feed-forward layer of a Whisper, with an exact GELU."""
    dtype = jnp.dtype(config.dtype)
    return FeedForward(config.mlp_dim, dtype, use_bias=True, activation=exact_gelu)


class EncoderLayer(nn.Module):
    """A layer in which every state sees every other."""

    config: Config

    def setup(self) -> None:
        self.attention_norm = Norm(learned=True)
        self.attention = attention(self.config)
        self.mlp_norm = Norm(learned=True)
        self.mlp = feed_forward(self.config)

    def __call__(self, x: Array) -> Array:
        """Returns the layer's output [B, S, E] for its input x [B, S, E]."""
        positions = jnp.arange(x.shape[1])[None]
        mask = jnp.ones((1, 1, x.shape[1]), bool)
        y = self.attention_norm(x)
        x = x + self.attention(y, positions, mask=mask)[0]
        return x + self.mlp(self.mlp_norm(x))


class DecoderLayer(nn.Module):
    """A layer in which a token sees those before it, and all states of the encoder."""

    config: Config

    def setup(self) -> None:
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
        cache: Any,
        *,
        states: KeyValues,
        tree: Tree | None = None,
    ) -> tuple[Array, Any]:
        """Returns ([B, T, E], cache) of x [B, T, E] at `positions` [B, T].

        states: keys and values of the encoder's states. tree: as in `Attention`.
        """
        dim = self.config.dim
        x, cache = self.attention(
            x,
            positions,
            cache,
            tree=tree,
            before=self.attention_norm.law(dim),
            add=x,
        )
        everything = jnp.ones((1, 1, states.values.shape[2]), bool)
        across = self.cross_attention_norm.law(dim)
        x = self.cross_attention.across(x, states, everything, before=across, add=x)
        return self.mlp(x, norm=self.mlp_norm.law(dim), add=True), cache


class Cache(NamedTuple):
    """The cache of a decoder, and of the encoder's states that it attends to.

    own: each layer's keys and values of the text so far; None where a whole text is
    decoded in one call. read: each layer's keys and values of the encoder's states,
    computed once. The shapes are those of `models.cache`.
    """

    own: caches.Cache | None
    read: caches.Cache


def first_caches(cache: Cache, layers: int) -> Cache:
    """Returns the caches of the decoder's first `layers` layers."""
    own = None if cache.own is None else cache.own[:layers]
    return cache._replace(own=own, read=cache.read[:layers])


class Encoder(nn.Module):
    """The layers that turn log-mel frames into the states that the decoder attends
    to."""

    config: Config

    @nn.compact
    def __call__(self, frames: Array) -> Array:
        """Returns the states [B, S, E] of frames [B, F, M]."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        x = exact_gelu(Convolution(config.dim, 1, dtype, name="conv_0")(frames))
        x = exact_gelu(Convolution(config.dim, 2, dtype, name="conv_1")(x))
        axes, shape = ("positions", "embed"), (config.states, config.dim)
        fixed = declare(self, "positions", _sinusoids, axes=axes, shape=shape)
        x = x + jax.lax.stop_gradient(fixed).astype(dtype)  # never trained
        for i in range(config.encoder_layers):
            x = EncoderLayer(config, name=f"layers_{i}")(x)
        return Norm(learned=True, name="norm")(x)


class Decoder(nn.Module):
    """The layers that turn tokens into the features that the readout multiplies."""

    config: Config

    def setup(self) -> None:
        config = self.config
        self.embedding = declare(
            self, "embedding", axes=("vocab", "embed"), shape=(config.vocab, config.dim)
        )
        self.positions = declare(
            self,
            "positions",
            axes=("positions", "embed"),
            shape=(config.positions, config.dim),
        )
        layers = range(config.decoder_layers)
        self.layers = [DecoderLayer(config) for _ in layers]
        self.norm = Norm(learned=True)

    def read(self, states: Array) -> list[KeyValues]:
        """Returns each layer's keys and values of the encoder's states [B, S, E]."""
        return [layer.cross_attention.read(states) for layer in self.layers]

    def __call__(
        self,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> tuple[Array, Cache]:
        """Returns (features [B, T, E], cache) of tokens [B, T] at slots `start` [B]
        on."""
        own = lowering.layers(cache.own, len(self.layers))
        positions = token_positions(start, tokens.shape[1], branches)
        tree = tree_over_slots(branches, start, caches.count_slots(cache.own))
        x = take_rows(self.embedding, tokens) + embed_positions(
            self.positions, positions
        )
        x = lowering.in_memory(x.astype(self.config.dtype), cache.read)
        for i, layer in enumerate(self.layers):
            states = cache.read[i]
            x, own[i] = layer(x, positions, own[i], states=states, tree=tree)
        return self.norm(x), cache._replace(own=own)


class Whisper(nn.Module):
    """An encoder of sound and a decoder of text."""

    config: Config

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)

    def __call__(self, frames: Array, tokens: Array) -> Array:
        """Returns the features [B, T, E] of whole texts, in which each token sees those
        before it."""
        cache = Cache(None, self.decoder.read(self.encoder(frames)))
        return self.decoder(tokens, jnp.zeros(1, jnp.int32), cache)[0]


def read(config: Config, params: Any, states: Array) -> list[KeyValues]:
    """Returns each decoder layer's keys and values of the encoder's states
    [B, S, E]."""
    own = {"params": params["decoder"]}
    layers: Any = Decoder(config).apply(own, states, method="read")
    return layers


def features_and_scores(
    config: Config, params: Any, states: Array, tokens: Array
) -> tuple[Array, list[Array]]:
    """Returns the features [B, T, E] of whole texts [B, T] over the encoder's states
    [B, S, E], and each layer's scores of every state before softmax, [B, H, T, S]."""
    own, start = {"params": params["decoder"]}, jnp.zeros(1, jnp.int32)
    cache = Cache(None, read(config, params, states))
    found: Any = Decoder(config).apply(
        own, tokens, start, cache, mutable="intermediates"
    )
    (features, _), kept = found
    layers = (kept["intermediates"][f"layers_{i}"] for i in range(len(cache.read)))
    return features, [layer["cross_attention"]["scores"][0] for layer in layers]


def _sinusoids(
    key: Array,
    shape: Sequence[int],
    dtype: DTypeLike | None = jnp.float32,
    out_sharding: Any = None,
) -> Array:
    del key, out_sharding
    count, width = shape
    return jnp.asarray(sinusoids(count, width), dtype)


def init_params(key: Array, config: Config) -> Any:
    """Returns fresh parameters, each leaf boxed with the logical names of its axes."""
    frames = jnp.zeros((1, config.frames, config.bands))
    tokens = jnp.zeros((1, 1), jnp.int32)
    return Whisper(config).init(key, frames, tokens)["params"]


# Whisper tiny has 37,760,640 parameters.
abstract_params, partition_specs, num_params = describe(init_params)


def readout(config: Config, params: Any, features: Array) -> Array:
    """Returns the logits [..., V] float32 of features [..., E], by the embedding."""
    table = params["decoder"]["embedding"]
    return dense.readout(features, table, tied=True, dtype=config.dtype)


def logits(config: Config, params: Any, features: Features, tokens: Array) -> Array:
    """Returns the logits [B, T, V] float32 of tokens [B, T] from the first one on,
    without a cache."""
    outputs: Any = Whisper(config).apply({"params": params}, features.frames, tokens)
    return readout(config, params, outputs)


def encode(config: Config, params: Any, features: Features) -> Encoded:
    """Returns the encoder's output, for prompts of every model that shares the
    encoder."""
    own = {"params": params["encoder"]}
    states: Any = Encoder(config).apply(own, features.frames)
    return Encoded(states)


def same_encoder(params: Any, other: Any) -> bool:
    """Returns whether both encoders hold the same numbers. Then `encode` runs once for
    both models, and `other | {"encoder": params["encoder"]}` needs one copy of them."""
    encoders = params["encoder"], other["encoder"]
    shapes = [jax.tree.map(jnp.shape, encoder) for encoder in encoders]
    return shapes[0] == shapes[1] and all(
        bool(jnp.array_equal(a, b))
        for a, b in zip(*map(jax.tree.leaves, encoders), strict=True)
    )


def build(config: Config) -> Model:
    """Returns the model of these sizes, whose prompts need `inputs`: `Features`, or the
    `Encoded` that `encode` makes of them."""
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)
    frames: Any = config.frames, config.bands  # shapes of a row, see `Model.reads`
    states: Any = config.states, config.dim

    def init(params: Any, prompt: Prompt, slots: int) -> Cache:
        heard = prompt.inputs
        if isinstance(heard, Features):
            heard = encode(config, params, heard)
        states = heard.states.astype(dtype)
        across = read(config, params, states)
        own = caches.empty(
            config.decoder_layers,
            batch=states.shape[0],
            heads=config.num_heads,
            slots=slots,
            width=config.head_width,
            dtype=dtype,
        )
        return Cache(own, across)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> Any:
        own = {"params": params["decoder"]}
        return decoder.apply(own, tokens, start, cache, branches)

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        assert cache.own is not None
        return cache._replace(own=lowering.keep(cache.own, start, path))

    model = Model(
        init,
        apply,
        functools.partial(readout, config),
        vocab=config.vocab,
        shapes=abstract_params(config),
        slots=config.positions,
        encodes=True,
        reads=(Features(frames), Encoded(states)),
        keep=keep,
    )
    return lowering.model(model, config.joined)
