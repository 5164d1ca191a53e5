"""A smaller model drafts: gamma calls of M_q, one token each (Section 2.1).

Axes: B rows, T tokens, E features, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks
from specjax.drafters import nothing
from specjax.drafters.rollout import Proposal, draw_independent, rollout
from specjax.types import Draft, Drafter, Model, Prompt, Request, State


def build(
    model: Model, gamma: int, draw: Callable = draw_independent, *, behind: int = 2
) -> Drafter:
    """Returns a drafter of `gamma` tokens; see `drafters.rollout` for `draw`.

    behind: committed tokens that are read before a draft; more than 2 below other
    levels, see `drafts.levels`. Raises ValueError if gamma < 0, or is more than
    the model's caches can take back.
    """
    if gamma < 0:
        raise ValueError(f"gamma must be at least 0 (0 is autoregression); got {gamma}")
    if gamma == 0:
        return nothing.drafter
    chunks.check_room(model, gamma, "draft")
    # A head reads all that a step commits once more, by the target's hidden states.
    unread = behind if model.observe is None else gamma + 1

    def draft(
        key: Array,
        params: Any,
        request: Request,
        state: State,
        go_on: Callable | None = None,
    ) -> tuple[Draft, object]:
        features, cache = catch_up(model, params, state, unread)
        return rollout(
            draw(key, request, state, gamma),
            state,
            gamma,
            initial=Proposal(model.readout(params, features), cache),
            advance=advance_fn(model, params, state),
            positions=model.slots,
            go_on=go_on,
        )

    return Drafter(
        init_fn(model),
        draft,
        gamma,
        vocab=model.vocab,
        shapes=model.shapes,
        slots=model.slots,
        stops=True,
        observe=model.observe,
        needs_features=model.observe is not None,
    )


def advance_fn(model: Model, params: Any, state: State) -> Callable:
    """Returns `rollout`'s `advance`: (cache, token [B], slot) -> the next Proposal."""

    def advance(cache: Any, token: Array, slot: Array | int) -> Proposal:
        block, start = token[:, None], state.length + slot
        features, cache = model.apply(params, block, start, cache)
        last = jax.tree.map(lambda x: x[:, 0], features)
        return Proposal(model.readout(params, last), cache)

    return advance


def init_fn(model: Model, more: int = 0) -> Callable:
    """Returns the `init` of a drafter by a model, which returns the cache after the
    prompt. For a head it returns the cache before the prompt, because the head observes
    the target reading it.

    more: additional slots of the cache.
    """

    def init(params: Any, prompt: Prompt, slots: int) -> Any:
        cache = model.init(params, prompt, slots + more)
        if model.observe is not None:
            return cache
        return chunks.prefill(model, params, prompt, cache)

    return init


def catch_up(model: Model, params: Any, state: State, count: int) -> tuple[Any, Any]:
    """Feeds the last `count` committed tokens; returns the last one's features, with
    leaves [B, ...], and the cache.

    After a full acceptance the drafter has not been fed its own last token; feeding two
    tokens fills that slot without an additional call or a special case. After a tree,
    feed as many as a step may commit and one more, because a node's slot in the draft's
    cache is not its place in the text.
    """
    start = jnp.maximum(state.length - count, 0)
    index = start[:, None] + jnp.arange(count)
    block = jnp.take_along_axis(state.tokens, index, axis=1)
    features, cache = model.apply(params, block, start, state.draft_cache)

    def last_of_row(leaf: Array) -> Array:
        at = (state.length - 1 - start).reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.take_along_axis(leaf, at, axis=1)[:, 0]

    return jax.tree.map(last_of_row, features), cache
