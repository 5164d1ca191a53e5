"""The GPT-like decoder of Leviathan et al. (2023), 4.2: GELU, untied embeddings.

With its last three options it is GPT-2 (Radford et al. 2019), whose format published
decoders of this kind come in.
Axes: B rows, T tokens, S cache slots, E features, V vocabulary.
"""

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from specjax.models import dense, int8_cache, lowering
from specjax.models.attention import Attention
from specjax.models.blocks import (
    FeedForward,
    Norm,
    Turn,
    check_heads,
    check_rotary,
    check_taps,
    rotary,
)
from specjax.models.cache import Cache, count_slots
from specjax.models.dense import declare, describe
from specjax.models.tree_mask import (
    Tree,
    embed_positions,
    token_positions,
    tree_over_slots,
)
from specjax.native.embed import take_rows
from specjax.types import Branches, Hidden, Model, Prompt

TABLE = "vocab", "embed"  # axes of the embedding, reversed of the readout


class Config(NamedTuple):
    """The sizes of a GPT.

    Attributes:
      vocab: V.
      dim: E.
      mlp_dim: the width of the feed-forward layer.
      dtype: the dtype of activations and cache; logits are always float32.
      positions: how many are learned; None for rotary ones, which are unbounded.
      learned: whether norms have a scale and a bias, and products a bias.
      tied: whether the embedding is the readout.
      joined: whether the caches of all layers are one buffer, see `models.lowering`.
      cache: None, or "int8", which is never joined, see `models.int8_cache`.
      taps: the places whose hidden states a head reads, see `types.Hidden`.
    """

    vocab: int
    dim: int
    mlp_dim: int
    num_layers: int
    num_heads: int
    dtype: str = "float32"
    positions: int | None = None
    learned: bool = False
    tied: bool = False
    joined: bool = False
    cache: str | None = None
    taps: tuple[int, ...] = ()

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    check_heads(config.dim, config.num_heads)
    check_taps(config.taps, config.num_layers)
    if config.positions is None:
        check_rotary(config.head_width)


# The paper's pair: 97M and 6M parameters with an 8k vocabulary.
PAPER_97M = Config(8000, 768, 3072, 12, 12)
PAPER_6M = Config(8000, 256, 1024, 2, 4)


class Block(nn.Module):
    """A pre-norm layer: attention, then feed-forward, each added to its input."""

    config: Config

    @nn.compact
    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: Any,
        *,
        tree: Tree | None,
        rotate: Turn | None,
    ) -> tuple[Array, Any]:
        """Returns ([B, T, E], cache) for x [B, T, E] at `positions` [B, T]."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        norm = functools.partial(Norm, config.learned)
        attention = Attention(
            features=config.dim,
            heads=config.num_heads,
            head_width=config.head_width,
            dtype=dtype,
            use_bias=config.learned,
            name="attention",
        )
        x, cache = attention(
            x,
            positions,
            cache,
            tree=tree,
            rotate=rotate,
            before=norm(name="attention_norm").law(config.dim),
            add=x,
        )
        mlp = FeedForward(config.mlp_dim, dtype, config.learned, name="mlp")
        last = norm(name="mlp_norm").law(config.dim)
        return mlp(x, norm=last, add=True), cache


class Decoder(nn.Module):
    """The layers that turn tokens into the features that the readout multiplies."""

    config: Config

    @nn.compact
    def __call__(
        self,
        tokens: Array,
        start: Array,
        cache: Cache | None = None,
        branches: Branches | None = None,
    ) -> tuple[Array | Hidden, Cache]:
        """Returns (features [B, T, E], cache) of tokens [B, T] at slots `start` [B]
        on; where layers are tapped, the features are `Hidden`."""
        config, shape, axes = self.config, (self.config.vocab, self.config.dim), TABLE
        embedding = declare(self, "embedding", axes=axes, shape=shape)
        # Read by `readout`; declared here so that one tree holds all parameters.
        if not config.tied:
            declare(self, "readout", axes=axes[::-1], shape=shape[::-1])
        positions = token_positions(start, tokens.shape[1], branches)
        x = take_rows(embedding, tokens)
        if config.positions is not None:
            shape = config.positions, config.dim
            axes = "positions", "embed"
            learned = declare(self, "positions", axes=axes, shape=shape)
            x = x + embed_positions(learned, positions)
        x = lowering.in_memory(x.astype(config.dtype), cache)
        rotate = None
        if config.positions is None:
            rotate = rotary(positions, config.head_width, jnp.dtype(config.dtype))
        layers = lowering.layers(cache, config.num_layers)
        tree = tree_over_slots(branches, start, count_slots(cache))
        entered = [x]  # what enters each layer, and the last norm
        for i in range(config.num_layers):
            block = Block(config, name=f"layers_{i}")
            x, layers[i] = block(x, positions, layers[i], tree=tree, rotate=rotate)
            entered.append(x)
        last, taps = (
            Norm(config.learned, name="norm")(x),
            tuple(entered[k] for k in config.taps),
        )
        return (Hidden(last, taps) if taps else last), layers


def init_params(key: Array, config: Config) -> Any:
    """Returns fresh parameters, each leaf boxed with the logical names of its axes."""
    tokens, start = jnp.zeros((1, 1), jnp.int32), jnp.zeros(1, jnp.int32)
    return Decoder(config).init(key, tokens, start)["params"]


# The paper's pair has 97.22M and 5.67M parameters.
abstract_params, partition_specs, num_params = describe(init_params)


def build(config: Config) -> Model:
    """Returns the model of these sizes. With fewer layers than the parameters have, it
    is the early exit of that model."""
    int8_cache.check(config.cache)
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)

    def init(params: Any, prompt: Prompt, slots: int) -> Cache:
        del params
        return int8_cache.empty(
            config.num_layers,
            batch=prompt.tokens.shape[0],
            heads=config.num_heads,
            slots=slots,
            width=config.head_width,
            dtype=dtype,
            kind=config.cache,
        )

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> Any:
        return decoder.apply({"params": params}, tokens, start, cache, branches)

    def readout(params: Any, features: Array) -> Array:
        weights = params["embedding" if config.tied else "readout"]
        return dense.readout(features, weights, tied=config.tied, dtype=dtype)

    model = Model(
        init,
        apply,
        readout,
        vocab=config.vocab,
        shapes=abstract_params(config),
        slots=config.positions,
        keep=lowering.keep,
    )
    return lowering.model(model, config.joined)
