"""Token recycling: drafts the ids that the target last found probable after each id.

Luo et al. (2024), https://arxiv.org/abs/2408.08696. A table holds the K most probable
successors of each id, as the target last computed them in this text, even after tokens
that were rejected. The draft is a tree of them with a given shape, or a chain of the
most probable. The table starts with the successors in the prompt. It takes V K int32
per row of the batch: 49,152 ids and K = 8 are 1.5 MiB. The draft is certain (law None).
Axes: B rows, T tokens in a call, G nodes, K successors, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import trees
from specjax.types import Draft, Drafter, Prompt, Request, State, TargetCall

NONE = -1  # no successor was seen


def build(vocab: int, gamma: int, parent: Sequence[int] | None = None) -> Drafter:
    """Returns a drafter of `gamma` tokens: a chain, or a tree with the given parents.

    parent: see `specjax.trees`. Raises ValueError if gamma < 1, or unless `parent` is a
    tree of gamma nodes.
    """
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1; got {gamma}")
    above = tuple(range(-1, gamma - 1)) if parent is None else tuple(parent)
    trees.check(above)
    if len(above) != gamma:
        raise ValueError(f"the tree has {len(above)} nodes and gamma is {gamma}")
    rank = [above[:node].count(one) for node, one in enumerate(above)]
    most = max(rank) + 1  # K

    def init(params: Any, prompt: Prompt, slots: int) -> Array:
        del params, slots
        tokens, batch = prompt.tokens, prompt.length.size
        after = jnp.pad(tokens[:, 1:], ((0, 0), (0, 1)))
        live = jnp.arange(tokens.shape[1]) < prompt.length[:, None] - 1
        table = jnp.full((batch, vocab, most), NONE, jnp.int32)
        first = jnp.full((*tokens.shape, most), NONE, jnp.int32).at[..., 0].set(after)
        return update_table(table, tokens, first, live)

    def draft(
        key: Array, params: Any, request: Request, state: State
    ) -> tuple[Draft, Array]:
        del key, params, request
        rows, table = jnp.arange(state.length.size), state.draft_cache
        nodes = [state.tokens[rows, state.length - 1]]
        for one, place in zip(above, rank, strict=True):
            before = nodes[one + 1]
            after = table[rows, jnp.maximum(before, 0), place]
            nodes.append(jnp.where(before < 0, NONE, after))
        tokens = jnp.stack(nodes[1:], axis=1)
        known, num = tokens >= 0, jnp.minimum(state.budget, gamma)
        tokens = jnp.maximum(tokens, 0)  # unknown nodes of a tree may be any id
        if parent is None:
            num = jnp.minimum(num, jnp.sum(jnp.cumprod(known, axis=1), axis=1))
            return Draft(tokens, num.astype(jnp.int32), None), table
        shape = jnp.broadcast_to(jnp.array(above, jnp.int32), tokens.shape)
        return Draft(tokens, num.astype(jnp.int32), None, shape), table

    def observe(params: Any, table: Array, call: TargetCall) -> Array:
        del params
        assert call.law is not None  # as of a step
        likely = jax.lax.top_k(call.law.logits, most)[1].astype(jnp.int32)
        live = jnp.arange(call.tokens.shape[1]) <= call.num[:, None]
        return update_table(table, call.tokens, likely, live)

    chain = Drafter(init, draft, gamma, vocab=vocab, observe=observe)
    if parent is None:
        return chain
    depth = int(np.max(trees.depths(above)))
    return chain._replace(siblings="certain", depth=depth)


def update_table(table: Array, ids: Array, after: Array, live: Array) -> Array:
    """Returns the table [B, V, K], in which `after` [B, T, K] replaces the entries of
    those ids [B, T] that are `live`.

    Where an id occurs twice, the later entry counts.
    """
    index = jnp.arange(ids.shape[1])
    later = (ids[:, :, None] == ids[:, None, :]) & live[:, None, :]
    last = live & ~(later & (index > index[:, None])).any(-1)
    at = jnp.where(last, ids, table.shape[1])
    put = jax.vmap(lambda row, at, new: row.at[at].set(new, mode="drop"))
    return put(table, at, after)
