"""Lookahead decoding: the target guesses ahead in the same call that verifies.

Fu et al. (2024), https://arxiv.org/abs/2402.02057. A window of W columns of N - 1
tokens holds the text ahead, as guessed by earlier steps in Jacobi iterations. The
target's call on it gives each column one more token, and so an n-gram. The n-grams are
stored in a pool, and those that begin with the last committed token are drafted. Window
and candidates form one tree of certain tokens: row 0 of the window is a chain, and
column j hangs below its j-th token (Figure 3). A guess that is right is therefore kept
too, and the text is the target's, whatever is guessed. There is no draft model and
there are no weights. Axes: B rows, G nodes, N tokens of an n-gram, W columns, C
candidates, P n-grams in the pool, L buffer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import trees
from specjax.types import Draft, Drafter, Prompt, Request, State, TargetCall

NONE = -1  # stands for a token where there is no n-gram


class Guesses(NamedTuple):
    """The guesses that are carried between steps.

    window: [B, N - 1, W]; row i stands i tokens later.
    pool: [B, P, N], the latest n-gram first.
    """

    window: Array
    pool: Array


def build(gamma: int, tokens: int = 4, pool: int = 512) -> Drafter:
    """Returns a drafter of trees of at most `gamma` nodes, half of them the window's.

    Args:
      gamma: the most nodes.
      tokens: N, the length of an n-gram.
      pool: P, the n-grams to remember.

    Raises:
      ValueError: for gamma below 1, n-grams below 2 tokens or a pool below gamma.
    """
    if gamma < 1 or tokens < 2 or pool < gamma:
        raise ValueError(
            "lookahead takes gamma of at least 1, n-grams of 2 tokens or more and a"
            f" pool of at least gamma; got {gamma}, {tokens} and {pool}"
        )
    long = min(tokens - 1, gamma)  # N - 1
    candidates = gamma // long // 2
    columns = gamma // long - candidates
    parent = parents(long, columns, candidates)
    size, depth = len(parent), int(trees.depths(parent).max())

    def init(params: None, prompt: Prompt, slots: int) -> Guesses:
        del params, slots
        text, length = prompt.tokens, prompt.length[:, None]
        index = jnp.arange(long * columns) % length
        window = jnp.take_along_axis(text, index, axis=1)
        grams = latest_ngrams(text, prompt.length, long + 1, pool)
        return Guesses(window.reshape(-1, long, columns), grams)

    def draft(key: Array, params: None, request: Request, state: State) -> tuple:
        del key, params, request
        window, known = state.draft_cache
        # As many n-grams as the last step may have completed.
        own = latest_ngrams(state.tokens, state.length, long + 1, depth + 1)
        known = remember(known, own)
        last = jnp.take_along_axis(state.tokens, state.length[:, None] - 1, axis=1)
        found, count = find_beginning(known, last, candidates)
        flat = (x.reshape(len(x), -1) for x in (window, found))
        drafted = jnp.concatenate([*flat], axis=1)
        num = long * (columns + count)
        nodes = jnp.minimum(num, state.budget)
        above = merge_siblings(drafted, parent)
        return Draft(drafted, nodes, None, above), Guesses(window, known)

    def observe(params: None, cache: Guesses, call: TargetCall) -> Guesses:
        del params
        first = 1 + (long - 1) * columns  # the call's row of the window's last row
        assert call.law is not None  # as of a step
        logits = call.law.logits[:, first : first + columns]
        new = jnp.argmax(logits, axis=-1).astype(jnp.int32)[:, None]
        whole = jnp.concatenate([cache.window, new], axis=1)
        pool = remember(cache.pool, whole.swapaxes(1, 2))
        # The first committed token moves on by one row, each further one by a column.
        on = (jnp.arange(columns) + call.accepted[:, None]) % columns
        return Guesses(jnp.take_along_axis(whole[:, 1:], on[:, None], axis=2), pool)

    return Drafter(init, draft, size, siblings="certain", depth=depth, observe=observe)


def parents(long: int, columns: int, candidates: int) -> np.ndarray:
    """Returns the parents of the window's rows, then those of the candidates, each of
    `long` tokens."""
    window = [*range(-1, columns - 1), *range((long - 1) * columns)]
    first = long * columns
    starts = np.arange(candidates)[:, None] * long + first - 1
    chains = starts + np.arange(long)
    chains[:, 0] = trees.ROOT
    return np.concatenate([window, chains.reshape(-1)]).astype(np.int32)


def merge_siblings(tokens: Array, parent: np.ndarray) -> Array:
    """Returns parents [B, G] by which equal siblings share the children of the first of
    them.

    A verifier follows only the first of equal siblings.
    """
    depth = trees.depths(parent)
    alike = (tokens[:, :, None] == tokens[:, None]) & (depth[:, None] == depth)
    same = jnp.ones_like(alike)
    for level in range(1, depth.max() + 1):
        here = np.where(depth == level)[0]
        above = parent[here]
        own = alike[:, here][:, :, here]
        if level > 1:
            own &= same[:, above][:, :, above]
        same = same.at[:, here[:, None], here].set(own)
    same &= depth[:, None] == depth
    first = jnp.argmax(same, axis=2).astype(jnp.int32)
    return jnp.where(parent < 0, trees.ROOT, first[:, np.maximum(parent, 0)])


def latest_ngrams(text: Array, length: Array, size: int, count: int) -> Array:
    """Returns the last `count` n-grams of text [B, L], latest first: [B, count, size].

    An n-gram that a row does not have is `NONE`.
    """
    begin = length[:, None] - size - jnp.arange(count)
    index = begin[..., None] + jnp.arange(size)
    grams = jax.vmap(lambda row, at: row[jnp.maximum(at, 0)])(text, index)
    return jnp.where(begin[..., None] >= 0, grams, NONE)


def remember(pool: Array, grams: Array) -> Array:
    """Returns the pool [B, P, N] with n-grams [B, C, N] put in front.

    Each n-gram stays once, at its first place; those without room are dropped.
    """
    whole = jnp.concatenate([grams, pool], axis=1)
    count = grams.shape[1]
    same = (whole[:, :, None] == grams[:, None]).all(-1)  # [B, C + P, C]
    later = jnp.arange(whole.shape[1])[:, None] > jnp.arange(count)
    again = (same & later).any(-1)
    whole = jnp.where(again[..., None], NONE, whole)
    order = jnp.argsort(whole[..., 0] == NONE, axis=1, stable=True)
    return jnp.take_along_axis(whole, order[..., None], axis=1)[:, : pool.shape[1]]


def find_beginning(pool: Array, last: Array, count: int) -> tuple[Array, Array]:
    """Returns the continuations of a row's last token [B, 1] in those n-grams of the
    pool that begin with it.

    The result is [B, count, N - 1] and the number of such n-grams [B].
    """
    match = pool[..., 0] == last
    order = jnp.argsort(~match, axis=1, stable=True)[:, :count]
    found = jnp.take_along_axis(pool, order[..., None], axis=1)[..., 1:]
    found = jnp.maximum(found, 0)  # entries beyond the count are any ids
    return found, jnp.minimum(match.sum(1, dtype=jnp.int32), count)
