"""Copies what followed the last tokens when they occurred before (Section 3.6).

Known as prompt lookup. The draft is certain (law None): accepted where the target draws
the same, exact by the same theorem. Or it is one with a model's (`first`).
Axes: B rows, L buffer, G = gamma, V vocabulary.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.drafters.nothing import no_cache
from specjax.types import (
    Draft,
    Drafter,
    Encoded,
    Features,
    Law,
    Reduced,
    Request,
    State,
)


def build(gamma: int, longest: int = 3, least: int = 1) -> Drafter:
    """Drafts up to `gamma` tokens after the latest match of the last `longest` tokens,
    or of fewer, down to `least`; nothing where none matches. It looks in
    `state.context` (tokens [B, S] and length [B], an encoder's input) if there is one
    of tokens, else in the text so far. Raises ValueError if any is below 1, or `least`
    above `longest`."""
    if gamma < 1 or longest < 1:
        raise ValueError(
            f"gamma and longest must be at least 1; got {gamma} and {longest}"
        )
    if not 1 <= least <= longest:
        raise ValueError(f"least must be from 1 to longest, {longest}; got {least}")

    def draft(
        key: Array, params, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, params, request
        tokens, num = _found(state, gamma, longest, least)
        return Draft(tokens, jnp.minimum(num, state.budget), None), ()

    return Drafter(no_cache, draft, gamma)


def first(draw: Callable, gamma: int, least: int) -> Callable:
    """Draws of a model's drafter, as `drafters.rollout` has them, but that what follows
    a match of the last `least` tokens is copied: there the law is sure of the token.
    Raises ValueError for a `least` below 1."""
    if least < 1:
        raise ValueError(f"least must be at least 1; got {least}")

    def begin(key: Array, request: Request, state: State, most: int) -> Callable:
        drawn = draw(key, request, state, most)
        tokens, num = _found(state, gamma, least, least)

        def choose(logits: Array | Reduced, slot: Array | int) -> tuple[Array, Law]:
            logits = probs.spread(logits)
            at = jnp.take(tokens, slot, axis=1)[:, None]
            sure = jnp.where(jnp.arange(logits.shape[-1]) == at, 0.0, -jnp.inf)
            copied = (slot < num)[:, None]
            return drawn(jnp.where(copied, sure.astype(logits.dtype), logits), slot)

        return choose

    return begin


def short_else(drafter: Drafter, least: int, short: int) -> Drafter:
    """A drafter that begins with copies (`first`), held to `short` tokens where nothing
    is copied, and to what there is to copy where something is: copies are often long,
    and where there are none each token that is drafted costs a row of the target's
    call. How much is drafted depends on the text before it alone."""

    def draft(
        key: Array, params, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, object]:
        _, num = _found(state, drafter.gamma, least, least)
        most = jnp.where(num > 0, num, short)
        held = state._replace(budget=jnp.minimum(state.budget, most))
        return drafter.draft(key, params, request, held, *go_on)

    return drafter._replace(draft=draft, widths=(*drafter.widths, short))


def _found(state: State, gamma: int, longest: int, least: int) -> tuple:
    """What follows the best match of each row, tokens [B, G] and how many [B]. The
    greatest merit wins, and among equals the latest position."""

    def find(text: Array, length: Array, source: Array, end: Array):
        merit = merits(text, length, source, end, longest)
        best = source.size - 1 - jnp.argmax(merit[::-1])
        padded = jnp.pad(source, (0, gamma))
        tokens = jax.lax.dynamic_slice(padded, (best,), (gamma,))
        num = jnp.where(merit[best] >= least, jnp.minimum(end - best, gamma), 0)
        return tokens, num

    return jax.vmap(find)(state.tokens, state.length, *source_of(state))


def source_of(state: State) -> tuple[Array, Array]:
    """Where a draft is copied from, tokens [B, S] and length [B]: an encoder's input if
    there is one of tokens, else the text so far."""
    own = state.context is None or isinstance(state.context, (Features, Encoded))
    return (state.tokens, state.length) if own else state.context


def merits(text: Array, length: Array, source: Array, end: Array, longest: int):
    """One row: of each position in `source` [S], how many tokens before it agree with
    the end of the text, at most `longest`; 0 where nothing follows."""
    position = jnp.arange(source.size)
    agree, merit = jnp.ones(source.size, bool), jnp.zeros(source.size, jnp.int32)
    for back in range(1, longest + 1):
        at = jnp.maximum(position - back, 0)
        same = source[at] == text[jnp.maximum(length - back, 0)]
        agree &= same & (position >= back) & (length >= back)
        merit += agree
    return jnp.where(position < end, merit, 0)
