"""G-tests of whether sampled texts follow a known law, and how large a deviation they
detect.

The law is computed in float64 and never sampled. Seeds are fixed, so that a false alarm
can only occur once, when a seed is chosen. Axes: N rows, n tokens, V vocabulary, K
cells."""

import itertools
from collections.abc import Iterable

import numpy as np
from scipy import special

LEAST = 5  # expected in a cell, below which cells are merged
POWER = 0.99  # the share of runs in which a visible difference is found


def g_test(counts: np.ndarray, law: np.ndarray) -> float:
    """Returns the p-value of counts [K] under a law [K], by G = 2 sum O log(O / E).

    It is 0 if an impossible cell was counted. Cells with fewer than 5 expected are
    merged, with more of the smallest if that is not enough; 1 if no other cell is left.
    G is divided by the correction of Williams (1976), without which it is too large
    where little is expected."""
    total = counts.sum()
    if counts[law == 0].any():
        return 0.0
    order = np.argsort(law, axis=None)[np.count_nonzero(law == 0) :]
    expected, observed = law.ravel()[order] * (total / law.sum()), counts.ravel()[order]
    if expected[0] < LEAST:
        enough = np.cumsum(expected) >= LEAST
        few = max(np.count_nonzero(expected < LEAST), np.argmax(enough) + 1)
        starts = [0, *range(few, expected.size)]
        expected, observed = (np.add.reduceat(x, starts) for x in (expected, observed))
    if expected.size == 1:
        return 1.0
    g = 2 * special.xlogy(observed, observed / expected).sum()
    spread = np.sum(total / expected) - 1
    williams = 1 + spread / (6 * total * (expected.size - 1))
    return float(special.chdtrc(expected.size - 1, g / williams))


def bonferroni(p_values: Iterable[float]) -> float:
    """Returns one p-value for a family of tests: the smallest, multiplied by their
    number."""
    p_values = list(p_values)
    return min(1.0, len(p_values) * min(p_values))


def count(texts: np.ndarray, vocab: int) -> np.ndarray:
    """Returns how often each text occurs: [N, n] -> [V] * n."""
    shape = (vocab,) * texts.shape[1]
    cells = np.ravel_multi_index(texts.T, shape)
    return np.bincount(cells, minlength=vocab ** len(shape)).reshape(shape)


def text_p_values(texts: np.ndarray, law: np.ndarray) -> list[float]:
    """Returns p-values of texts [N, n] under a law [V] * n.

    The tests are of whole texts, of each token, and of each two neighbours, which
    detect smaller errors because they have fewer cells."""
    axes, counts = range(law.ndim), count(texts, law.shape[0])
    parts = [tuple(axes), *((i,) for i in axes), *itertools.pairwise(axes)]
    rest = [tuple(set(axes) - set(part)) for part in parts]
    return [g_test(counts.sum(away), law.sum(away)) for away in rest]


def neighbours_p_value(
    texts: np.ndarray, others: np.ndarray, laws: tuple[np.ndarray, np.ndarray]
) -> float:
    """Returns a p-value for the independence of texts [N, n] in neighbouring rows.

    It uses the first two tokens of each text. laws: the laws of the two texts, [V] *
    n."""
    first, second = (law.sum(tuple(range(2, law.ndim))) for law in laws)
    joint = first[:, :, None, None] * second
    both = np.concatenate([texts[:, :2], others[:, :2]], axis=1)
    return g_test(count(both, joint.shape[0]), joint)


def total_variation(counts: np.ndarray, law: np.ndarray) -> float:
    """Returns the distance of shares [K] from a law [K]; compare `chance_variation`."""
    return float(np.abs(counts / counts.sum() - law).sum() / 2)


def chance_variation(law: np.ndarray, total: int) -> float:
    """Returns the mean total variation of the shares of `total` draws from a law."""
    return float(np.sqrt(law * (1 - law) / (2 * np.pi * total)).sum())


def least_visible_distance(law: np.ndarray, total: int, level: float) -> float:
    """Returns the least total variation at which any other law is detected.

    A G-test of `total` draws that raises a false alarm with probability `level` detects
    it with probability POWER. Its noncentrality is N sum (p' - p)^2 / p, which for a
    total variation t is at least 4 N t^2: less only if half of the mass of p moved
    further than the other half, by Cauchy and Schwarz. Most laws at this distance are
    detected with fewer draws."""
    freedom = np.count_nonzero(law) - 1
    if not freedom:
        return 0.0
    limit = special.chdtri(freedom, level)
    noncentrality = special.chndtrinc(limit, freedom, 1 - POWER)
    return float(np.sqrt(noncentrality / (4 * total)))
