"""Copies an encoder's input from where the text stands in it, and finds its way back.

For tasks whose output is most of their input, such as corrections: input-guided
drafts of Sun et al. (2021), https://arxiv.org/abs/2106.04970, Section 3, which copy on
from a place in the source, and after a deviation look for where the last token is the
same again. Ours looks next to the place first, and where the new token is nowhere takes
it for the word that stood there: it goes on from the source's next word. So it does
where nothing is written yet, as the first word of an input of T5 names the task. The
draft is certain (law None).
Axes: B rows, L buffer, S source, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax.drafters.copying import merits, source_of
from specjax.types import Draft, Drafter, Prompt, Request, State

LONGEST = 3  # tokens that are compared
BEHIND, AHEAD = 4, 8  # of the place, where one token that is the same will do


class Place(NamedTuple):
    """at [B]: where in the source the next token is expected. seen [B]: the length of
    the text when that was said."""

    at: Array
    seen: Array


def build(gamma: int) -> Drafter:
    """Drafts up to `gamma` tokens from its place in the source, where
    `drafters.copying` looks. Its parameters are [V] bool, which ids begin a word.
    Raises ValueError if gamma < 1."""
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1; got {gamma}")

    def init(params, prompt: Prompt, slots: int) -> Place:
        del params, slots
        return Place(jnp.zeros_like(prompt.length), prompt.length)

    def resumed(text, length, source, end, begins, at, seen) -> Array:
        """One row: its place, after what was written since it was `at` a place."""
        index, position = jnp.arange(gamma + 1), jnp.arange(source.size)
        where = jnp.minimum(at + index, source.size - 1)
        same = source[where] == text[jnp.minimum(seen + index, text.size - 1)]
        new = index < length - seen
        count = jnp.sum(jnp.cumprod(same & new & (at + index < end)))
        at += count
        merit = merits(text, length, source, end, LONGEST)
        near = (position >= at - BEHIND) & (position < at + AHEAD)
        good = merit >= jnp.where(near, 1, 2)  # further off one token is chance
        rank = (near * (LONGEST + 1) + merit) * 2 * source.size - jnp.abs(position - at)
        best = jnp.argmax(jnp.where(good, rank, -source.size))
        word = jnp.argmax(begins & (position > at))  # 0 where there is none
        word = jnp.where(word > at, word, end)
        further = jnp.where(good.any(), best, word)
        follows = (count > 0) & (count == jnp.sum(new))
        return jnp.where(follows, at, further).astype(jnp.int32)

    def draft(
        key: Array, params: Array, request: Request, state: State
    ) -> tuple[Draft, Place]:
        del key, request
        source, end = source_of(state)
        rows = state.tokens, state.length, source, end, params[source]
        at = jax.vmap(resumed)(*rows, *state.draft_cache)
        padded = jnp.pad(source, ((0, 0), (0, gamma)))
        take = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (gamma,)))
        num = jnp.clip(end - at, 0, jnp.minimum(gamma, state.budget))
        return Draft(take(padded, at), num, None), Place(at, state.length)

    return Drafter(init, draft, gamma)
