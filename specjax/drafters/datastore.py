"""Copies what followed the last tokens in other texts, or in the text itself.

The other texts are a store, as in REST (He et al. 2024,
https://arxiv.org/abs/2311.08252): a user's own files, or earlier output. The places in
the store are sorted by the tokens before them, the last one first. Bisection on the
device then finds the longest match of the end of a text, and all places with this match
are contiguous. Where the text itself has a match at least as long, `drafters.suffix`
drafts from that. The draft is certain (law None). Axes: B rows, G = gamma, N places in
the store, C tokens before a place, M occurrences.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.drafters import suffix
from specjax.drafters.nothing import no_cache
from specjax.types import Draft, Drafter, Request, State

END = -1  # follows each text; it is not an id
LONGEST = 16  # C: the most tokens of a match


class Store(NamedTuple):
    """Texts, with an index of their places sorted by the tokens before each.

    Attributes:
      tokens: [N] int32, each text followed by an `END`.
      order: [N] int32, the places of tokens, sorted by the `LONGEST` tokens before
        them, the last of these first.
    """

    tokens: Array
    order: Array


def index(texts: Iterable[Sequence[int]]) -> Store:
    """Builds a store of texts: seconds for a million ids, and eight bytes for each.

    Raises ValueError if there is no token.
    """
    ended = [np.append(np.asarray(text, np.int32), END) for text in texts]
    if not sum(text.size - 1 for text in ended):
        raise ValueError("a store needs a text of one token or more")
    tokens = np.concatenate(ended)
    # For each place, the rank of the one token before it, of the two, the four, ...
    before = np.concatenate([[END], tokens[:-1]])
    rank, reach = np.unique(before, return_inverse=True)[1].astype(np.int64), 1
    while reach < LONGEST:
        further = np.concatenate([np.full(reach, -1), rank])[: rank.size]
        both = rank * (rank.size + 1) + further + 1
        rank, reach = np.unique(both, return_inverse=True)[1], 2 * reach
    order = np.argsort(rank, kind="stable").astype(np.int32)
    return Store(jnp.asarray(tokens), jnp.asarray(order))


def build(gamma: int, longest: int = 4) -> Drafter:
    """Returns a drafter of up to `gamma` tokens after the longest match in the store.

    A match has up to `LONGEST` tokens. If the text so far has a match of up to
    `longest` tokens that is no shorter, that one is used. The parameters are a `Store`.
    Raises ValueError like `suffix.build`.
    """
    suffix.build(gamma, longest)

    def draft(
        key: Array, params: Store, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, request
        own, count, matched = suffix.find_matches(state, gamma, longest)
        ends = jax.vmap(last_tokens)(state.tokens, state.length)
        tokens, num, length = jax.vmap(
            lambda end: find_continuation(params, end, gamma)
        )(ends)
        better = jnp.minimum(length, longest) > matched
        # END stands where there are no tokens; rules read every place.
        tokens = jnp.maximum(jnp.where(better[:, None], tokens, own), 0)
        num = jnp.where(better, num, count)
        return Draft(tokens, jnp.minimum(num, state.budget), None), ()

    return Drafter(no_cache, draft, gamma)


def last_tokens(text: Array, length: Array) -> Array:
    """Returns one row's last C tokens, the latest first; END - 1 stands for places
    before its start."""
    at = length - 1 - jnp.arange(LONGEST)
    return jnp.where(at >= 0, text[jnp.maximum(at, 0)], END - 1)


def find_continuation(
    store: Store, end: Array, gamma: int
) -> tuple[Array, Array, Array]:
    """Returns the tokens [G] that follow the longest match of `end` [C], their number,
    and the length of the match.

    It works on one row.
    """
    place, index = count_before(store, end), jnp.arange(LONGEST)
    beside = jnp.stack([place - 1, place])
    agree = jax.vmap(lambda at: context(store, at) == end)(beside)
    # The longest match is next to where `end` itself would be inserted.
    matched = jnp.max(jnp.sum(jnp.cumprod(agree, axis=1), axis=1))
    cut = jnp.where(index < matched, end, END - 2)
    first = count_before(store, cut)
    cut = jnp.where(index < matched, end, jnp.iinfo(jnp.int32).max)
    last = count_before(store, cut)
    # M of them, evenly spaced; all of them if there are no more.
    spread = jnp.arange(suffix.OCCURRENCES)
    count = jnp.minimum(last - first, spread.size)
    at = first + spread * (last - first) // jnp.maximum(count, 1)
    at = store.order[jnp.minimum(at, store.order.size - 1)]
    alive = (spread < count) & (matched > 0)
    size = jnp.int32(store.tokens.size)
    return *suffix.vote(store.tokens, size, at, alive, gamma), matched


def context(store: Store, rank: Array) -> Array:
    """Returns the C tokens before the place of this rank, the latest first."""
    at = store.order[jnp.clip(rank, 0, store.order.size - 1)] - 1 - jnp.arange(LONGEST)
    there = store.tokens[jnp.maximum(at, 0)]
    return jnp.where(at >= 0, there, END)


def count_before(store: Store, end: Array) -> Array:
    """Returns the number of places whose context sorts before `end` [C]."""

    def halve_interval(_: int, bounds: tuple) -> tuple:
        low, high = bounds
        middle = (low + high) // 2
        own = context(store, middle)
        unlike = jnp.argmax(own != end)  # the first difference, 0 if there is none
        below = own[unlike] < end[unlike]
        open_ = low < high
        low = jnp.where(open_ & below, middle + 1, low)
        return low, jnp.where(open_ & ~below, middle, high)

    size = store.order.size
    bounds = jnp.int32(0), jnp.int32(size)
    return jax.lax.fori_loop(0, size.bit_length(), halve_interval, bounds)[0]
