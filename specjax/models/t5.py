"""T5 (Raffel et al. 2020): v1.1, the family of Leviathan et al. (2023), 4.1, and v1.0.

The encoder runs in `init`, and what the decoder reads of it stays in the cache, so that
a step never learns that there is an encoder. Decoding starts from the token PAD.
Parameter names and shapes are those of T5X.
Axes: B rows, T tokens in one call, I input tokens, S cache slots, E features, H heads,
D head width, V vocabulary.
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
from specjax.models.blocks import RMSNorm
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, multiply, parameters, table
from specjax.models.tree_mask import Tree, positions_of, tree_over_slots
from specjax.types import Branches, Model, Prompt

BUCKETS, MAX_DISTANCE = 32, 128
GATES = {"gelu": nn.gelu, "silu": nn.silu}
FAN_IN = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
FAN_AVERAGE = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


PAD, END = 0, 1


class Config(NamedTuple):
    """Sizes. gated: GELU with a gate (v1.1), or relu. tied: the embedding is also the
    readout (v1.0). pieces: ids from here on are padding of the vocabulary and are never
    emitted; None if there is none. `dtype`: of activations and cache. joined: one
    buffer for the caches of all decoder layers, one product of a text with several
    matrices, and a norm after a product where that is a kernel less: see `lowering`.
    scaled: features are divided by sqrt(E) before a readout of its own, as they always
    are before a tied one. own_bias: each layer has its own position bias (T5X's
    scalable_t5, umT5), or one serves all of a stack. gate: "gelu" or "silu", of
    `gated`."""

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
    scaled: bool = False
    own_bias: bool = False
    gate: str = "gelu"


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    if config.pieces is not None and config.pieces > config.vocab:
        raise ValueError(f"pieces {config.pieces} exceeds vocab {config.vocab}")
    if config.gate not in GATES:
        known = ", ".join(GATES)
        raise ValueError(f"gate is {config.gate!r}; known are {known}")


def bucket(distance: np.ndarray, both_ways: bool) -> np.ndarray:
    """The bucket 0 .. 31 of each distance (query's position less the key's), int32.
    Half of the buckets of a side are one distance each, the rest widen as its logarithm
    does and end at 128. One side has all 32 where a token sees no later one."""
    distance, side = np.asarray(distance), BUCKETS // 2 if both_ways else BUCKETS
    exact = side // 2
    away = np.abs(distance) if both_ways else np.maximum(distance, 0)
    octaves = np.log(np.maximum(away, 1) / exact) / np.log(MAX_DISTANCE / exact)
    # Distances that are powers of two fall on the borders: up, whatever the rounding.
    wide = exact + np.floor(octaves * (side - exact) + 1e-6).astype(np.int32)
    buckets = np.where(away < exact, away, np.minimum(wide, side - 1))
    return (buckets + side * (both_ways & (distance < 0))).astype(np.int32)


class RelativeBias(nn.Module):
    """What is added to the scores of a layer, or of all of a stack, by bucketed
    distance."""

    heads: int
    both_ways: bool

    @nn.compact
    def __call__(self, positions: Array, slots: int, tree: Tree | None = None) -> Array:
        """Of queries at `positions` [B, T] to keys 0 .. slots - 1, or to where those of
        a tree stand: [B, H, T, S]."""
        init = nn.with_logical_partitioning(FAN_AVERAGE, ("heads", "relpos_buckets"))
        table = self.param("rel_embedding", init, (self.heads, BUCKETS))
        # From the largest distance down, as a query's keys are: each reads a window.
        distance = np.arange(slots - 1, -slots, -1)
        by_distance = table[:, bucket(distance, self.both_ways)].astype(jnp.float32)
        if tree is not None:
            away = positions[:, :, None] - tree.stands[:, None]  # [B, T, S]
            return jnp.moveaxis(by_distance[:, slots - 1 - away], 0, 1)

        def window(position: Array) -> Array:
            begin = 0, slots - 1 - position
            return jax.lax.dynamic_slice(by_distance, begin, (self.heads, slots))

        return jax.vmap(jax.vmap(window, out_axes=1))(positions)


def residual_dtype(dtype: jnp.dtype) -> jnp.dtype:
    """What features are added up in: float32 for float16, whose largest number is 65504
    and which published T5s leave in their feed-forward layers."""
    return jnp.dtype(jnp.float32) if dtype == jnp.float16 else dtype


class Mlp(nn.Module):
    """GELU(x W_0) * (x W_1) W_o if gated (v1.1), else relu(x W) W_o (v1.0). gate:
    "gelu", or "silu" in its place. joined: x is multiplied once, see
    `lowering.products`. The last product is of `residual_dtype`."""

    config: Config
    joined: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        names = ("wi_0", "wi_1") if config.gated else ("wi",)
        axes, shape = ("embed", "mlp"), (x.shape[-1], config.mlp_dim)
        by = [Dense(shape, dtype, False, axes, FAN_IN, name=name) for name in names]
        wide = residual_dtype(dtype)
        products = multiply(x, *by, joined=self.joined)
        hidden, *other = (product.astype(wide) for product in products)
        act = GATES[config.gate] if config.gated else nn.relu
        hidden = act(hidden) * other[0] if other else act(hidden)
        last = shape[::-1], wide, False, axes[::-1], FAN_IN
        return Dense(*last, name="wo")(hidden)


def attention(config: Config, joined: bool = False) -> Attention:
    """Scores are not scaled: the initial queries are, by 1 / sqrt(D)."""
    query = nn.initializers.variance_scaling(
        1.0 / config.head_width, "fan_in", "truncated_normal"
    )
    options = dict(scale=1.0, kernel_init=FAN_IN, query_init=query, joined=joined)
    sizes = config.dim, config.num_heads, config.head_width
    return Attention(*sizes, jnp.dtype(config.dtype), **options)


class EncoderLayer(nn.Module):
    """Every input token sees every other."""

    config: Config

    def setup(self):
        if self.config.own_bias:
            self.relpos_bias = RelativeBias(self.config.num_heads, both_ways=True)
        self.pre_attention_layer_norm = RMSNorm()
        self.attention = attention(self.config)
        self.pre_mlp_layer_norm = RMSNorm()
        self.mlp = Mlp(self.config)

    def __call__(self, x: Array, mask: Array, bias: Array) -> Array:
        """x [B, I, E], mask [B, 1, I], bias [1, H, I, I] -> [B, I, E]."""
        positions = jnp.arange(x.shape[1])[None]
        y = self.pre_attention_layer_norm(x)
        x = x + self.attention(y, positions, mask=mask, bias=bias)[0]
        return x + self.mlp(self.pre_mlp_layer_norm(x))


class DecoderLayer(nn.Module):
    """A token sees those before it, and the whole input."""

    config: Config

    def setup(self):
        config = self.config
        if config.own_bias:
            self.relpos_bias = RelativeBias(config.num_heads, both_ways=False)
        self.pre_self_attention_layer_norm = RMSNorm()
        self.self_attention = attention(config, config.joined)
        self.pre_cross_attention_layer_norm = RMSNorm()
        self.encoder_decoder_attention = attention(config)
        self.pre_mlp_layer_norm = RMSNorm()
        self.mlp = Mlp(config, config.joined)

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: KeyValues | None,
        bias: Array,
        inputs: tuple[KeyValues, Array],
        tree: Tree | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E]; inputs: of the encoded input, and its mask [B, 1, I]."""
        y = self.pre_self_attention_layer_norm(x)
        y, cache = self.self_attention(y, positions, cache, bias=bias, tree=tree)
        x = x + y
        # Not yet divided, features may leave float16.
        dtype = jnp.dtype(self.config.dtype)
        apart = self.config.joined and dtype == residual_dtype(dtype)
        y, factor = self.pre_cross_attention_layer_norm(x, apart), None
        if apart:
            y, factor = y
        x = x + self.encoder_decoder_attention.across(y, *inputs, factor)
        return x + self.mlp(self.pre_mlp_layer_norm(x)), cache


class Inputs(NamedTuple):
    """What an encoder reads: tokens [B, I] right-padded, length [B] at least 1."""

    tokens: Array
    length: Array


class Cache(NamedTuple):
    """own: keys and values of the text so far, None to decode it whole. read: a layer's
    of the input, computed once; length [B]: how much of it is real."""

    own: caches.Cache | None
    read: caches.Cache
    length: Array


def first_caches(cache: Cache, layers: int) -> Cache:
    """Returns the caches of the decoder's first `layers` layers."""
    return cache._replace(own=cache.own[:layers], read=cache.read[:layers])


class Embedder(nn.Module):
    """One table for inputs and outputs."""

    config: Config

    def setup(self):
        axes, init = ("vocab", "embed"), nn.initializers.normal(1.0)
        sizes = dict(vocab=self.config.vocab, embed=self.config.dim)
        self.embedding = table(self, "embedding", axes, init, **sizes)

    def __call__(self, tokens: Array) -> Array:
        dtype = residual_dtype(jnp.dtype(self.config.dtype))
        return self.embedding[tokens].astype(dtype)


class Encoder(nn.Module):
    """Embedded inputs to what the decoder attends to."""

    config: Config

    def setup(self):
        config = self.config
        if not config.own_bias:
            self.relpos_bias = RelativeBias(config.num_heads, both_ways=True)
        layers = range(config.encoder_layers)
        self.layers = [EncoderLayer(config) for _ in layers]
        self.encoder_norm = RMSNorm()

    def __call__(self, x: Array, length: Array) -> Array:
        """x [B, I, E], of which length [B] are real -> [B, I, E]."""
        positions = jnp.arange(x.shape[1])[None]
        biases = _biases(self, positions, x.shape[1])
        mask = (positions < length[:, None])[:, None]
        for layer, bias in zip(self.layers, biases, strict=True):
            x = layer(x, mask, bias)
        return self.encoder_norm(x)


class Decoder(nn.Module):
    """Embedded tokens to the features that the readout multiplies."""

    config: Config

    def setup(self):
        config = self.config
        if not config.own_bias:
            self.relpos_bias = RelativeBias(config.num_heads, both_ways=False)
        layers = range(config.decoder_layers)
        self.layers = [DecoderLayer(config) for _ in layers]
        self.decoder_norm = RMSNorm()
        if not config.tied:
            # Read by `readout`; declared here so that one tree holds all parameters.
            init = nn.with_logical_partitioning(FAN_IN, ("embed", "vocab"))
            options = dict(use_bias=False, kernel_init=init)
            self.logits_dense = nn.Dense(config.vocab, **options)

    def read(self, encoded: Array) -> list[KeyValues]:
        """Each layer's keys and values of the encoded input [B, I, E]."""
        return [layer.encoder_decoder_attention.read(encoded) for layer in self.layers]

    def __call__(
        self, x: Array, start: Array, cache: Cache, branches: Branches | None = None
    ) -> tuple[Array, Cache]:
        """x [B, T, E] at slots `start` [B] on -> (features [B, T, E], cache)."""
        x = lowering.in_memory(x, cache.read)
        own = lowering.layers(cache.own, len(self.layers))
        held = caches.slots_of(cache.own)
        positions = positions_of(start, x.shape[1], branches)
        tree = tree_over_slots(branches, start, held)
        biases = _biases(self, positions, held or x.shape[1], tree)
        inputs = jnp.arange(caches.slots_of(cache.read))[None]
        mask = (inputs < cache.length[:, None])[:, None]
        for i, (layer, bias) in enumerate(zip(self.layers, biases, strict=True)):
            x, own[i] = layer(x, positions, own[i], bias, (cache.read[i], mask), tree)
        return self.decoder_norm(x).astype(self.config.dtype), cache._replace(own=own)


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

    def decode(
        self, tokens: Array, start: Array, cache: Cache, branches: Branches | None
    ) -> tuple[Array, Cache]:
        """tokens [B, T] at slots `start` [B] on -> (features [B, T, E], cache)."""
        return self.decoder(self.token_embedder(tokens), start, cache, branches)

    def __call__(self, inputs: Inputs, tokens: Array) -> Array:
        """Features [B, T, E] of whole texts, each token seeing those before it."""
        cache = Cache(None, self.read(inputs), inputs.length)
        start = jnp.zeros(1, jnp.int32)  # one for all: the bias is computed once
        x, _ = self.decode(tokens, start, cache, None)
        if not self.config.tied and self.is_initializing():
            self.decoder.logits_dense(x)
        return x


def _biases(
    stack: Encoder | Decoder, positions: Array, slots: int, tree: Tree | None = None
) -> list[Array]:
    """What each layer of a stack adds to its scores: its own, or one for all."""
    if stack.config.own_bias:
        return [layer.relpos_bias(positions, slots, tree) for layer in stack.layers]
    # In memory: no layer computes it anew.
    bias = jax.lax.optimization_barrier(stack.relpos_bias(positions, slots, tree))
    return [bias] * len(stack.layers)


def init_params(key: Array, config: Config):
    """A fresh parameter tree, each leaf boxed with its logical axis names."""
    tokens = jnp.ones((1, 1), jnp.int32)
    return T5(config).init(key, Inputs(tokens, tokens[0]), tokens)["params"]


# v1.1 small has 76,961,152 parameters.
abstract_params, partition_specs, num_params = parameters(init_params)


def readout(config: Config, params, features: Array) -> Array:
    """features [..., E] -> logits [..., V] float32; those of padding are -inf."""
    if config.tied or config.scaled:
        features = features * config.dim**-0.5
    if config.tied:
        weights = params["token_embedder"]["embedding"]
    else:
        weights = params["decoder"]["logits_dense"]["kernel"]
    logits = dense.readout(features, weights, config.tied, config.dtype)
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
        own = caches.empty(config.decoder_layers, sizes, dtype)
        return Cache(own, read, inputs.length)

    def apply(params, tokens, start, cache: Cache, branches: Branches | None = None):
        arguments = {"params": params}, tokens, start, cache, branches
        return network.apply(*arguments, method="decode")

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        return cache._replace(own=lowering.keep(cache.own, start, path))

    limits = config.vocab, abstract_params(config)
    read_out = functools.partial(readout, config)
    model = Model(init, apply, read_out, *limits, encodes=True, keep=keep)
    return lowering.model(model, config.joined)
