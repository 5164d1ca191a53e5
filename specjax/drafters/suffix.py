"""Copies what most often followed the last tokens wherever they occurred before.

As suffix decoding (Oliaro et al. 2024, https://arxiv.org/abs/2411.04975): the longest
match of the end of the text, and of all its occurrences the most frequent next token,
then of those that went on so the next. A match is found by comparing the whole buffer,
L `longest` comparisons a step, and nothing is kept, where a suffix automaton would grow
token by token. Matches of a few tokens are preferred to longer ones, which have fewer
occurrences to count. The draft is certain (law None).
Axes: B rows, L buffer, S source, G = gamma, M occurrences.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.drafters.copying import merits, source_of
from specjax.drafters.nothing import no_cache
from specjax.types import Draft, Drafter, Request, State

OCCURRENCES = 32  # M, the latest: more voices say no more, and are compared in pairs


def build(gamma: int, longest: int = 4) -> Drafter:
    """Drafts up to `gamma` tokens after all matches of the last `longest` tokens, or of
    as many as match anywhere; nothing where none does. It looks where
    `drafters.copying` does. Raises ValueError if either is below 1."""
    if gamma < 1 or longest < 1:
        raise ValueError(
            f"gamma and longest must be at least 1; got {gamma} and {longest}"
        )

    def draft(
        key: Array, params, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, params, request
        tokens, num, _ = found(state, gamma, longest)
        return Draft(tokens, jnp.minimum(num, state.budget), None), ()

    return Drafter(no_cache, draft, gamma)


def found(state: State, gamma: int, longest: int) -> tuple[Array, Array, Array]:
    """Tokens [B, G], how many [B], and how many tokens matched before them [B]."""

    def find(text: Array, length: Array, source: Array, end: Array):
        merit = merits(text, length, source, end, longest)
        best = jnp.max(merit)
        among = (merit == best) & (best > 0)
        at = jnp.where(among, jnp.arange(source.size), -1)
        at = jax.lax.top_k(at, min(OCCURRENCES, source.size))[0]  # the latest first
        return *voted(source, end, at, at >= 0, gamma), best

    return jax.vmap(find)(state.tokens, state.length, *source_of(state))


def voted(
    source: Array, end: Array, at: Array, alive: Array, gamma: int
) -> tuple[Array, Array]:
    """One row: what most of the places `at` [M] that are `alive` go on with, tokens [G]
    and how many. The earlier place wins among equals; a place ends with the source or
    at an id below 0."""

    def following(carried: tuple, _: None) -> tuple:
        at, alive = carried
        token = source[jnp.minimum(at, source.size - 1)]
        alive &= (at < end) & (token >= 0)
        votes = jnp.sum((token[:, None] == token) & alive, axis=1)
        chosen = token[jnp.argmax(jnp.where(alive, votes, 0))]
        return (at + 1, alive & (token == chosen)), (chosen, alive.any())

    _, (tokens, real) = jax.lax.scan(following, (at, alive), length=gamma)
    return tokens.astype(jnp.int32), jnp.sum(real, dtype=jnp.int32)
