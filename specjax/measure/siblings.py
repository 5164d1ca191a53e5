"""How often each further child of a node is accepted, for a tree to be made by.

And the most that any rule could accept of so many children (`theory.transport`).

The vector that Sequoia's tree is built from (Chen et al. 2024,
https://arxiv.org/abs/2402.12374, Section 3.1), measured at every token of texts that a
target wrote: children are drawn from the draft there, and tried by recursive rejection
itself, but never taken.
Axes: B rows, T tokens, N = B T, K children, M generated tokens.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.drafters import best_first, tree
from specjax.measure import scoring
from specjax.measure.texts import Text
from specjax.sides import Side
from specjax.theory import transport
from specjax.types import Draft, Law
from specjax.verifiers import recursive, token

BOUNDED = 4  # draws for which bounds are worked out, by minutes each


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
    target they are the likeliest. truncation: top_k, top_p and min_p of both laws."""

    def each(p: Law, q: Law, written: Array) -> tuple[Array, ...]:
        shape = written.shape
        count = written.size
        p, q = (_flat(law, count) for law in (p, q))
        keys = jax.vmap(jax.random.key)(seed + jnp.arange(count))
        children = tree.children(keys, q, 0, most, tree.WITHOUT)[:, 0]
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
            rules = transport.replaced, transport.distinct
            bounds = tuple(rule(*laws, bounded) for rule in rules)
        found = chance * tried, tried, share, *bounds
        return tuple(x.reshape(*shape, x.shape[-1]) for x in found)

    pair, bounded = (target, draft), min(BOUNDED, most) if temperature else 0
    taken, tried, share, *bounds, sequence = scoring.positions(
        pair, text, temperature, each, **truncation
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


def _flat(law: Law, count: int) -> Law:
    """[B, T] as [N, 1]."""
    own = probs.apart(law)
    flat = jax.tree.map(lambda x: x.reshape(count, 1, *x.shape[2:]), own)
    return probs.shared(flat, law.logits)
