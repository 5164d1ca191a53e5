"""The GPT-like decoder of Leviathan et al. (2023), 4.2: GELU, untied embeddings.

With its last three options it is GPT-2 (Radford et al. 2019), whose format published
decoders of this kind come in.
Axes: B rows, T tokens, S cache slots, E features, V vocabulary.
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax import quantized
from specjax.models import lowering
from specjax.models.blocks import Block, Norm, rotary
from specjax.models.branching import in_tree, known, positions_of
from specjax.models.cache import Cache, empty, slots_of
from specjax.types import Branches, Model, Prompt


class Config(NamedTuple):
    """Sizes. `dtype` is that of activations and cache; logits are always float32.

    positions: how many are learned; None, they are rotary and unbounded. learned: norms
    have a scale and a bias, and products a bias. tied: the embedding is the readout.
    joined: one buffer for the caches of all layers, see `models.lowering`.
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

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads


# The paper's pair: 97M and 6M parameters with an 8k vocabulary.
PAPER_97M = Config(8000, 768, 3072, 12, 12)
PAPER_6M = Config(8000, 256, 1024, 2, 4)


class Decoder(nn.Module):
    """Tokens to the features that the readout multiplies."""

    config: Config

    @nn.compact
    def __call__(
        self,
        tokens: Array,
        start: Array,
        cache: Cache | None = None,
        branches: Branches | None = None,
    ) -> tuple[Array, Cache]:
        """tokens [B, T] at slots `start` [B] on -> (features [B, T, E], cache)."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        embedding = self._table("embedding", ("vocab", "embed"), config.vocab)
        # Read by `readout`; declared here so that one tree holds all parameters.
        if not config.tied:
            self._table("readout", ("embed", "vocab"), config.vocab)
        positions = positions_of(start, tokens.shape[1], branches)
        x, rotate = embedding[tokens], rotary
        if config.positions is not None:
            table = self._table("positions", ("positions", "embed"), config.positions)
            x, rotate = x + known(table, positions), None
        x = lowering.in_memory(x.astype(dtype), cache)
        layers = [None] * config.num_layers if cache is None else lowering.layers(cache)
        sizes = config.num_heads, config.head_width, config.mlp_dim
        tree = None
        if branches is not None:
            tree = in_tree(branches, start, None if cache is None else slots_of(cache))
        for i in range(config.num_layers):
            block = Block(*sizes, dtype, rotate, config.learned, name=f"layers_{i}")
            x, layers[i] = block(x, positions, layers[i], tree)
        return Norm(config.learned, name="norm")(x), layers

    def _table(self, name: str, axes: tuple[str, str], count: int) -> Array:
        """`count` vectors of E features, along the axis that is not `embed`."""
        init = nn.with_logical_partitioning(nn.initializers.normal(0.02), axes)
        width = self.config.dim
        shape = tuple(width if axis == "embed" else count for axis in axes)
        return self.param(name, init, shape)


def init_params(key: Array, config: Config):
    """A fresh parameter tree, each leaf boxed with its logical axis names."""
    tokens, start = jnp.zeros((1, 1), jnp.int32), jnp.zeros(1, jnp.int32)
    return Decoder(config).init(key, tokens, start)["params"]


@functools.cache
def abstract_params(config: Config):
    """Shapes and dtypes of the parameter tree, unboxed, without allocating it.

    Every reader asks for it and none may change it: a trace takes half a second.
    """
    boxed = jax.eval_shape(lambda: init_params(jax.random.key(0), config))
    return nn.meta.unbox(boxed)


def partition_specs(config: Config):
    """The logical axes of every parameter, as PartitionSpecs to map onto a mesh."""
    boxed = jax.eval_shape(lambda: init_params(jax.random.key(0), config))
    return nn.get_partition_spec(boxed)


def num_params(config: Config) -> int:
    """How many numbers a model of this size has: 97.22M and 5.67M for the paper's."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


def build(config: Config) -> Model:
    """The model of `specjax.types.Model` with these sizes.

    With fewer layers than the parameters have, it is the early exit of that model.
    """
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)

    def init(params, prompt: Prompt, slots: int) -> Cache:
        del params
        batch = prompt.tokens.shape[0]
        sizes = batch, config.num_heads, slots, config.head_width
        cache = empty(config.num_layers, sizes, dtype)
        return lowering.join(cache) if config.joined else cache

    def apply(params, tokens, start, cache, branches: Branches | None = None):
        return decoder.apply({"params": params}, tokens, start, cache, branches)

    def readout(params, features):
        if config.tied:
            return quantized.dot_transposed(features, params["embedding"].astype(dtype))
        return quantized.dot(features, params["readout"].astype(dtype))

    limits = config.vocab, abstract_params(config), config.positions
    return lowering.model(Model(init, apply, readout, *limits))
