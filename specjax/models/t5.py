"""T5 (Raffel et al. 2020): v1.1, the family of Leviathan et al. (2023), 4.1, and v1.0.

The encoder runs in `init`, and what the decoder reads of it stays in the cache, so that
a step never learns that there is an encoder. Decoding starts from the token PAD.
Parameter names and shapes are those of T5X.
Axes: B rows, T tokens, I input tokens, S cache slots, E features, V vocabulary.
"""

from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models import alone, attention
from specjax.models.alone import enter
from specjax.models.attention import KeyValues
from specjax.models.t5_layers import (
    FAN_IN,
    DecoderLayer,
    EncoderLayer,
    Norm,
    RelativeBias,
)
from specjax.types import Model, Prompt

PAD, END = 0, 1


class Config(NamedTuple):
    """Sizes. gated: GELU with a gate (v1.1), or relu. tied: the embedding is also the
    readout (v1.0). pieces: ids from here on are padding of the vocabulary and are never
    emitted; None if there is none. `dtype`: of activations and cache. joined: one
    buffer for the keys of all decoder layers and one for the values, see
    `models.attention.empty`."""

    vocab: int
    dim: int
    mlp_dim: int
    encoder_layers: int
    decoder_layers: int
    num_heads: int
    head_width: int
    gated: bool = True
    tied: bool = False
    pieces: int | None = None
    dtype: str = "float32"
    joined: bool = False


class Inputs(NamedTuple):
    """What an encoder reads: tokens [B, I] right-padded, length [B] at least 1."""

    tokens: Array
    length: Array


class Cache(NamedTuple):
    """own: keys and values of the text so far. read: a layer's of the input, computed
    once; length [B]: how much of it is real."""

    own: attention.Cache
    read: list[KeyValues]
    length: Array


class Embedder(nn.Module):
    """One table for inputs and outputs."""

    config: Config

    def setup(self):
        init = nn.with_logical_partitioning(
            nn.initializers.normal(1.0), ("vocab", "embed")
        )
        shape = self.config.vocab, self.config.dim
        self.embedding = self.param("embedding", init, shape)

    def __call__(self, tokens: Array) -> Array:
        return self.embedding[tokens].astype(self.config.dtype)


class Encoder(nn.Module):
    """Embedded inputs to what the decoder attends to."""

    config: Config

    def setup(self):
        config = self.config
        self.relpos_bias = RelativeBias(config.num_heads, both_ways=True)
        layers = range(config.encoder_layers)
        self.layers = [EncoderLayer(*_sizes(config)) for _ in layers]
        self.encoder_norm = Norm()

    def __call__(self, x: Array, length: Array) -> Array:
        """x [B, I, E], of which length [B] are real -> [B, I, E]."""
        places = jnp.arange(x.shape[1])[None]
        bias = self.relpos_bias(places, x.shape[1])
        visible = (places < length[:, None])[:, None]
        for layer in self.layers:
            x = layer(x, visible, bias)
        return self.encoder_norm(x)


class Decoder(nn.Module):
    """Embedded tokens to the features that the readout multiplies."""

    config: Config

    def setup(self):
        config = self.config
        self.relpos_bias = RelativeBias(config.num_heads, both_ways=False)
        layers = range(config.decoder_layers)
        self.layers = [DecoderLayer(*_sizes(config)) for _ in layers]
        self.decoder_norm = Norm()
        if not config.tied:
            # Read by `readout`; declared here so that one tree holds all parameters.
            init = nn.with_logical_partitioning(FAN_IN, ("embed", "vocab"))
            options = dict(use_bias=False, kernel_init=init)
            self.logits_dense = nn.Dense(config.vocab, **options)

    def read(self, encoded: Array) -> list[KeyValues]:
        return [layer.read(encoded) for layer in self.layers]

    def __call__(
        self, x: Array, start: Array, cache: Cache, cached: bool, copies: int = 1
    ) -> tuple[Array, attention.Cache | None]:
        """x [B, T, E] at slots `start` [B] on. Not `cached`, it sees itself alone.

        copies: see `models.alone`.
        """
        x, rows = enter(x, copies), x.shape[0]
        positions = start[:, None] + jnp.arange(x.shape[1])
        slots = attention.slots_of(cache.own) if cached else x.shape[1]
        places = jnp.arange(cache.read[0].values.shape[2])[None]
        visible = (places < cache.length[:, None])[:, None]
        shared = dict(positions=positions, bias=self.relpos_bias(positions, slots))
        layers = [
            partial(layer, inputs=(read, visible), **shared)
            for layer, read in zip(self.layers, cache.read, strict=True)
        ]
        own = cache.own if cached else None
        x, own = attention.through(layers, x, own, start)
        return self.decoder_norm(x)[:rows], own


class T5(nn.Module):
    config: Config

    def setup(self):
        self.token_embedder = Embedder(self.config)
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)

    def read(self, inputs: Inputs) -> list[KeyValues]:
        """The encoder, and each decoder layer's keys and values of what it gives."""
        x = self.token_embedder(inputs.tokens)
        return self.decoder.read(self.encoder(x, inputs.length))

    def write(
        self,
        tokens: Array,
        start: Array,
        cache: Cache,
        copies: int,
        cached: bool = True,
    ):
        x = self.token_embedder(tokens)
        return self.decoder(x, start, cache, cached, copies)

    def __call__(self, inputs: Inputs, tokens: Array) -> Array:
        """Features [B, T, E] of whole texts, each token seeing those before it."""
        cache = Cache([], self.read(inputs), inputs.length)
        start = jnp.zeros(1, jnp.int32)  # one for all: the bias is computed once
        x, _ = self.decoder(self.token_embedder(tokens), start, cache, cached=False)
        if not self.config.tied and self.is_initializing():
            self.decoder.logits_dense(x)
        return x


def _sizes(config: Config) -> tuple:
    sizes = config.dim, config.num_heads, config.head_width, config.mlp_dim
    return *sizes, config.gated, jnp.dtype(config.dtype)


def init_params(key: Array, config: Config):
    """A fresh parameter tree, each leaf boxed with its logical axis names."""
    one = jnp.ones((1, 1), jnp.int32)
    return T5(config).init(key, Inputs(one, one[0]), one)["params"]


def abstract_params(config: Config):
    """Shapes and dtypes of the parameter tree, unboxed, without allocating it."""
    boxed = jax.eval_shape(lambda: init_params(jax.random.key(0), config))
    return nn.meta.unbox(boxed)


def partition_specs(config: Config):
    """The logical axes of every parameter, as PartitionSpecs to map onto a mesh."""
    boxed = jax.eval_shape(lambda: init_params(jax.random.key(0), config))
    return nn.get_partition_spec(boxed)


def num_params(config: Config) -> int:
    """How many numbers a model of this size has: 76,961,152 for v1.1 small."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


def readout(config: Config, params, features: Array) -> Array:
    """features [..., E] -> logits [..., V] float32; those of padding are -inf."""
    if config.tied:
        features = features * config.dim**-0.5
        kernel = params["token_embedder"]["embedding"].T
    else:
        kernel = params["decoder"]["logits_dense"]["kernel"]
    kernel, dtype = kernel.astype(config.dtype), jnp.float32
    logits = jnp.dot(features, kernel, preferred_element_type=dtype)
    if config.pieces is not None:
        real = jnp.arange(config.vocab) < config.pieces
        logits = jnp.where(real, logits, -jnp.inf)
    return logits


def logits(config: Config, params, inputs: Inputs, tokens: Array) -> Array:
    """tokens [B, T] from the start token on -> [B, T, V] float32, without a cache."""
    features = T5(config).apply({"params": params}, inputs, tokens)
    return readout(config, params, features)


def build(config: Config) -> Model:
    """The model of `specjax.types.Model`: prompts need `inputs`, an `Inputs`."""
    network, dtype = T5(config), jnp.dtype(config.dtype)

    def init(params, prompt: Prompt, slots: int) -> Cache:
        batch = prompt.tokens.shape[0]
        inputs = Inputs(*prompt.inputs)
        read = network.apply({"params": params}, inputs, method="read")
        sizes = batch, config.num_heads, slots, config.head_width
        layers = config.decoder_layers
        own = attention.empty(layers, sizes, dtype, config.joined)
        return Cache(own, read, inputs.length)

    def apply(params, tokens, start, cache: Cache, copies: int):
        arguments = tokens, start, cache, copies
        features, own = network.apply({"params": params}, *arguments, method="write")
        return features, cache._replace(own=own)

    def read_out(params, features):
        return readout(config, params, features)

    shapes = abstract_params(config)
    sides = init, alone.build(apply), alone.reading(read_out)
    return Model(*sides, config.vocab, shapes, encodes=True)
