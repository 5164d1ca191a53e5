"""How often each further child of a node is accepted, for a tree to be made by.

The vector that Sequoia's tree is built from (Chen et al. 2024,
https://arxiv.org/abs/2402.12374, Section 3.1), measured at every token of texts that a
target wrote: children are drawn from the draft there, and tried by recursive rejection
itself, but never taken.

And the most that any exact rule could accept of so many. By optimal transport that is
at most p(H) + 1 - Q(H) for any set H of ids, where Q(H) is the chance that all K draws
are in H; of independent draws the least of these bounds is reached (Sun et al. 2023,
https://arxiv.org/abs/2310.15141), by a set of the ids whose q / p is largest. Of draws
without replacement only such sets are looked at here, which leaves it a bound.
Axes: B rows, T tokens, N = B T, K children, M generated tokens, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs
from specjax.drafters import best_first, tree
from specjax.measure import scoring
from specjax.measure.texts import Text, keys_of
from specjax.sides import Side
from specjax.types import Draft, Law
from specjax.verifiers import recursive, token

BOUNDED = 4  # draws for which bounds are worked out, by minutes each
POINTS = 96  # of time, at which `distinct` is integrated
STREAM = 2  # of `texts.keys_of`: not the coins that the texts were written by


class Siblings(NamedTuple):
    """Of each of K children. rate, error [K]: the probability to be accepted where
    those before it were not, and its standard error over texts. floor [K]: what
    `drafters.best_first.guess` takes, fitted to it. kept [K]: what recursive rejection
    accepts of the first 1 .. K together. replaced, distinct [BOUNDED]: the most that
    any rule could, of so many drawn with and without replacement; of a greedy target,
    whose children are not drawn, empty."""

    rate: np.ndarray
    error: np.ndarray
    floor: np.ndarray
    kept: np.ndarray
    replaced: np.ndarray
    distinct: np.ndarray


def measure(
    target: Side,
    draft: Side,
    text: Text,
    temperature: float,
    most: int = 8,
    seed: int = 0,
    **truncation: float | None,
) -> Siblings:
    """What trees are made by. Children are drawn without replacement; of a greedy
    target they are the likeliest. No two tokens of the texts share a key. truncation:
    top_k, top_p and min_p of both laws."""

    def each(p: Law, q: Law, written: Array, row_keys: Array) -> tuple[Array, ...]:
        shape = written.shape
        count = written.size
        p, q = (_flat(law, count) for law in (p, q))
        own = _token_keys(row_keys, shape[1])
        children = tree.children(own, q, jnp.zeros(1, int), most)[:, 0]
        parent = jnp.full((count, most), -1, jnp.int32)
        same = jax.tree.map(lambda x: jnp.repeat(x, most, 1), probs.apart(q))
        drafts = Draft(
            children, jnp.full(count, most), probs.shared(same, q.logits), parent
        )
        never = jnp.full((count, most), jnp.inf), jnp.zeros((count, 2))
        chance = recursive.verifier.verify(p, drafts, token.Noise(*never)).accept_prob
        before = jnp.cumprod(1 - chance, axis=1)
        tried = jnp.pad(before[:, :-1], ((0, 0), (1, 0)), constant_values=1.0)
        plain = jax.nn.softmax(probs.spread(q.logits)[:, 0], axis=-1)
        share = best_first.shares(jnp.take_along_axis(plain, children, axis=1))
        laws = probs.dense(p)[:, 0], probs.dense(q)[:, 0]
        bounds = (jnp.zeros((count, 0)),) * 2
        if bounded:
            bounds = tuple(rule(*laws, bounded) for rule in (replaced, distinct))
        found = chance * tried, tried, share, *bounds
        return tuple(x.reshape(*shape, x.shape[-1]) for x in found)

    pair, bounded = (target, draft), min(BOUNDED, most) if temperature else 0
    own_keys = keys_of(seed, STREAM, np.arange(len(text.tokens)))
    taken, tried, share, *bounds, sequence = scoring.positions(
        pair, text, temperature, each, own_keys, **truncation
    )
    starts = np.flatnonzero(np.diff(sequence, prepend=-1))  # of each text
    sums = [np.add.reduceat(x, starts) for x in (taken, tried)]
    whole, tries = (x.sum(0) for x in sums)
    rate = whole / np.maximum(tries, 1e-9)
    off = sums[0] - rate * sums[1]  # of a ratio of sums, text by text
    count = max(len(off) - 1, 1)
    error = np.sqrt((off**2).sum(0) * len(off) / count) / np.maximum(tries, 1e-9)
    # The floor f of f + (1 - f) share, by least squares over what was tried.
    room = 1 - share
    fitted = ((taken - tried * share) * room).sum(0) / (tried * room**2).sum(0)
    kept = 1 - np.cumprod(1 - rate)
    most_kept = (bound.mean(0) for bound in bounds)
    return Siblings(rate, error, np.clip(fitted, 0, 1), kept, *most_kept)


def _token_keys(row_keys: Array, tokens: int) -> Array:
    """Returns a key of each token of rows of so many, [B T], by its row's key [B]."""
    place = jnp.tile(jnp.arange(tokens), row_keys.size)
    return keys.iteration(jnp.repeat(row_keys, tokens), place)


def _flat(law: Law, count: int) -> Law:
    """[B, T] as [N, 1]."""
    own = probs.apart(law)
    flat = jax.tree.map(lambda x: x.reshape(count, 1, *x.shape[2:]), own)
    return probs.shared(flat, law.logits)


def replaced(p: Array, q: Array, most: int) -> Array:
    """Of 1 .. `most` independent draws from q [N, V] for p [N, V]: [N, K]. Of one it is
    beta."""
    p, q = by_ratio(p, q)
    inside = jnp.minimum(jnp.cumsum(q, axis=1), 1.0)[..., None]
    return least(p, inside ** jnp.arange(1, most + 1))


def distinct(p: Array, q: Array, most: int) -> Array:
    """Of 1 .. `most` draws from q without replacement: [N, K].

    Ids that ring at rates q ring in the order of such draws. K draws are all in H if K
    of H ring before any other id does: the number of H that rang until t is a sum of
    coins of chances 1 - exp(-q t), and the first of the others rings at the rate of
    what q is left. Integrated by trapezoids over T = POINTS times, to about 5e-4.
    """
    p, q = by_ratio(p, q)
    time = jnp.geomspace(1e-2, 1e3, POINTS)  # the first of all ids rings at about 1

    def further(carried: tuple, id_q: Array) -> tuple[tuple, Array]:
        """rang [N, T, K]: the chance that 0 .. K - 1 of H rang until each time."""
        rang, rest = carried
        coin = -jnp.expm1(-id_q[:, None] * time)[..., None]
        before = jnp.pad(rang[..., :-1], ((0, 0), (0, 0), (1, 0)))
        rang, rest = rang * (1 - coin) + before * coin, jnp.maximum(rest - id_q, 0.0)
        enough = 1 - jnp.cumsum(rang, axis=-1)
        alone = jnp.exp(-rest[:, None] * time)[..., None]  # no other id rang
        middle = (alone[:, 1:] + alone[:, :-1]) / 2
        grown = (middle * jnp.diff(enough, axis=1)).sum(1)
        return (rang, rest), enough[:, 0] + grown + alone[:, -1] * (1 - enough[:, -1])

    none = jnp.zeros((len(q), POINTS, most), q.dtype).at[..., 0].set(1.0)
    inside = jax.lax.scan(further, (none, q.sum(1)), q.T)[1]  # [V, N, K]
    return least(p, jnp.moveaxis(inside, 0, 1))


def by_ratio(p: Array, q: Array) -> tuple[Array, Array]:
    """Both with ids in the order of q / p, the largest first."""
    order = jnp.argsort(jnp.where(q > 0, p / jnp.where(q > 0, q, 1.0), jnp.inf), axis=1)
    return jnp.take_along_axis(p, order, 1), jnp.take_along_axis(q, order, 1)


def least(p: Array, inside: Array) -> Array:
    """min over H of p(H) + 1 - Q(H), of the sets of the first ids: [N, K]. inside: Q of
    them [N, V, K]."""
    bounds = jnp.cumsum(p, axis=1)[..., None] + 1 - inside
    return jnp.minimum(1.0, bounds.min(axis=1))
