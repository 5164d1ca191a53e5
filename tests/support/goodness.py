"""Whether sampled texts follow a law that is known: a G-test, and texts to put to it.

The law is worked out in float64 from the tables that decode, never sampled. Seeds are
fixed, so that a false alarm is met once, when a seed is chosen.
Axes: N rows, n tokens, V vocabulary, K cells.
"""

import itertools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from specjax import generate
from specjax.exactness.fixtures import reference
from specjax.inputs import make_prompt, make_request
from specjax.types import Prompt, Request, Sampling

LEAST = 5  # expected in a cell, below which cells are merged
PROMPT = (0, 1, 2, 0, 1, 0)  # so that copying finds something
TOKENS = 4
ROWS = 24_000  # shows an error of 0.02 in the law of one token (`test_goodness.py`)
# Of even rows and of odd ones; a top_k of all ids limits nothing.
SETTINGS = (Sampling(1.0, top_k=4), Sampling(0.7, top_k=3))


def g_test(counts: np.ndarray, law: np.ndarray) -> float:
    """The p-value of counts [K] under a law [K], by G = 2 sum O log(O / E).

    0 if what cannot happen was counted. What is expected less than 5 times is one cell,
    with more of the smallest if that is not enough; 1 if no other is left. G is divided
    by the correction of Williams (1976), without which it is too large where little is
    expected.
    """
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
    g = scipy.stats.power_divergence(observed, expected, lambda_="log-likelihood")
    spread = np.sum(total / expected) - 1
    williams = 1 + spread / (6 * total * (expected.size - 1))
    return float(scipy.stats.chi2.sf(g.statistic / williams, expected.size - 1))


def bonferroni(p_values: Iterable[float]) -> float:
    """One p-value for a family of tests: the smallest, times how many there are."""
    p_values = list(p_values)
    return min(1.0, len(p_values) * min(p_values))


def count(texts: np.ndarray, vocab: int) -> np.ndarray:
    """How often each text occurs: [N, n] -> [V] * n."""
    shape = (vocab,) * texts.shape[1]
    cells = np.ravel_multi_index(texts.T, shape)
    return np.bincount(cells, minlength=vocab ** len(shape)).reshape(shape)


def text_p_values(texts: np.ndarray, law: np.ndarray) -> list[float]:
    """Tests of texts [N, n] under a law [V] * n: of whole texts, of each token, and of
    each two neighbours, which see smaller errors as they have fewer cells."""
    axes, counts = range(law.ndim), count(texts, law.shape[0])
    parts = [tuple(axes), *((i,) for i in axes), *itertools.pairwise(axes)]
    rest = [tuple(set(axes) - set(part)) for part in parts]
    return [g_test(counts.sum(away), law.sum(away)) for away in rest]


def neighbours_p_value(
    texts: np.ndarray, others: np.ndarray, laws: tuple[np.ndarray, np.ndarray]
) -> float:
    """A test that texts [N, n] of a row and of the next are independent, by the first
    two tokens of each; laws: of the two, [V] * n."""
    first, second = (law.sum(tuple(range(2, law.ndim))) for law in laws)
    joint = first[:, :, None, None] * second
    both = np.concatenate([texts[:, :2], others[:, :2]], axis=1)
    return g_test(count(both, joint.shape[0]), joint)


def p_value(texts: np.ndarray, laws: tuple[np.ndarray, np.ndarray]) -> float:
    """All of these tests as one, of texts [N, n] whose rows take turns with `laws`."""
    even, odd = texts[::2], texts[1::2]
    each = text_p_values(even, laws[0]) + text_p_values(odd, laws[1])
    return bonferroni([*each, neighbours_p_value(even, odd, laws)])


def markov_law(logits: np.ndarray, setting: Sampling, n: int = TOKENS) -> np.ndarray:
    """The law [V] * n of what follows `PROMPT`, for logits [V, V] of the next token
    given the last; in float64, and without `specjax.probs`."""
    step = np.stack([reference(row, setting) for row in np.asarray(logits)])
    law = step[PROMPT[-1]]
    for _ in range(n - 1):
        law = law[..., None] * step
    return law


def ask(rows: int, seed: int, n: int = TOKENS) -> tuple[Prompt, Request]:
    """For n tokens after `PROMPT` in each row, whose `SETTINGS` take turns."""
    prompt = make_prompt([PROMPT] * rows)
    temperature = jnp.array([setting.temperature for setting in SETTINGS])
    top_k = jnp.array([setting.top_k for setting in SETTINGS])
    sampling = Sampling(jnp.resize(temperature, rows), jnp.resize(top_k, rows))
    return prompt, make_request(jax.random.key(seed), prompt, n, sampling)


def written(output: generate.Output, n: int = TOKENS) -> np.ndarray:
    """The n tokens [N, n] that follow `PROMPT`."""
    return np.asarray(output.tokens)[:, len(PROMPT) : len(PROMPT) + n]
