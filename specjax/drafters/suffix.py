"""Suffix decoding: copies what most often followed the last tokens in earlier text.

Oliaro et al. (2024), https://arxiv.org/abs/2411.04975: find the longest match of the
end of the text, take the most frequent next token over all its occurrences, then the
most frequent one after that over those that went on so. A match is found by comparing
the whole buffer, L `longest` comparisons per step, and nothing is stored, where a
suffix automaton would grow token by token. Matches of a few tokens are preferred to
longer ones, which have fewer occurrences to count. The draft is certain (law None).
Axes: B rows, L buffer, S source, G = gamma, M occurrences.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from specjax.drafters.copying import copy_source, match_lengths
from specjax.drafters.nothing import no_cache
from specjax.topologies import paths as path_topology
from specjax.types import Draft, Drafter, Request, State

OCCURRENCES = 32  # M, the latest: more add little, and they are compared in pairs


def build(gamma: int, longest: int = 4, paths: int = 1) -> Drafter:
    """Returns a drafter of up to `gamma` tokens that follow matches of the last ones.

    A match has `longest` tokens, or fewer if there is none of that length; without any
    nothing is drafted. The source is the one of `drafters.copying`. paths: with two or
    more it drafts a tree of gamma nodes, one path from each of the most frequent next
    tokens. Raises ValueError if a number is below 1.
    """
    if min(gamma, longest, paths) < 1:
        raise ValueError(
            f"gamma, longest and paths must be at least 1; got {gamma}, {longest} and"
            f" {paths}"
        )
    parent = jnp.array(path_topology.build(paths)(gamma), jnp.int32)
    depth = -(-gamma // paths)

    def draft(
        key: Array, params: Any, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, params, request
        tokens, num, _ = find_matches(state, depth, longest, paths)
        num = jnp.minimum(num, state.budget)
        tree = None if paths == 1 else jnp.broadcast_to(parent, (len(num), gamma))
        return Draft(tokens[:, :gamma], num, None, tree), ()

    if paths == 1:
        return Drafter(no_cache, draft, gamma)
    return Drafter(no_cache, draft, gamma, siblings="certain", depth=depth)


def find_matches(
    state: State, depth: int, longest: int, paths: int = 1
) -> tuple[Array, Array, Array]:
    """Returns tokens [B, depth paths], their number [B], and the match lengths [B].

    Tokens at one depth are adjacent. Where some paths are shorter than others, entries
    without a token are arbitrary.
    """

    def find(
        text: Array, length: Array, source: Array, end: Array
    ) -> tuple[Array, Array, Array]:
        merit = match_lengths(text, length, source, end, longest)
        best = jnp.max(merit)
        among = (merit == best) & (best > 0)
        at = jnp.where(among, jnp.arange(source.size), -1)
        at = jax.lax.top_k(at, min(OCCURRENCES, source.size))[0]  # the latest first
        return *frequent_paths(source, end, at, paths, depth), best

    return jax.vmap(find)(state.tokens, state.length, *copy_source(state))


def frequent_paths(
    source: Array, end: Array, at: Array, paths: int, depth: int
) -> tuple:
    """Returns one row's paths, one for each of the `paths` most frequent next
    tokens."""
    alive, paths_found = at >= 0, []
    for _ in range(paths):
        tokens, count = vote(source, end, at, alive, depth)
        paths_found.append((tokens, count))
        alive &= source[jnp.minimum(at, source.size - 1)] != tokens[0]
    if paths == 1:
        return paths_found[0]
    tokens, count = map(jnp.stack, zip(*paths_found, strict=True))
    last = jnp.where(count > 0, (count - 1) * paths + jnp.arange(paths) + 1, 0)
    return tokens.T.reshape(-1), jnp.max(last)


def vote(
    source: Array, end: Array, at: Array, alive: Array, gamma: int
) -> tuple[Array, Array]:
    """Returns one row's most frequent continuation: tokens [G] and how many.

    The places `at` [M] that are `alive` vote. Of equals the earlier place wins; a place
    ends with the source or at an id below 0.
    """

    def next_token(carried: tuple, _: None) -> tuple:
        at, alive = carried
        token = source[jnp.minimum(at, source.size - 1)]
        alive &= (at < end) & (token >= 0)
        votes = jnp.sum((token[:, None] == token) & alive, axis=1)
        chosen = token[jnp.argmax(jnp.where(alive, votes, 0))]
        return (at + 1, alive & (token == chosen)), (chosen, alive.any())

    found: Any = jax.lax.scan(next_token, (at, alive), length=gamma)
    _, (tokens, real) = found
    return tokens.astype(jnp.int32), jnp.sum(real, dtype=jnp.int32)
