"""Heads that propose several tokens at once from one hidden state of the target.

From the state of the last token that the target was called on, head i says the law of
the token i + 2 places after it, whatever lies between. So all laws of a draft are known
before its first token is drawn, and a token's own law does not depend on those drafted
before it. Two kinds are here. Those of Medusa (Cai et al. 2024,
https://arxiv.org/abs/2401.10774, Section 2.1.1) have residual layers and a readout
each. Those of blockwise parallel decoding (Stern et al. 2018,
https://arxiv.org/abs/1811.03115, Section 4) are one layer with an output for each head,
and share the target's readout. A tree of them is drafted by the drafters that take a
model; Medusa's own rule, typical acceptance, is not exact and is not here.
Axes: B rows, T tokens in one call, K heads, N layers of a head, D features, F hidden
features, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.drafters import autoregressive
from specjax.drafters.rollout import draw_independent
from specjax.models import dense
from specjax.models.tree_mask import token_positions
from specjax.types import (
    Branches,
    Drafter,
    Model,
    ModelReadout,
    Prompt,
    TargetCall,
)


class Config(NamedTuple):
    """The sizes of heads.

    Attributes:
      vocab: V.
      dim: D.
      heads: K.
      layers: N, of Medusa's residual layers.
      mlp_dim: F, of blockwise parallel heads; None for those of Medusa.
      dtype: the dtype of activations; logits are always float32.

    Weights are those of `abstract_params`, in `heads.with_target`.
    """

    vocab: int
    dim: int
    heads: int
    layers: int = 1
    mlp_dim: int | None = None
    dtype: str = "float32"

    @property
    def blockwise(self) -> bool:
        """Returns whether the heads are those of blockwise parallel decoding."""
        return self.mlp_dim is not None


class Proposals(NamedTuple):
    """The cache of the heads: what they propose after the target's last call.

    logits: [B, K, V] float32, those of head k for slot `known` + k + 1. known: [B], the
    number of tokens that the target has read."""

    logits: Array
    known: Array


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    if config.heads < 1 or config.layers < 0:
        raise ValueError(f"{config.heads} heads of {config.layers} layers: name 1 head")


def head(config: Config, readout: ModelReadout | None = None) -> Model:
    """Returns the heads as a model, whose law after a token is that of the next head.

    Args:
      config: their sizes.
      readout: the target's, of the parameters in `heads.TABLES`, for blockwise parallel
        heads.

    Raises:
      ValueError: as `check`, or there is no readout for heads that have none.
    """
    check(config)
    if config.blockwise and readout is None:
        raise ValueError("blockwise parallel heads share the target's readout")

    def init(params: Any, prompt: Prompt, slots: int) -> Proposals:
        del params, slots
        shape = len(prompt.tokens), config.heads, config.vocab
        logits = jnp.zeros(shape, jnp.float32)
        logits = nn.with_logical_constraint(logits, ("batch", "guesses", "vocab"))
        return Proposals(logits, jnp.zeros_like(prompt.length))

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        proposals: Proposals,
        branches: Branches | None = None,
    ) -> tuple[Array, Proposals]:
        del params
        place = (
            token_positions(start, tokens.shape[1], branches) - proposals.known[:, None]
        )
        which = jnp.clip(place, 0, config.heads - 1)[..., None]
        return jnp.take_along_axis(proposals.logits, which, axis=1), proposals

    def observe(params: Any, proposals: Proposals, call: TargetCall) -> Proposals:
        assert call.features is not None  # as a head needs them
        states = call.features.last
        at = jnp.maximum(call.accepted, 0)[:, None, None]
        state = jnp.take_along_axis(states, at, axis=1)[:, 0]
        state = state.astype(config.dtype)
        if readout is not None and config.blockwise:
            logits = readout(params["target"], blockwise_states(params["head"], state))
        else:
            logits = medusa_logits(params["head"], state)
        new = (call.accepted >= 0)[:, None, None]
        known = call.start + call.accepted + 1
        return Proposals(jnp.where(new, logits, proposals.logits), known)

    def identity(params: Any, logits: Array) -> Array:
        del params
        return logits

    return Model(init, apply, identity, config.vocab, observe=observe)


def build(
    config: Config,
    gamma: int,
    draw: Callable = draw_independent,
    readout: ModelReadout | None = None,
) -> Drafter:
    """Returns a drafter of chains of `gamma` tokens, at most one for each head. Raises
    ValueError for more, and as `head` and `autoregressive.build` do."""
    if gamma > config.heads:
        raise ValueError(
            f"{config.heads} heads draft {config.heads} tokens; gamma is {gamma}"
        )
    return autoregressive.build(head(config, readout), gamma, draw)


def medusa_logits(params: Any, state: Array) -> Array:
    """Returns the logits of Medusa's heads, [B, K, V], for states [B, D].

    params: "kernel" [K, N, D, D], "bias" [K, N, D] and "readout", K arrays [D, V].
    """
    x = medusa_states(params, state)
    heads = range(x.shape[1])
    return jnp.stack([head_logits(params, i, x[:, i]) for i in heads], axis=1)


def head_logits(params: Any, head: int, x: Array) -> Array:
    """Returns the logits of one head of Medusa, [B, V] float32, for its rows [B, D] of
    `medusa_states`. `params` are as for `medusa_logits`."""
    table = params["readout"][head]
    return dense.readout(x, table, tied=False, dtype=x.dtype)


def medusa_states(params: Any, state: Array) -> Array:
    """Returns what Medusa's heads read their logits from, [B, K, D], for states [B, D]
    of the target. `params` are as for `medusa_logits`."""
    x = jnp.broadcast_to(state[:, None], (len(state), *params["bias"].shape[::2]))
    for layer in range(params["kernel"].shape[1]):
        kernel, bias = (params[name][:, layer] for name in ("kernel", "bias"))
        y = jnp.einsum("bkd,kde->bke", x, kernel.astype(x.dtype))
        x = x + jax.nn.silu(y + bias.astype(x.dtype))
    return x


def blockwise_states(params: Any, state: Array) -> Array:
    """Returns the states [B, K, D] of blockwise parallel heads, for states [B, D] of
    the target; a readout turns them into logits.

    params: "in" [D, K, F], "in_bias" [K, F], "out" [K, F, D] and "out_bias" [K, D].
    """
    inner, inner_bias, outer, outer_bias = (
        params[name].astype(state.dtype)
        for name in ("in", "in_bias", "out", "out_bias")
    )
    hidden = jax.nn.relu(jnp.einsum("bd,dkf->bkf", state, inner) + inner_bias)
    return state[:, None] + jnp.einsum("bkf,kfd->bkd", hidden, outer) + outer_bias


def abstract_params(config: Config) -> dict[str, Any]:
    """Returns the shapes and dtypes of the heads' own parameters; the readouts of
    Medusa's are an array for each head."""
    count, layers, dim = config.heads, config.layers, config.dim

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    if config.mlp_dim is not None:
        wide = config.mlp_dim
        return {
            "in": array(dim, count, wide),
            "in_bias": array(count, wide),
            "out": array(count, wide, dim),
            "out_bias": array(count, dim),
        }
    return {
        "kernel": array(count, layers, dim, dim),
        "bias": array(count, layers, dim),
        "readout": (array(dim, config.vocab),) * count,
    }
