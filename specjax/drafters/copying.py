"""Copies what followed the last tokens where they occurred before (Section 3.6).

This is known as prompt lookup. The draft is certain (law None): a token is accepted if
the target draws the same one, which is exact by the same theorem. It can also be
combined with a model's draft (`copy_first`). Axes: B rows, L buffer, G = gamma, V
vocabulary.
"""

from collections.abc import Callable
from typing import Any

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
    """Returns a drafter of up to `gamma` tokens that follow a match of the last ones.

    A match has `longest` tokens, or fewer down to `least`; without one nothing is
    drafted. The source is `state.context` (tokens [B, S] and length [B], an encoder's
    input) if that consists of tokens, else the text so far. Raises ValueError if a
    number is below 1, or `least` is above `longest`.
    """
    if gamma < 1 or longest < 1:
        raise ValueError(
            f"gamma and longest must be at least 1; got {gamma} and {longest}"
        )
    if not 1 <= least <= longest:
        raise ValueError(f"least must be from 1 to longest, {longest}; got {least}")

    def draft(
        key: Array, params: Any, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, params, request
        tokens, num = _find(state, gamma, longest, least)
        return Draft(tokens, jnp.minimum(num, state.budget), None), ()

    return Drafter(no_cache, draft, gamma)


def copy_first(draw: Callable, gamma: int, least: int) -> Callable:
    """Returns a `draw` that copies after a match of the last `least` tokens.

    Copied tokens have a law that is certain of them. See `drafters.rollout`. Raises
    ValueError for `least` below 1.
    """
    if least < 1:
        raise ValueError(f"least must be at least 1; got {least}")

    def begin(key: Array, request: Request, state: State, most: int) -> Callable:
        drawn = draw(key, request, state, most)
        tokens, num = _find(state, gamma, least, least)

        def choose(logits: Array | Reduced, slot: Array | int) -> tuple[Array, Law]:
            logits = probs.expand_logits(logits)
            at = jnp.take(tokens, slot, axis=1)[:, None]
            sure = jnp.where(jnp.arange(logits.shape[-1]) == at, 0.0, -jnp.inf)
            copied = (slot < num)[:, None]
            return drawn(jnp.where(copied, sure.astype(logits.dtype), logits), slot)

        return choose

    return begin


def shorten_without_copy(drafter: Drafter, least: int, short: int) -> Drafter:
    """Returns a drafter that drafts only `short` tokens where it copies nothing.

    Where it copies, it drafts only as much as there is to copy. Copies are often long,
    and elsewhere each drafted token costs a row of the target's call. The length
    depends only on the text so far.
    """

    def draft(
        key: Array, params: Any, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, object]:
        _, num = _find(state, drafter.gamma, least, least)
        most = jnp.where(num > 0, num, short)
        limited = state._replace(budget=jnp.minimum(state.budget, most))
        return drafter.draft(key, params, request, limited, *go_on)

    return drafter._replace(draft=draft, widths=(*drafter.widths, short))


def _find(state: State, gamma: int, longest: int, least: int) -> tuple:
    """Returns the tokens that follow the best match of each row, [B, G], and their
    number, [B].

    The longest match wins; among equally long ones, the latest.
    """

    def find(
        text: Array, length: Array, source: Array, end: Array
    ) -> tuple[Array, Array]:
        merit = match_lengths(text, length, source, end, longest)
        best = source.size - 1 - jnp.argmax(merit[::-1])
        padded = jnp.pad(source, (0, gamma))
        tokens = jax.lax.dynamic_slice(padded, (best,), (gamma,))
        num = jnp.where(merit[best] >= least, jnp.minimum(end - best, gamma), 0)
        return tokens, num

    return jax.vmap(find)(state.tokens, state.length, *copy_source(state))


def copy_source(state: State) -> tuple[Array, Array]:
    """Returns the text that drafts are copied from: tokens [B, S] and length [B].

    It is an encoder's input if that consists of tokens, else the text so far.
    """
    own = state.context is None or isinstance(state.context, (Features, Encoded))
    return (state.tokens, state.length) if own else state.context


def match_lengths(
    text: Array, length: Array, source: Array, end: Array, longest: int
) -> Array:
    """Returns [S], how many tokens before each position in `source` [S] match the end
    of the text.

    It works on one row. The tokens are compared with the end of the text, at most
    `longest`; 0 at positions where nothing follows.
    """
    position = jnp.arange(source.size)
    agree, merit = jnp.ones(source.size, bool), jnp.zeros(source.size, jnp.int32)
    for back in range(1, longest + 1):
        at = jnp.maximum(position - back, 0)
        same = source[at] == text[jnp.maximum(length - back, 0)]
        agree &= same & (position >= back) & (length >= back)
        merit += agree
    return jnp.where(position < end, merit, 0)
