"""A smaller model drafts: gamma calls of M_q, one token each (Section 2.1).

Axes: B rows, T tokens, E features, V vocabulary.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from specjax import chunks
from specjax.drafters import nothing
from specjax.drafters.rollout import Proposal, independent, rollout
from specjax.types import Draft, Drafter, Model, Prompt, Request, State


def build(model: Model, gamma: int, draw: Callable = independent) -> Drafter:
    """A drafter of `gamma` tokens; see `drafters.rollout` for `draw`. Raises ValueError
    if gamma < 0, or more than the model's caches take back."""
    if gamma < 0:
        raise ValueError(f"gamma must be at least 0 (0 is autoregression); got {gamma}")
    if gamma == 0:
        return nothing.drafter
    chunks.check_room(model, gamma, "draft")

    def draft(
        key: Array, params, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, object]:
        features, cache = catch_up(model, params, state, 2)
        begun = Proposal(model.readout(params, features), cache)
        drawn, advance = draw(key, request, state, gamma), calling(model, params, state)
        return rollout(drawn, state, gamma, begun, advance, model.slots, *go_on)

    limits = model.vocab, model.shapes, model.slots
    return Drafter(after_prompt(model), draft, gamma, *limits, stops=True)


def calling(model: Model, params, state: State) -> Callable:
    """What `rollout` advances by: (cache, token [B], slot) -> the next Proposal."""

    def advance(cache, token: Array, slot: Array | int) -> Proposal:
        block, start = token[:, None], state.length + slot
        features, cache = model.apply(params, block, start, cache)
        return Proposal(model.readout(params, features[:, 0]), cache)

    return advance


def after_prompt(model: Model, more: int = 0) -> Callable:
    """The `init` of who drafts by a model: its cache, with so many more slots, after
    the prompt."""

    def init(params, prompt: Prompt, slots: int):
        cache = model.init(params, prompt, slots + more)
        return chunks.prefill(model, params, prompt, cache)

    return init


def catch_up(model: Model, params, state: State, count: int) -> tuple[Array, object]:
    """Feeds the last `count` committed tokens; returns the last one's features [B, E].
    After a full acceptance the drafter has not been fed its own last token: two fill
    that slot with no call and no case of its own. After a tree, as many as a step may
    commit and one: a node's slot in the draft's cache is not that of its place in the
    text."""
    start = jnp.maximum(state.length - count, 0)
    index = start[:, None] + jnp.arange(count)
    block = jnp.take_along_axis(state.tokens, index, axis=1)
    features, cache = model.apply(params, block, start, state.draft_cache)
    at = (state.length - 1 - start)[:, None, None]
    return jnp.take_along_axis(features, at, axis=1)[:, 0], cache
