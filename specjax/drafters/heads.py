"""The parts of heads, which draft from the hidden states of the target.

A head is a `Model` that also observes (`Model.observe`): beside a token it reads the
hidden state of the token before it, and it returns an estimate of the token's own. Of
the text, the target computed these states; of drafted tokens there are the head's own
estimates. Both lie in one buffer, slot by slot, so that chains and trees are drafted by
the drafters of any model (`autoregressive`, `tree`, `grown`, `best_first`), and
rejecting needs no undo here either. The pair of a state and the token after it is that
of EAGLE (Li et al. 2024, https://arxiv.org/abs/2401.15077, Section 3.1).

What a head takes of the target's weights are the same arrays, in its own parameters
under "target" (`with_target`). They are not in its cache: a step takes over the
buffers of its state, and would free the target's.
Axes: B rows, T tokens in one call, S slots, H features of the head, V vocabulary.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models import cache
from specjax.models.attention import Attention
from specjax.models.blocks import FeedForward, RMSNorm
from specjax.models.cache import KeyValues
from specjax.models.llama import GATES, STYLES, Config, rotator
from specjax.models.tree_mask import (
    first_slot,
    parent_indices,
    token_positions,
    visible_slots,
)
from specjax.types import Branches, Prompt, TargetCall

TABLES = "embedding", "readout"  # what a head may take of its target's weights


class Memory(NamedTuple):
    """The cache of a head with a decoder layer.

    hidden: [B, S, H], of each slot's token: what the target computed in slots below
    `known` [B], the head's estimates from there on. layer: the sizes of the head's own
    attention.
    """

    hidden: Array
    known: Array
    layer: KeyValues


def empty(config: Config, prompt: Prompt, slots: int) -> Memory:
    """Returns the memory of a head before the prompt is read. config: that of its
    decoder layer."""
    batch, dtype = len(prompt.tokens), jnp.dtype(config.dtype)
    (layer,) = cache.empty(
        1,
        batch=batch,
        heads=config.key_heads,
        slots=slots,
        width=config.head_width,
        dtype=dtype,
    )
    hidden = jnp.zeros((batch, slots, config.dim), dtype)
    hidden = nn.with_logical_constraint(hidden, ("batch", "slots", "embed"))
    return Memory(hidden, jnp.zeros_like(prompt.length), layer)


def store(memory: Memory, hidden: Array, call: TargetCall) -> Memory:
    """Returns the memory, updated with the states [B, T, H] that the target computed
    for a call's tokens.

    Beyond the accepted tokens it is not the text's; estimates are written over it
    before it is read.
    """
    new = hidden.astype(memory.hidden.dtype)
    known = call.start + call.accepted + 1
    return memory._replace(
        hidden=_write_slots(memory.hidden, new, call.start), known=known
    )


def estimate(memory: Memory, hidden: Array, start: Array) -> Memory:
    """Returns the memory with the head's estimates [B, T, H] in the slots from `start`
    [B] on for which no state of the target is known."""
    count = hidden.shape[1]
    old = _get(memory.hidden, start, count)
    known = start[:, None] + jnp.arange(count) < memory.known[:, None]
    new = jnp.where(known[..., None], old, hidden.astype(old.dtype))
    return memory._replace(hidden=_write_slots(memory.hidden, new, start))


def hidden_before(
    memory: Memory, start: Array, count: int, branches: Branches | None
) -> Array:
    """Returns the state of the token before each token of a call, [B, T, H]: in a tree,
    that of its parent. Before a text it is 0."""
    if branches is None:
        slots = start[:, None] + jnp.arange(count) - 1
    else:
        parent = parent_indices(branches)
        slots = first_slot(branches, start)[:, None] + parent
    found = jnp.take_along_axis(memory.hidden, jnp.maximum(slots, 0)[..., None], axis=1)
    return jnp.where((slots < 0)[..., None], 0, found)


def seen_slots(
    start: Array, count: int, slots: int, branches: Branches | None
) -> Array:
    """Returns which slots each token of a call sees, [B, T, S] bool. Slot 0 has no
    state before it, so only its own token sees it."""
    held = jnp.arange(slots)[None]
    own = start[:, None] + jnp.arange(count)
    if branches is None:
        mask = held[:, None] <= own[:, :, None]
    else:
        mask = visible_slots(branches, start, held)
    return mask & ((held > 0)[:, None] | (own == 0)[:, :, None])


class Layer(nn.Module):
    """A decoder layer of Llama's kind without a norm before its attention.

    Attributes:
      config: the layer's sizes, style, rotation and norms.
      width: the width of what attention reads; None is that of the residual stream.
      write: how keys and values are written; None is as `Attention` does, which no
        gradient passes on a CPU.
    """

    config: Config
    width: int | None = None
    write: Callable[..., Any] | None = None

    @nn.compact
    def __call__(
        self,
        x: Array,
        stream: Array,
        start: Array,
        memory: KeyValues,
        *,
        branches: Branches | None,
    ) -> tuple[Array, KeyValues]:
        """Returns the stream [B, T, H] after attention, which reads x [B, T, `width`],
        and the feed-forward layer; and `memory`, the cache of its attention."""
        config, style = self.config, STYLES[self.config.style]
        norm = functools.partial(RMSNorm, config.eps, style.offset)
        dtype, count = jnp.dtype(config.dtype), x.shape[1]
        attention = Attention(
            features=self.width or config.dim,
            heads=config.num_heads,
            head_width=config.head_width,
            dtype=dtype,
            key_heads=config.key_heads,
            use_bias=config.biased,
            out_bias=config.out_biased,
            scale=config.scale,
            norm=functools.partial(norm, axis="head_width") if style.normed else None,
            out_features=config.dim,
            name="attention",
        )
        # A pair stands where its state does, one place before its token.
        positions = token_positions(start, count, branches) - 1
        write = self.write and functools.partial(self.write, start=start)
        stream, memory = attention(
            x,
            positions,
            memory,
            mask=seen_slots(start, count, memory.values.shape[2], branches),
            rotate=rotator(config.rotation, config.head_width, positions, dtype),
            write=write,
            start=start,
            add=stream,
        )
        mlp = FeedForward(
            config.mlp_dim,
            dtype,
            use_bias=config.mlp_biased,
            activation=GATES[style.gate],
            gated=True,
            name="mlp",
        )
        last = norm(name="mlp_norm").law(config.dim)
        return mlp(stream, norm=last, add=True), memory


def observer(
    fuse: Callable[[Any, Any], Array], apply: Callable[..., tuple[Array, Memory]]
) -> Callable[[Any, Memory, TargetCall], Memory]:
    """Returns the `observe` of a head with a decoder layer.

    fuse: (params, Hidden) -> what the head reads of the target's hidden states,
    [B, T, H]. apply: the head's own. It reads a prompt at once, and the tokens of a
    step in the next draft, which must read the last of them anyway
    (`autoregressive.catch_up`).
    """

    def observe(params: Any, memory: Memory, call: TargetCall) -> Memory:
        memory = store(memory, fuse(params, call.features), call)
        if call.law is not None:  # of a step
            return memory
        return apply(params, call.tokens, call.start, memory)[1]

    return observe


def with_target(head: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a head's parameters together with those of its target, which are not
    copied.

    Raises ValueError for a target whose embedding is not at the top of its parameters,
    as of one with an encoder.
    """
    if "embedding" not in params:
        raise ValueError(
            "the target has no embedding of its own decoder alone: name a GPT or a"
            " model of Llama's kind"
        )
    return {"head": head, "target": {x: params[x] for x in TABLES if x in params}}


@jax.vmap
def _write_slots(row: Array, new: Array, start: Array) -> Array:
    """Returns a buffer [B, S, H] with `new` [B, T, H] written from slots `start` [B]
    on."""
    return jax.lax.dynamic_update_slice_in_dim(row, new, start, 0)


def _get(buffer: Array, start: Array, count: int) -> Array:
    """Returns `count` slots of a buffer [B, S, H] from slots `start` [B] on."""

    def row(row: Array, at: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(row, at, count, 0)

    return jax.vmap(row)(buffer, start)
