"""Where a verifier's randomness comes from, certified: the inverse CDF and the noise.

Axes: V vocabulary, G = gamma.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs
from specjax.types import BLOCK, Sampling, Verifier

NEXT_TO_ONE = 1 - 2**-24  # the largest float32 below 1


def pick_law(weights: np.ndarray) -> np.ndarray:
    """The law [V] that `probs.pick` really has for `weights` [V], measured in u. The id
    drawn never falls as u grows, so bisection over the multiples of 2^-24 finds the
    lengths of the sets of u that draw each: the blocks first, then the ids."""
    weights, vocab = np.asarray(weights, np.float32), len(weights)
    ids = np.arange(vocab)

    def ends(count: int, u: Callable, drawn: Callable) -> np.ndarray:
        """The first u whose draw is beyond each of `count`."""
        low, high = np.zeros(count, int), np.full(count, 2**24)
        rows = np.broadcast_to(weights, (count, vocab))
        for _ in range(25):
            middle = (low + high) // 2
            picked = _pick(rows, u(np.minimum(middle * 2.0**-24, NEXT_TO_ONE)))
            beyond = drawn(np.asarray(picked)) > np.arange(count)
            high = np.where(beyond, middle, high)
            low = np.where(beyond | (low == high), low, middle + 1)
        return high * 2.0**-24

    count = -(-vocab // BLOCK)
    limits = ends(
        count, lambda u: np.stack([u, u], axis=1), lambda index: index // BLOCK
    )
    sizes = np.diff(limits, prepend=0.0)
    inside = (limits - sizes / 2)[ids // BLOCK]
    limits = ends(vocab, lambda u: np.stack([inside, u], axis=1), lambda index: index)
    starts = np.where(ids % BLOCK, np.roll(limits, 1), 0.0)
    return (limits - starts) * sizes[ids // BLOCK]


_pick = jax.jit(probs.pick)


def noise_p_value(
    verifier: Verifier, gamma: int, vocab: int, uniform: Callable = np.asarray
) -> float:
    """Whether the noise of two steps in a row, drafts' included, is independent. The
    smallest p-value of a chi-square test of each pair, times the number of pairs, at
    most 1; 0 if any is outside [0, 1) or takes few values. The keys are fixed. uniform:
    a leaf of the noise -> in [0, 1). The steps have no position in common."""
    draws, bins, columns = 2**14, 8, []
    requests = jax.vmap(jax.random.key)(jnp.arange(draws))
    for length in (1, gamma + 2):
        start = jnp.full(draws, length)
        key = keys.iteration(requests, start)
        drafting = keys.purpose(key, keys.DRAFT)
        noise = verifier.noise(requests, start, gamma, vocab)
        columns += map(uniform, jax.tree.leaves(noise))
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


def race_p_value(vocab: int, draws: int = 2**18) -> float:
    """Whether the winners of `probs.race` follow the law: a chi-square test. Against
    float64 probabilities of every size down to 1e-3, by `keys.gumbel` of one position
    of many requests; 0 if an id outside of the law wins. The keys are fixed."""
    p = np.geomspace(1e-3, 1, vocab)
    p = np.append(p / p.sum(), 0.0)
    with np.errstate(divide="ignore"):
        z = np.log(p)[None].astype(np.float32)
    law = probs.standardize(z, Sampling(jnp.ones(1)))

    @jax.jit
    def winners() -> Array:
        requests = jax.vmap(jax.random.key)(jnp.arange(draws))
        gumbel = keys.gumbel(requests, jnp.full(draws, 7), p.size)
        return probs.race(
            jax.tree.map(lambda leaf: jnp.repeat(leaf, draws, 0), law), gumbel
        )

    counts = np.bincount(np.asarray(winners()), minlength=p.size)
    if counts[-1]:
        return 0.0
    expected = draws * p[:-1]
    statistic = ((counts[:-1] - expected) ** 2 / expected).sum()
    return float(jax.scipy.stats.chi2.sf(statistic, vocab - 1))
