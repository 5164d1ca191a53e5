"""The G-test gives false alarms as often as it says, and detects what it should.

Calibrated on the plain sampler (gamma = 0, the real loop), whose law is known.
Axes: S seeds, N rows each, n tokens, V vocabulary, K cells.
"""

import functools

import jax
import numpy as np
import pytest
import scipy.stats

from specjax import generate
from specjax.exactness.goodness import (
    chance_variation,
    count,
    g_test,
    least_visible_distance,
    neighbours_p_value,
    total_variation,
)
from specjax.step import Decoder
from specjax.types import Params
from tests.support import goodness, tiny
from tests.support.goodness import PROMPT, ROWS, SETTINGS

NEVER, FINE = 1e-6, 1e-3  # the seeds are fixed
SEEDS, EACH, TOKENS = 200, 500, 2
WORLD = tiny.tables()
LAWS = [
    goodness.markov_law(WORLD.target_weights, setting, TOKENS) for setting in SETTINGS
]


@functools.cache
def samples() -> np.ndarray:
    """Returns texts [S, N, n] of the plain sampler, with a key for each seed, from one
    program."""
    slots = len(PROMPT) + TOKENS + 1
    loop = generate.build_loop(Decoder(WORLD.target), slots)
    prompt, request = goodness.ask(EACH, 0, TOKENS)

    def texts(key):
        each = request._replace(key=jax.random.split(key, EACH))
        return loop(Params(WORLD.target_weights), prompt, each).tokens

    tokens = jax.jit(jax.vmap(texts))(jax.vmap(jax.random.key)(np.arange(SEEDS)))
    return np.asarray(tokens)[:, :, len(PROMPT) : len(PROMPT) + TOKENS]


def p_values(texts: np.ndarray, laws=LAWS) -> list[float]:
    """Returns the p-values of the whole texts of each seed: [S, N, n] -> S."""
    pairs = enumerate(laws)
    return [g_test(count(each[i::2], 4), law) for i, law in pairs for each in texts]


def uniformity(values: list[float]) -> float:
    return scipy.stats.kstest(values, "uniform").pvalue


def move_mass(law: np.ndarray, mass: float) -> np.ndarray:
    """Returns the law with this probability moved from the first token to another
    one."""
    first = law.reshape(law.shape[0], -1).sum(1)
    high, low = np.argsort(first)[-2:]
    share = np.ones(len(first))
    share[high] += mass / first[high]
    share[low] -= mass / first[low]
    return law * share.reshape(-1, *(1,) * (law.ndim - 1))


def test_p_values_of_the_plain_sampler_are_uniform_and_of_another_law_are_not():
    assert uniformity(p_values(samples())) > FINE
    off = [move_mass(law, 0.03) for law in LAWS]
    assert uniformity(p_values(samples(), off)) < NEVER
    twice = np.concatenate([samples(), samples()], axis=1)  # rows counted twice
    assert uniformity(p_values(twice)) < NEVER
    pairs = ((each[::2], each[1::2]) for each in samples())
    values = [neighbours_p_value(*pair, LAWS) for pair in pairs]
    assert uniformity(values) > FINE


@pytest.mark.parametrize(
    "mass, rows, below",
    [(0.03, ROWS, NEVER), (0.02, ROWS, FINE), (0.015, 4 * ROWS, NEVER)],
)
def test_a_law_that_is_off_is_rejected(mass, rows, below):
    """The tests use the N of `test_sampled.py`, and four times as many texts for
    smaller errors."""
    texts = samples().reshape(-1, TOKENS)[:rows]
    off = tuple(move_mass(law, mass) for law in LAWS)
    for law, wrong in zip(LAWS, off, strict=True):
        assert np.abs(law - wrong).sum() / 2 == pytest.approx(mass)
        assert wrong.min() >= 0
    assert goodness.p_value(texts, tuple(LAWS)) > FINE
    assert goodness.p_value(texts, off) < below


def test_what_is_visible_is_found_as_often_as_is_said():
    """The wrong law differs in the way that is hardest to detect: half of the mass is
    moved evenly to the other half."""
    rng, level, total = np.random.default_rng(0), 1e-4, 40_000
    law = rng.dirichlet(np.ones(60))
    order = np.argsort(law)
    half = np.isin(np.arange(60), order[np.cumsum(law[order]) < 0.5])
    share = law[half].sum()
    off = np.where(half, law / share, -law / (1 - share)) * least_visible_distance(
        law, total, level
    )
    assert np.abs(off).sum() / 2 == pytest.approx(
        least_visible_distance(law, total, level)
    )
    draws = rng.multinomial(total, law + off, size=400)
    found = np.mean([g_test(each, law) < level for each in draws])
    assert 0.975 < found < 1
    right = rng.multinomial(total, law, size=400)
    assert min(g_test(each, law) for each in right) > level
    mean = np.mean([total_variation(each, law) for each in right])
    assert mean == pytest.approx(chance_variation(law, total), rel=0.02)


def test_an_impossible_token_and_rows_that_know_of_each_other_are_seen():
    texts = samples().reshape(-1, TOKENS)[:ROWS].copy()
    same, even, later = (LAWS[0],) * 2, texts[::2], texts[2::2]
    assert neighbours_p_value(even[:-1], later, same) > FINE
    assert neighbours_p_value(even, even, same) < NEVER
    texts[1] = np.argwhere(LAWS[1] == 0)[0]
    assert goodness.p_value(texts, tuple(LAWS)) == 0
