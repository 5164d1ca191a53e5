"""Copies an encoder's input from the position that the text has reached in it.

It is for tasks whose output is mostly their input, such as corrections: the
input-guided drafts of Sun et al. (2021), https://arxiv.org/abs/2106.04970, Section 3.
They copy on from a position in the source, and after a deviation look for the next
place where the last token matches again. This drafter looks near its position first. If
the new token is nowhere in the source, it is taken to replace the word at the position,
and copying goes on from the source's next word. The same happens before anything is
written, because the first word of a T5 input names the task. The draft is certain (law
None). Axes: B rows, L buffer, S source, G = gamma, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax.drafters.copying import copy_source, match_lengths
from specjax.types import Draft, Drafter, Prompt, Request, State

LONGEST = 3  # the most tokens that are compared
BEHIND, AHEAD = 4, 8  # so near to the place a match of one token is enough


class Place(NamedTuple):
    """The position of each row in its source.

    at: [B], where in the source the next token is expected.
    seen: [B], the length of the text when `at` was computed.
    """

    at: Array
    seen: Array


class Row(NamedTuple):
    """A row: its text and its source, their lengths, the beginnings of words, and its
    place."""

    text: Array
    length: Array
    source: Array
    end: Array
    begins: Array
    at: Array
    seen: Array


def build(gamma: int) -> Drafter:
    """Returns a drafter of up to `gamma` tokens from its position in the source.

    The source is the one of `drafters.copying`. The parameters are [V] bool: which ids
    begin a word. Raises ValueError if gamma < 1.
    """
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1; got {gamma}")

    def init(params: Any, prompt: Prompt, slots: int) -> Place:
        del params, slots
        return Place(jnp.zeros_like(prompt.length), prompt.length)

    def resume(row: Row) -> Array:
        """Returns a row's position after the tokens that were written since `seen`."""
        source, end, at = row.source, row.end, row.at
        index, position = jnp.arange(gamma + 1), jnp.arange(source.size)
        where = jnp.minimum(at + index, source.size - 1)
        same = (
            source[where] == row.text[jnp.minimum(row.seen + index, row.text.size - 1)]
        )
        new = index < row.length - row.seen
        count = jnp.sum(jnp.cumprod(same & new & (at + index < end)))
        at += count
        merit = match_lengths(row.text, row.length, source, end, LONGEST)
        near = (position >= at - BEHIND) & (position < at + AHEAD)
        good = merit >= jnp.where(near, 1, 2)  # farther away one token may be chance
        rank = (near * (LONGEST + 1) + merit) * 2 * source.size - jnp.abs(position - at)
        best = jnp.argmax(jnp.where(good, rank, -source.size))
        word = jnp.argmax(row.begins & (position > at))  # 0 if there is none
        word = jnp.where(word > at, word, end)
        further = jnp.where(good.any(), best, word)
        follows = (count > 0) & (count == jnp.sum(new))
        return jnp.where(follows, at, further).astype(jnp.int32)

    def draft(
        key: Array, params: Array, request: Request, state: State
    ) -> tuple[Draft, Place]:
        del key, request
        source, end = copy_source(state)
        place: Place = state.draft_cache
        at = jax.vmap(resume)(
            Row(
                text=state.tokens,
                length=state.length,
                source=source,
                end=end,
                begins=params[source],
                at=place.at,
                seen=place.seen,
            )
        )
        padded = jnp.pad(source, ((0, 0), (0, gamma)))
        take = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (gamma,)))
        num = jnp.clip(end - at, 0, jnp.minimum(gamma, state.budget))
        return Draft(take(padded, at), num, None), Place(at, state.length)

    return Drafter(init, draft, gamma)
