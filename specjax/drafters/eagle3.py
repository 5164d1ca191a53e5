"""EAGLE-3: a decoder layer reads states of several layers of the target.

Li et al. (2025), https://arxiv.org/abs/2503.01840. The states that enter three layers
of the target, a low, a middle and a high one, are joined by a product (`Hidden.taps`).
The layer's attention reads the embedding of a token beside that state, and its own
output stands for the state of a drafted token. It has a readout of its own, mostly of a
reduced vocabulary, as `models.reduced_vocab` has. The options are those by which
published heads differ; the file of a head says which it was trained with.
Axes: B rows, T tokens in one call, A taps, D features of the target, H of the head, V
ids of the target, K of the head.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.drafters import autoregressive, heads
from specjax.drafters.rollout import draw_independent
from specjax.models import dense, llama
from specjax.models.blocks import RMSNorm
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, declare, describe
from specjax.native.embed import take_rows
from specjax.types import Branches, Drafter, Hidden, Model, Prompt, Reduced


class Config(NamedTuple):
    """The sizes of a head.

    Attributes:
      layer: the sizes of its decoder layer; `vocab` is the target's.
      target_dim: D.
      taps: the places of the target whose states it reads, see `types.Hidden`.
      draft_vocab: K; None for a head that says every id of the target.
      norm_before_residual: whether the residual stream begins with the normalised
        state.
      norm_before_join: whether the states of all taps are normalised as one vector.
      norm_taps: whether the states of each tap are normalised by themselves.
      norm_output: whether the state of a drafted token is normalised.
      own_embedding: whether the head has one; else it reads by the target's.
    """

    layer: llama.Config
    target_dim: int
    taps: tuple[int, ...]
    draft_vocab: int | None = None
    norm_before_residual: bool = False
    norm_before_join: bool = False
    norm_taps: bool = False
    norm_output: bool = False
    own_embedding: bool = False


def default_taps(layers: int) -> tuple[int, int, int]:
    """Returns the places that EAGLE-3 taps in a target of `layers` layers."""
    return 2, layers // 2, layers - 3


def check(config: Config) -> None:
    """Raises ValueError for sizes or options that do not go together."""
    if config.norm_before_join and config.norm_taps:
        raise ValueError("taps are normalised together or each by itself, not both")
    if not config.taps:
        raise ValueError("taps name no place of the target")
    if not config.own_embedding and config.target_dim != config.layer.dim:
        raise ValueError(
            f"a head of width {config.layer.dim} cannot read by the embedding of its"
            f" target, of width {config.target_dim}: it needs its own"
        )
    llama.check(config.layer)


class Network(nn.Module):
    """The layers of a head. `join` and `__call__` use all of its parameters."""

    config: Config
    write: Callable[..., Any] | None = None  # see `heads.Layer`

    def setup(self) -> None:
        config, layer = self.config, self.config.layer
        dtype, count = jnp.dtype(layer.dtype), len(config.taps)
        shape, axes = (count * config.target_dim, layer.dim), ("taps", "embed")
        self.product = Dense(shape, dtype, False, axes, name="join")
        self.layer = heads.Layer(layer, 2 * layer.dim, self.write, name="layer")
        self.embedding_norm = RMSNorm(layer.eps, name="embedding_norm")
        self.state_norm = RMSNorm(layer.eps, name="state_norm")
        self.norm = RMSNorm(layer.eps, name="norm")
        said = config.draft_vocab or layer.vocab
        shape, axes = (layer.dim, said), ("embed", "vocab")
        self.table = declare(self, "readout", axes=axes, shape=shape)
        if config.own_embedding:
            shape, axes = (layer.vocab, layer.dim), ("vocab", "embed")
            self.embedding = declare(self, "embedding", axes=axes, shape=shape)
        if config.norm_before_join:
            self.joined_norm = RMSNorm(layer.eps, axis="taps", name="joined_norm")
        if config.norm_taps:
            names = [f"tap_{i}_norm" for i in range(count)]
            self.tap_norms = [RMSNorm(layer.eps, name=name) for name in names]

    def join(self, taps: tuple[Array, ...]) -> Array:
        """Returns the state [B, T, H] that stands for the taps [B, T, D] of tokens."""
        if self.config.norm_taps:
            pairs = zip(self.tap_norms, taps, strict=True)
            taps = tuple(norm(tap) for norm, tap in pairs)
        x = jnp.concatenate(taps, axis=-1)
        return self.product(self.joined_norm(x) if self.config.norm_before_join else x)

    def embed(self, tokens: Array) -> Array:
        """Returns the head's own embedding of tokens [B, T], [B, T, H]."""
        return take_rows(self.embedding, tokens)

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
        state = self.state_norm(before)
        stream = state if self.config.norm_before_residual else before
        x = jnp.concatenate([self.embedding_norm(embedded), state], axis=-1)
        return self.layer(x, stream, start, cache, branches=branches)

    def logits(self, states: Array) -> Array:
        """Returns the logits [..., K] of estimated states [..., H]."""
        dtype = jnp.dtype(self.config.layer.dtype)
        return dense.readout(self.norm(states), self.table, tied=False, dtype=dtype)

    def everything(self, tokens: Array, taps: Any, cache: KeyValues) -> Array:
        """Calls all methods once, so that `init` creates all parameters."""
        before = self.join(taps)
        embedded = self.embed(tokens) if self.config.own_embedding else before
        start = jnp.zeros(len(tokens), jnp.int32)
        return self.logits(self(embedded, before, start, cache, branches=None)[0])


def head(config: Config) -> Model:
    """Returns the head as a model, whose parameters are those that `parameters`
    returns. Raises ValueError as `check` does."""
    check(config)
    layer, network = config.layer, Network(config)
    dtype = jnp.dtype(layer.dtype)

    def call(method: Any, params: Any, *arguments: Any, **named: Any) -> Any:
        weights = {"params": params["head"]}
        return network.apply(weights, *arguments, **named, method=method)

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
        if config.own_embedding:
            embedded = call(Network.embed, params, tokens)
        else:
            embedded = take_rows(params["target"]["embedding"], tokens)
        states, cache = call(
            Network.__call__,
            params,
            embedded.astype(dtype),
            before,
            start,
            memory.layer,
            branches=branches,
        )
        fed_back = states
        if config.norm_output:
            fed_back = call(lambda network: network.norm(states), params)
        memory = heads.estimate(memory._replace(layer=cache), fed_back, start)
        return states, memory

    def fuse(params: Any, hidden: Hidden) -> Array:
        return call(Network.join, params, hidden.taps)

    def readout(params: Any, states: Array) -> Any:
        logits = call(Network.logits, params, states)
        if config.draft_vocab is None:
            return logits
        return Reduced(logits, params["ids"], params["place"])

    observe = heads.observer(fuse, apply)
    return Model(init, apply, readout, layer.vocab, observe=observe)


def build(config: Config, gamma: int, draw: Callable = draw_independent) -> Drafter:
    """Returns a drafter of chains of `gamma` tokens; for trees, see the builders that
    take a model. Raises ValueError as `check` and `autoregressive.build` do."""
    return autoregressive.build(head(config), gamma, draw)


def parameters(
    config: Config, head: Any, target: Any, offsets: np.ndarray | None = None
) -> dict[str, Any]:
    """Returns the parameters of a head with those of its target, which are not copied.

    Args:
      config: the head's sizes.
      head: its own parameters.
      target: its target's, of which it reads the embedding.
      offsets: d2t, [K]: the head's id i is the id i + offsets[i] of the target; None
        for a head that says every id.

    Raises:
      ValueError: d2t does not give K ids that ascend, of the V of the target.
    """
    both = heads.with_target(head, target)
    if config.draft_vocab is None:
        return both
    vocab = config.layer.vocab
    if offsets is None or offsets.shape != (config.draft_vocab,):
        raise ValueError(f"d2t must give {config.draft_vocab} ids of the target")
    ids = np.arange(offsets.size) + np.asarray(offsets)
    if (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= vocab:
        raise ValueError(
            f"d2t must give ids that ascend, of the {vocab} of its target, as offsets:"
            " id i of the head is id i + d2t[i]"
        )
    place = np.full(vocab, ids.size, np.int32)
    place[ids] = np.arange(ids.size)
    return {**both, "ids": jnp.asarray(ids, jnp.int32), "place": jnp.asarray(place)}


def init_params(key: Array, config: Config) -> Any:
    """Returns fresh parameters of the head alone, each leaf boxed with the logical
    names of its axes."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    taps = (jnp.zeros((1, 1, config.target_dim)),) * len(config.taps)
    network = Network(config)
    with nn.logical_axis_rules(()):  # no mesh divides the one row
        memory = heads.empty(config.layer, Prompt(tokens, jnp.ones(1, jnp.int32)), 1)
        variables = network.init(
            key, tokens, taps, memory.layer, method=Network.everything
        )
    return variables["params"]


abstract_params, partition_specs, num_params = describe(init_params)
