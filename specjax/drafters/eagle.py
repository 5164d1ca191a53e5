"""EAGLE-1 and 2: one decoder layer continues the hidden states of the target.

Li et al. (2024), https://arxiv.org/abs/2401.15077. From the hidden state of a token and
the embedding of the next one the layer estimates the next one's state, of which the
target's own readout makes the law that the token after it is drawn from. EAGLE-2 has
the same weights and a tree that differs from step to step, which is that of
`drafters.best_first`, or of `drafters.grown`, whose tokens are drawn.
Axes: B rows, T tokens in one call, H features, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from specjax.drafters import autoregressive, heads
from specjax.drafters.rollout import draw_independent
from specjax.models import llama
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, declare, describe
from specjax.native.embed import take_rows
from specjax.types import Branches, Drafter, Hidden, Model, ModelReadout, Prompt


class Config(NamedTuple):
    """The sizes of a head.

    Attributes:
      layer: the sizes of its decoder layer; `vocab` and `dim` are the target's.
      biased: whether the product that joins embedding and state has a bias.
      own_embedding: whether the head has one; else it reads by the target's.
    """

    layer: llama.Config
    biased: bool = False
    own_embedding: bool = False


class Network(nn.Module):
    """The layers of a head: a product that joins an embedding and a hidden state, and a
    decoder layer."""

    config: Config

    @nn.compact
    def __call__(
        self,
        embedded: Array,
        before: Array,
        start: Array,
        cache: KeyValues,
        *,
        branches: Branches | None,
    ) -> tuple[Array, KeyValues]:
        """Returns the estimated states [B, T, H] of tokens, and the cache, of their
        embeddings [B, T, H] and the states before them [B, T, H]."""
        layer = self.config.layer
        shape, axes = (2 * layer.dim, layer.dim), ("joined_embed", "embed")
        dtype = jnp.dtype(layer.dtype)
        if self.config.own_embedding:
            # Read by `head`; declared here so that one tree holds all parameters.
            table = (layer.vocab, layer.dim)
            declare(self, "embedding", axes=("vocab", "embed"), shape=table)
        join = Dense(shape, dtype, self.config.biased, axes, name="join")
        x = join(jnp.concatenate([embedded, before], axis=-1))
        decoder_layer = heads.Layer(layer, name="layer")
        return decoder_layer(x, x, start, cache, branches=branches)


def head(config: Config, readout: ModelReadout) -> Model:
    """Returns the head as a model, whose parameters are those of `heads.with_target`.

    readout: the target's, of the parameters in `heads.TABLES`.
    """
    layer, network = config.layer, Network(config)
    dtype = jnp.dtype(layer.dtype)

    def init(params: Any, prompt: Prompt, slots: int) -> heads.Memory:
        del params
        return heads.empty(layer, prompt, slots)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        memory: heads.Memory,
        branches: Branches | None = None,
    ) -> tuple[Array, heads.Memory]:
        before = heads.hidden_before(memory, start, tokens.shape[1], branches)
        of = params["head" if config.own_embedding else "target"]
        embedded = take_rows(of["embedding"], tokens).astype(dtype)
        made: Any = network.apply(
            {"params": params["head"]},
            embedded,
            before,
            start,
            memory.layer,
            branches=branches,
        )
        states, cache = made
        memory = heads.estimate(memory._replace(layer=cache), states, start)
        return states, memory

    def fuse(params: Any, hidden: Hidden) -> Array:
        del params
        return hidden.last

    def read_out(params: Any, states: Array) -> Any:
        return readout(params["target"], states)

    observe = heads.observer(fuse, apply)
    return Model(init, apply, read_out, layer.vocab, observe=observe)


def build(
    config: Config, readout: ModelReadout, gamma: int, draw: Callable = draw_independent
) -> Drafter:
    """Returns a drafter of chains of `gamma` tokens; for trees, see the builders that
    take a model. Raises ValueError as `autoregressive.build` does."""
    return autoregressive.build(head(config, readout), gamma, draw)


def init_params(key: Array, config: Config) -> Any:
    """Returns fresh parameters of the head alone, each leaf boxed with the logical
    names of its axes."""
    layer, start = config.layer, jnp.zeros(1, jnp.int32)
    one = jnp.zeros((1, 1, layer.dim))
    network = Network(config)
    with nn.logical_axis_rules(()):  # no mesh divides the one row
        memory = heads.empty(layer, Prompt(jnp.zeros((1, 1), jnp.int32), start + 1), 1)
        variables = network.init(key, one, one, start, memory.layer, branches=None)
    return variables["params"]


abstract_params, partition_specs, num_params = describe(init_params)
