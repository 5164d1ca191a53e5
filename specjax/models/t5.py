"""T5 (Raffel et al. 2020): v1.1, the family of Leviathan et al. (2023), 4.1, and v1.0.

The encoder runs in `init`, and what the decoder reads of it stays in the cache, so that
a step does not know that there is an encoder. Decoding starts from the token PAD.
Parameter names and shapes are those of T5X.
Axes: B rows, T tokens in one call, I input tokens, S cache slots, E features, H heads,
D head width, V vocabulary.
"""

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models import cache as caches
from specjax.models import dense, lowering
from specjax.models.attention import Attention
from specjax.models.blocks import FeedKind, RMSNorm, feed
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, declare, describe, multiply
from specjax.models.norms import Norm
from specjax.models.tree_mask import Tree, token_positions, tree_over_slots
from specjax.native.embed import take_rows
from specjax.types import Branches, Model, Prompt

BUCKETS, MAX_DISTANCE = 32, 128
GATES = {"gelu": nn.gelu, "silu": nn.silu}
FAN_IN = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
FAN_AVERAGE = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


PAD, END = 0, 1


class Config(NamedTuple):
    """The sizes of a T5.

    Attributes:
      vocab: V.
      dim: E.
      mlp_dim: the width of the feed-forward layer.
      num_heads: H.
      head_width: D.
      gated: whether the feed-forward layer is GELU with a gate (v1.1), or relu.
      tied: whether the embedding is also the readout (v1.0).
      pieces: ids from here on are padding of the vocabulary and are never emitted; None
        if there is none.
      dtype: the dtype of activations and cache.
      joined: whether the caches of all decoder layers are one buffer, a text is
        multiplied by several matrices at once, and a norm comes after a product where
        that is a kernel less: see `lowering`.
      scaled: whether features are divided by sqrt(E) before an untied readout, as they
        always are before a tied one.
      own_bias: whether each layer has its own position bias (T5X's scalable_t5, umT5),
        or one serves all of a stack.
      gate: "gelu" or "silu", of `gated`.
    """

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
    """Returns the bucket 0 .. 31 of each distance (the query's position minus the
    key's), int32.

    Half of the buckets of a side are one distance each, the rest widen as its logarithm
    does and end at 128. One side has all 32 where a token sees no later one.
    """
    distance, side = np.asarray(distance), BUCKETS // 2 if both_ways else BUCKETS
    exact = side // 2
    away = np.abs(distance) if both_ways else np.maximum(distance, 0)
    octaves = np.log(np.maximum(away, 1) / exact) / np.log(MAX_DISTANCE / exact)
    # Distances that are powers of two fall on the borders: up, whatever the rounding.
    wide = exact + np.floor(octaves * (side - exact) + 1e-6).astype(np.int32)
    buckets = np.where(away < exact, away, np.minimum(wide, side - 1))
    return (buckets + side * (both_ways & (distance < 0))).astype(np.int32)


class RelativeBias(nn.Module):
    """The bias that is added to the scores of a layer, or of all of a stack, by
    bucketed distance."""

    heads: int
    both_ways: bool

    @nn.compact
    def __call__(self, positions: Array, slots: int, tree: Tree | None = None) -> Array:
        """Returns the biases [B, H, T, S] for queries at `positions` [B, T] and keys 0
        .. slots - 1, or the keys of a tree at their positions."""
        table = declare(
            self,
            "rel_embedding",
            FAN_AVERAGE,
            axes=("heads", "relpos_buckets"),
            shape=(self.heads, BUCKETS),
        )
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
    """Returns the dtype in which the residual stream is summed: float32 for float16,
    whose largest number is 65504, which published T5s exceed in their feed-forward
    layers."""
    return jnp.dtype(jnp.float32) if dtype == jnp.float16 else dtype


class Mlp(nn.Module):
    """The feed-forward layer: GELU(x W_0) * (x W_1) W_o if gated (v1.1), else relu(x W)
    W_o (v1.0); `Config.gate` may replace GELU by SiLU.

    joined: whether x is multiplied once, see `lowering.products`. The last product is
    of `residual_dtype`.
    """

    config: Config
    joined: bool = False

    @nn.compact
    def __call__(self, x: Array, norm: Norm) -> Array:
        """Returns x and the layer of norm(x), added."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        names = ("wi_0", "wi_1") if config.gated else ("wi",)
        axes, shape = ("embed", "mlp"), (x.shape[-1], config.mlp_dim)
        by = [Dense(shape, dtype, False, axes, FAN_IN, name=name) for name in names]
        wide = residual_dtype(dtype)
        act = GATES[config.gate] if config.gated else nn.relu
        last = Dense(shape[::-1], wide, False, axes[::-1], FAN_IN, name="wo")
        if wide == dtype:
            kind = FeedKind(act, add=True, joined=self.joined)
            return feed(x, *by, last, kind=kind, norm=norm)
        products = multiply(x, *by, joined=self.joined, norm=norm)
        hidden, *other = (product.astype(wide) for product in products)
        hidden = act(hidden) * other[0] if other else act(hidden)
        return x + last(hidden)


def attention(config: Config, joined: bool = False) -> Attention:
    """Returns the attention of a T5, whose scores are not scaled: instead, the initial
    weights of queries are scaled by 1 / sqrt(D)."""
    query = nn.initializers.variance_scaling(
        1.0 / config.head_width, "fan_in", "truncated_normal"
    )
    return Attention(
        features=config.dim,
        heads=config.num_heads,
        head_width=config.head_width,
        dtype=jnp.dtype(config.dtype),
        scale=1.0,
        kernel_init=FAN_IN,
        query_init=query,
        joined=joined,
    )


class EncoderLayer(nn.Module):
    """A layer in which every input token sees every other."""

    config: Config

    def setup(self) -> None:
        if self.config.own_bias:
            self.relpos_bias = RelativeBias(self.config.num_heads, both_ways=True)
        self.pre_attention_layer_norm = RMSNorm()
        self.attention = attention(self.config)
        self.pre_mlp_layer_norm = RMSNorm()
        self.mlp = Mlp(self.config)

    def __call__(self, x: Array, mask: Array, bias: Array) -> Array:
        """Returns the layer's output [B, I, E] for its input x [B, I, E].

        mask: [B, 1, I]. bias: [1, H, I, I].
        """
        positions = jnp.arange(x.shape[1])[None]
        dim = self.config.dim
        x, _ = self.attention(
            x,
            positions,
            mask=mask,
            bias=bias,
            before=self.pre_attention_layer_norm.law(dim),
            add=x,
        )
        return self.mlp(x, self.pre_mlp_layer_norm.law(dim))


class DecoderLayer(nn.Module):
    """A layer in which a token sees those before it, and the whole input."""

    config: Config

    def setup(self) -> None:
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
        cache: Any,
        *,
        bias: Array,
        memory: KeyValues,
        mask: Array,
        tree: Tree | None = None,
    ) -> tuple[Array, Any]:
        """Returns ([B, T, E], cache) of x [B, T, E].

        memory, mask: the keys and values of the encoded input, and its mask [B, 1, I].
        """
        dim, dtype = self.config.dim, jnp.dtype(self.config.dtype)
        x, cache = self.self_attention(
            x,
            positions,
            cache,
            bias=bias,
            tree=tree,
            before=self.pre_self_attention_layer_norm.law(dim),
            add=x,
        )
        across = self.encoder_decoder_attention.across
        norm = self.pre_cross_attention_layer_norm
        # Not yet divided, features may leave float16.
        if self.config.joined and dtype == residual_dtype(dtype):
            y, factor = norm.scale_and_factor(x)
            x = across(y, memory, mask, factor, add=x)
        else:
            x = across(x, memory, mask, before=norm.law(dim), add=x)
        return self.mlp(x, self.pre_mlp_layer_norm.law(dim)), cache


class Inputs(NamedTuple):
    """The texts that an encoder reads: tokens [B, I] right-padded, length [B] at least
    1."""

    tokens: Array
    length: Array


class Cache(NamedTuple):
    """The cache of a decoder and of the input that it attends to.

    own: each layer's keys and values of the text so far; None where a whole text is
    decoded in one call. read: each layer's keys and values of the input, computed once.
    length [B]: how much of the input is real.
    """

    own: caches.Cache | None
    read: caches.Cache
    length: Array


def first_caches(cache: Cache, layers: int) -> Cache:
    """Returns the caches of the decoder's first `layers` layers."""
    own = None if cache.own is None else cache.own[:layers]
    return cache._replace(own=own, read=cache.read[:layers])


class Embedder(nn.Module):
    """The embedding of inputs and outputs, which share one table."""

    config: Config

    def setup(self) -> None:
        axes, init = ("vocab", "embed"), nn.initializers.normal(1.0)
        shape = self.config.vocab, self.config.dim
        self.embedding = declare(self, "embedding", init, axes=axes, shape=shape)

    def __call__(self, tokens: Array) -> Array:
        dtype = residual_dtype(jnp.dtype(self.config.dtype))
        return take_rows(self.embedding, tokens).astype(dtype)


class Encoder(nn.Module):
    """The layers that turn embedded inputs into the states that the decoder attends
    to."""

    config: Config

    def setup(self) -> None:
        config = self.config
        if not config.own_bias:
            self.relpos_bias = RelativeBias(config.num_heads, both_ways=True)
        layers = range(config.encoder_layers)
        self.layers = [EncoderLayer(config) for _ in layers]
        self.encoder_norm = RMSNorm()

    def __call__(self, x: Array, length: Array) -> Array:
        """Returns the encoder's states [B, I, E] for embedded inputs x [B, I, E].

        The first `length` [B] positions of a row are its input, the rest is padding.
        """
        positions = jnp.arange(x.shape[1])[None]
        biases = _biases(self, positions, x.shape[1])
        mask = (positions < length[:, None])[:, None]
        for layer, bias in zip(self.layers, biases, strict=True):
            x = layer(x, mask, bias)
        return self.encoder_norm(x)


class Decoder(nn.Module):
    """The layers that turn embedded tokens into the features that the readout
    multiplies."""

    config: Config

    def setup(self) -> None:
        config = self.config
        if not config.own_bias:
            self.relpos_bias = RelativeBias(config.num_heads, both_ways=False)
        layers = range(config.decoder_layers)
        self.layers = [DecoderLayer(config) for _ in layers]
        self.decoder_norm = RMSNorm()
        if not config.tied:
            # Read by `readout`; declared here so that one tree holds all parameters.
            init = nn.with_logical_partitioning(FAN_IN, ("embed", "vocab"))
            self.logits_dense = nn.Dense(config.vocab, use_bias=False, kernel_init=init)

    def read(self, encoded: Array) -> list[KeyValues]:
        """Returns each layer's keys and values of the encoded input [B, I, E]."""
        return [layer.encoder_decoder_attention.read(encoded) for layer in self.layers]

    def __call__(
        self, x: Array, start: Array, cache: Cache, branches: Branches | None = None
    ) -> tuple[Array, Cache]:
        """Returns (features [B, T, E], cache) of x [B, T, E] at slots `start` [B]
        on."""
        x = lowering.in_memory(x, cache.read)
        own = lowering.layers(cache.own, len(self.layers))
        held = caches.count_slots(cache.own)
        positions = token_positions(start, x.shape[1], branches)
        tree = tree_over_slots(branches, start, held)
        biases = _biases(self, positions, held or x.shape[1], tree)
        inputs = jnp.arange(caches.count_slots(cache.read))[None]
        mask = (inputs < cache.length[:, None])[:, None]
        for i, (layer, bias) in enumerate(zip(self.layers, biases, strict=True)):
            x, own[i] = layer(
                x,
                positions,
                own[i],
                bias=bias,
                memory=cache.read[i],
                mask=mask,
                tree=tree,
            )
        return self.decoder_norm(x).astype(self.config.dtype), cache._replace(own=own)


class T5(nn.Module):
    """An encoder and a decoder over one embedding."""

    config: Config

    def setup(self) -> None:
        self.token_embedder = Embedder(self.config)
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)

    def read(self, inputs: Inputs) -> list[KeyValues]:
        """Returns each decoder layer's keys and values of the encoded inputs."""
        x = self.token_embedder(inputs.tokens)
        return self.decoder.read(self.encoder(x, inputs.length))

    def decode(
        self, tokens: Array, start: Array, cache: Cache, branches: Branches | None
    ) -> tuple[Array, Cache]:
        """Returns (features [B, T, E], cache) of tokens [B, T] at slots `start` [B]
        on."""
        return self.decoder(self.token_embedder(tokens), start, cache, branches)

    def __call__(self, inputs: Inputs, tokens: Array) -> Array:
        """Returns the features [B, T, E] of whole texts, in which each token sees those
        before it."""
        cache = Cache(None, self.read(inputs), inputs.length)
        start = jnp.zeros(1, jnp.int32)  # one for all: the bias is computed once
        x, _ = self.decode(tokens, start, cache, None)
        if not self.config.tied and self.is_initializing():
            self.decoder.logits_dense(x)
        return x


def _biases(
    stack: Encoder | Decoder, positions: Array, slots: int, tree: Tree | None = None
) -> list[Array]:
    """Returns the bias that each layer of a stack adds to its scores: its own, or one
    for all."""
    if stack.config.own_bias:
        return [layer.relpos_bias(positions, slots, tree) for layer in stack.layers]
    # In memory: no layer computes it again.
    bias = jax.lax.optimization_barrier(stack.relpos_bias(positions, slots, tree))
    return [bias] * len(stack.layers)


def init_params(key: Array, config: Config) -> Any:
    """Returns fresh parameters, each leaf boxed with the logical names of its axes."""
    tokens = jnp.ones((1, 1), jnp.int32)
    return T5(config).init(key, Inputs(tokens, tokens[0]), tokens)["params"]


# v1.1 small has 76,961,152 parameters.
abstract_params, partition_specs, num_params = describe(init_params)


def readout(config: Config, params: Any, features: Array) -> Array:
    """Returns the logits [..., V] float32 of features [..., E]; those of padding are
    -inf."""
    if config.tied or config.scaled:
        features = features * config.dim**-0.5
    if config.tied:
        weights = params["token_embedder"]["embedding"]
    else:
        weights = params["decoder"]["logits_dense"]["kernel"]
    logits = dense.readout(features, weights, tied=config.tied, dtype=config.dtype)
    if config.pieces is not None:
        real = jnp.arange(config.vocab) < config.pieces
        logits = jnp.where(real, logits, -jnp.inf)
    return logits


def logits(config: Config, params: Any, inputs: Inputs, tokens: Array) -> Array:
    """Returns the logits [B, T, V] float32 of tokens [B, T] from the start token on,
    without a cache."""
    features: Any = T5(config).apply({"params": params}, inputs, tokens)
    return readout(config, params, features)


def build(config: Config) -> Model:
    """Returns the model of these sizes, whose prompts need `inputs`, an `Inputs`."""
    network, dtype = T5(config), jnp.dtype(config.dtype)

    def init(params: Any, prompt: Prompt, slots: int) -> Cache:
        inputs = Inputs(*prompt.inputs)
        read: Any = network.apply({"params": params}, inputs, method="read")
        own = caches.empty(
            config.decoder_layers,
            batch=prompt.tokens.shape[0],
            heads=config.num_heads,
            slots=slots,
            width=config.head_width,
            dtype=dtype,
        )
        return Cache(own, read, inputs.length)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> Any:
        own = {"params": params}
        return network.apply(own, tokens, start, cache, branches, method="decode")

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        assert cache.own is not None
        return cache._replace(own=lowering.keep(cache.own, start, path))

    model = Model(
        init,
        apply,
        functools.partial(readout, config),
        vocab=config.vocab,
        shapes=abstract_params(config),
        encodes=True,
        keep=keep,
    )
    return lowering.model(model, config.joined)
