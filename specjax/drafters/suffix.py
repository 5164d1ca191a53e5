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
from specjax.topologies import paths as apart
from specjax.types import Draft, Drafter, Request, State

OCCURRENCES = 32  # M, the latest: more voices say no more, and are compared in pairs


def build(gamma: int, longest: int = 4, paths: int = 1) -> Drafter:
    """Drafts up to `gamma` tokens after all matches of the last `longest` tokens, or of
    as many as match anywhere; nothing where none does. It looks where
    `drafters.copying` does. paths: with two or more it drafts a tree of gamma nodes,
    one path from each of the most frequent next tokens. Raises ValueError if any is
    below 1."""
    if min(gamma, longest, paths) < 1:
        raise ValueError(
            f"gamma, longest and paths must be at least 1; got {gamma}, {longest} and"
            f" {paths}"
        )
    parent = jnp.array(apart.build(paths)(gamma), jnp.int32)
    depth = -(-gamma // paths)

    def draft(
        key: Array, params, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, params, request
        tokens, num, _ = found(state, depth, longest, paths)
        num = jnp.minimum(num, state.budget)
        tree = None if paths == 1 else jnp.broadcast_to(parent, (len(num), gamma))
        return Draft(tokens[:, :gamma], num, None, tree), ()

    if paths == 1:
        return Drafter(no_cache, draft, gamma)
    return Drafter(no_cache, draft, gamma, siblings="certain", depth=depth)


def found(
    state: State, depth: int, longest: int, paths: int = 1
) -> tuple[Array, Array, Array]:
    """Tokens [B, depth paths], those of a depth beside each other, how many [B], and
    how many tokens matched before them [B]. Among them may be such as nothing was found
    for, of paths that are shorter than others."""

    def find(text: Array, length: Array, source: Array, end: Array):
        merit = merits(text, length, source, end, longest)
        best = jnp.max(merit)
        among = (merit == best) & (best > 0)
        at = jnp.where(among, jnp.arange(source.size), -1)
        at = jax.lax.top_k(at, min(OCCURRENCES, source.size))[0]  # the latest first
        return *branched(source, end, at, paths, depth), best

    return jax.vmap(find)(state.tokens, state.length, *source_of(state))


def branched(source: Array, end: Array, at: Array, paths: int, depth: int) -> tuple:
    """One row: a path from each of the `paths` most frequent next tokens."""
    alive, found = at >= 0, []
    for _ in range(paths):
        tokens, count = voted(source, end, at, alive, depth)
        found.append((tokens, count))
        alive &= source[jnp.minimum(at, source.size - 1)] != tokens[0]
    if paths == 1:
        return found[0]
    tokens, count = map(jnp.stack, zip(*found, strict=True))
    last = jnp.where(count > 0, (count - 1) * paths + jnp.arange(paths) + 1, 0)
    return tokens.T.reshape(-1), jnp.max(last)


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
