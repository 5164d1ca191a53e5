"""Where a verifier's randomness comes from, certified: the inverse CDF and the noise.

Axes: V vocabulary, G = gamma.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from specjax import keys, probs
from specjax.types import BLOCK, Verifier

NEXT_TO_ONE = 1 - 2**-24  # the largest float32 below 1


def pick_law(weights: np.ndarray) -> np.ndarray:
    """The law [V] that `probs.pick` really has for `weights` [V], measured in u.

    The id drawn never falls as u grows, so bisection over the multiples of 2^-24 finds
    the lengths of the sets of u that draw each: the blocks first, then the ids.
    """
    weights, vocab = np.asarray(weights, np.float32), len(weights)
    ids = np.arange(vocab)

    def ends(count: int, u: Callable, drawn: Callable) -> np.ndarray:
        """The first u whose draw is beyond each of `count`."""
        low, high = np.zeros(count, int), np.full(count, 2**24)
        rows = np.broadcast_to(weights, (count, vocab))
        for _ in range(25):
            middle = (low + high) // 2
            found = _pick(rows, u(np.minimum(middle * 2.0**-24, NEXT_TO_ONE)))
            beyond = drawn(np.asarray(found)) > np.arange(count)
            high = np.where(beyond, middle, high)
            low = np.where(beyond | (low == high), low, middle + 1)
        return high * 2.0**-24

    count = -(-vocab // BLOCK)
    limits = ends(
        count, lambda u: np.stack([u, u], axis=1), lambda found: found // BLOCK
    )
    sizes = np.diff(limits, prepend=0.0)
    inside = (limits - sizes / 2)[ids // BLOCK]
    limits = ends(vocab, lambda u: np.stack([inside, u], axis=1), lambda found: found)
    starts = np.where(ids % BLOCK, np.roll(limits, 1), 0.0)
    return (limits - starts) * sizes[ids // BLOCK]


_pick = jax.jit(probs.pick)


def noise_p_value(verifier: Verifier, gamma: int, vocab: int) -> float:
    """Whether the uniforms of two steps in a row, drafts' included, are independent.

    The smallest p-value of a chi-square test of each pair, times the number of pairs,
    at most 1; 0 if any is outside [0, 1) or takes few values. The keys are fixed.
    """
    draws, bins, columns = 2**14, 8, []
    requests = jax.vmap(jax.random.key)(jnp.arange(draws))
    for length in (1, 2):
        start = jnp.full(draws, length)
        key = keys.iteration(requests, start)
        drafting = keys.purpose(key, keys.DRAFT)
        columns += jax.tree.leaves(verifier.noise(key, start, gamma, vocab))
        columns += [keys.uniform(drafting, slot, (2,)) for slot in range(gamma)]
    flat = [np.asarray(column, float).reshape(draws, -1) for column in columns]
    u = np.concatenate(flat, axis=1).T
    distinct = min(len(np.unique(column)) for column in u)
    if u.min() < 0 or u.max() >= 1 or distinct < 0.9 * draws:
        return 0.0
    pairs = [a * bins + b for a, b in itertools.combinations((u * bins).astype(int), 2)]
    counts = np.array([np.bincount(pair, minlength=bins**2) for pair in pairs])
    expected = draws / bins**2
    statistic = ((counts - expected) ** 2 / expected).sum(1).max()
    p_value = jax.scipy.stats.chi2.sf(statistic, bins**2 - 1)
    return min(1.0, float(p_value) * len(pairs))
