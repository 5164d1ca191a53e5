"""Predicted calls of the target equal those of Algorithm 1, enumerated and as decoded.

The enumeration knows nothing of the programme that it checks: it follows every draft,
coin and added token of Algorithm 1 in float64.
Axes: B rows, N tokens of a text, V vocabulary, K values of gamma.
"""

import functools
import itertools
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import autoregressive
from specjax.generate import Output
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.theory import closed_forms, predict
from specjax.theory.predict import Cost
from specjax.types import Params
from tests.support import tiny

# A Markov target and draft, [V, V] next token given the last. Each lacks a token that
# the other has, and in one context they agree.
P = np.array([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
Q = np.array([[0.3, 0.2, 0.5], [0.9, 0.1, 0.0], [0.3, 0.3, 0.4]])
BEGIN, N = 0, 4

each_gamma = pytest.mark.parametrize("gamma", [1, 2, 3])


# Against every outcome of Algorithm 1.


def outcomes(last, draft):
    """Yields what one call emits given its draft, and the probability of draft and
    result."""
    alive = np.prod([Q[a, x] for a, x in itertools.pairwise((last, *draft))])
    if alive == 0:
        return
    for i, x in enumerate(draft):
        p, q = P[last], Q[last]
        keep = min(1.0, p[x] / q[x])
        if keep < 1:
            residual = np.maximum(p - q, 0)
            for y, weight in enumerate(residual / residual.sum()):
                yield (*draft[:i], y), alive * (1 - keep) * weight
        alive, last = alive * keep, x
    for y, weight in enumerate(P[last]):
        yield (*draft, y), alive * weight


@functools.cache
def enumerate_runs(gamma):
    """Returns {text of N tokens: probabilities [N + 1] of the text with each number of
    calls}."""

    @functools.cache
    def finish(text):
        """Returns {(whole text, calls still to come): probability}."""
        if len(text) == N:
            return {(text, 0): 1.0}
        law = defaultdict(float)
        for draft in itertools.product(range(len(P)), repeat=gamma):
            for emitted, weight in outcomes((BEGIN, *text)[-1], draft):
                for (whole, calls), rest in finish((text + emitted)[:N]).items():
                    law[whole, calls + 1] += weight * rest
        return law

    runs = defaultdict(lambda: np.zeros(N + 1))
    for (text, calls), weight in finish(()).items():
        runs[text][calls] += weight
    return {text: law for text, law in runs.items() if law.any()}


def rows(text):
    return [BEGIN, *text[:-1]], list(text)


def accept(text):
    return predict.accept_probability(P[rows(text)], Q[rows(text)])


def predict_calls(gamma, accept=accept):
    """Returns expected calls, with each text weighted by the target's probability of
    it."""
    texts = enumerate_runs(gamma)
    each = [predict.expected_calls(accept(text), [gamma])[0] for text in texts]
    return np.dot([P[rows(text)].prod() for text in texts], each)


@each_gamma
def test_calls_follow_their_law_given_the_text(gamma):
    """This is tested text by text, and so for all texts, whose law is the target's."""
    assert len(enumerate_runs(gamma)) > 30
    for text, law in enumerate_runs(gamma).items():
        assert law.sum() == pytest.approx(P[rows(text)].prod(), abs=1e-12)
        got = predict.calls_law(accept(text), gamma)
        np.testing.assert_allclose(got, law / law.sum(), rtol=0, atol=1e-12)


@each_gamma
def test_expected_calls_are_those_of_algorithm_1(gamma):
    """They differ from those of Eq. 1, and from those with wrong acceptances."""
    wanted = sum(enumerate_runs(gamma).values()) @ np.arange(N + 1)
    assert predict_calls(gamma) == pytest.approx(wanted, abs=1e-12)
    texts = enumerate_runs(gamma)
    before = [rows(text)[0] for text in texts]
    beta = closed_forms.acceptance(P[np.array(before)], Q[np.array(before)])
    alpha = np.dot([P[rows(text)].prod() for text in texts], beta).mean()
    assert abs(N / closed_forms.expected_tokens(alpha, gamma) - wanted) > 1e-3
    for wrong in (
        lambda text: np.roll(accept(text), 1),
        lambda text: accept(text)[::-1],
        lambda text: np.minimum(1, P[rows(text)] / np.maximum(Q[rows(text)], 1e-9)),
    ):
        assert abs(predict_calls(gamma, wrong) - wanted) > 1e-3


# In the limits, and of long texts.


def test_gammas_do_not_know_of_each_other():
    """Each expectation is the mean of its law."""
    accept, gammas = np.random.default_rng(1).random(30), [5, 0, 64, 3, 29, 3]
    got = predict.expected_calls(accept, gammas)
    alone = [predict.expected_calls(accept, [gamma])[0] for gamma in gammas]
    np.testing.assert_array_equal(got, alone)
    assert got[2] == pytest.approx(got[4], rel=1e-14)  # 29 drafts and one are the text
    assert got[0] < got[3] < got[1] == 30
    laws = np.array([predict.calls_law(accept, gamma) for gamma in gammas])
    np.testing.assert_allclose(laws.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(laws @ np.arange(31), got, rtol=1e-12)


# Batches and time.


@pytest.mark.parametrize("lengths", [(6,), (6, 6), (2, 6, 4)])
def test_the_steps_of_a_batch_by_brute_force(lengths):
    rng = np.random.default_rng(4)
    laws = [predict.calls_law(rng.random(n), 2) for n in lengths]
    wanted = sum(
        np.prod([law[k] for law, k in zip(laws, calls, strict=True)]) * max(calls)
        for calls in itertools.product(*(range(n + 1) for n in lengths))
    )
    assert predict.expected_steps(laws) == pytest.approx(wanted, rel=1e-12)
    slowest = max(law @ np.arange(len(law)) for law in laws)
    assert wanted > slowest + 1e-3 if lengths[1:] else wanted == pytest.approx(slowest)


def test_speedup_is_theorem_3_8_in_the_ideal_case_and_by_hand():
    for alpha, gamma, c in ((0.6, 3, 0.05), (0.9, 7, 0.2), (0, 2, 0)):
        steps = 100 / closed_forms.expected_tokens(alpha, gamma)
        wanted = closed_forms.walltime_factor(alpha, gamma, c)
        got = predict.speedup(100, steps, gamma, cost=Cost(c))
        assert got == pytest.approx(wanted, rel=1e-14) and isinstance(got, float)
    cost, baseline = Cost(0.1, 1.2, 0.3, 4), Cost(overhead=0.2, prefill=5)
    # (5 + 60 (1 + 0.2)) / (4 + 20 (3 0.1 + 1.2 + 0.3)) = 77 / 40.
    drafted = predict.speedup(60, 20, 3, cost=cost, baseline=baseline)
    assert drafted == pytest.approx(77 / 40)
    assert predict.speedup(60, 60, 0, cost=baseline, baseline=baseline) == 1
    got = predict.speedup(60, [60, 20], [0, 3], cost=Cost(0.1, [1, 1.2], 0.3, 4))
    np.testing.assert_allclose(got, [60 / (4 + 60 * 1.3), 60 / 40])


# The engine.

VOCAB, BATCH, NEW, GAMMA = 16, 2048, 12, 3
WORLD = tiny.tables(VOCAB)


@functools.cache
def weights():
    """Returns the weights of the target, of its drafter, and of a drafter that was not
    used."""
    p, q = WORLD.target_weights, WORLD.draft_weights
    return p, tiny.add_share(p, q, 0.5), WORLD.shallow_weights


DECODER = Decoder(WORLD.target, autoregressive.build(WORLD.draft, GAMMA))
ENGINE = generate.build(DECODER, slots=1 + NEW + GAMMA + 1)


@functools.cache
def decode(temperature: float) -> Output:
    prompt = make_prompt([[row % VOCAB] for row in range(BATCH)])
    sampling = make_sampling(BATCH, temperature)
    request = make_request(jax.random.key(5), prompt, NEW, sampling)
    return ENGINE(Params(*weights()[:2]), prompt, request)


def coins(temperature: float, draft, shift: int = 0) -> np.ndarray:
    """Returns accept_probability [B, NEW] for the texts that were decoded."""
    text = np.asarray(decode(temperature).tokens)[:, : 1 + NEW]
    last, new = text[:, :-1], text[:, 1:]

    def probability(logits):
        law = np.asarray(jax.nn.softmax(logits), np.float64)
        if temperature == 0:
            law = np.eye(VOCAB)[np.asarray(jnp.argmax(logits, -1))]
        return law[last, new]

    p, q = probability(weights()[0]), probability(draft)
    each = [predict.accept_probability(*row) for row in zip(p, q, strict=True)]
    return np.roll(each, shift, axis=1)


def errors(x: np.ndarray) -> float:
    """Returns the mean of x, in standard errors of the mean."""
    return abs(x.mean()) / (x.std(ddof=1) / np.sqrt(len(x)))


def standardized_error(wanted: np.ndarray) -> tuple[float, float]:
    """Returns how far a prediction [B] is from the decoded calls, in standard errors.

    Its mean over all rows; and whether it is right in the rows where it is high as in
    those where it is low: a prediction from the text leaves nothing for it to explain.
    """
    rest = np.asarray(decode(1.0).counts.calls) - wanted
    return errors(rest), errors(rest * (wanted - wanted.mean()))


def expected_calls(coins: np.ndarray, gamma: int = GAMMA) -> np.ndarray:
    return np.array([predict.expected_calls(row, [gamma])[0] for row in coins])


def test_the_engine_makes_as_many_calls_and_a_wrong_prediction_is_noticed():
    _, draft, other = weights()
    assert max(standardized_error(expected_calls(coins(1.0, draft)))) < 4
    assert min(standardized_error(expected_calls(coins(1.0, other)))) > 4
    assert standardized_error(expected_calls(coins(1.0, draft), GAMMA - 1))[0] > 4
    alpha = coins(1.0, draft).mean()
    eq_1 = np.full(BATCH, NEW / closed_forms.expected_tokens(alpha, GAMMA))
    assert errors(np.asarray(decode(1.0).counts.calls) - eq_1) > 4
    # The same coins at the wrong tokens are as many calls on average, in other texts.
    for shift in (1, -1):
        assert standardized_error(expected_calls(coins(1.0, draft, shift)))[1] > 4


def test_the_engines_batches_run_as_many_steps():
    """The rows of one run are taken eight at a time, because rows do not depend on each
    other."""
    chances, rows = coins(1.0, weights()[1]), 8
    laws = [predict.calls_law(row, GAMMA) for row in chances]
    steps = np.asarray(decode(1.0).counts.calls).reshape(-1, rows).max(1)
    batches = range(0, BATCH, rows)
    wanted = [predict.expected_steps(laws[i : i + rows]) for i in batches]
    assert errors(steps - wanted) < 4
    assert errors(steps - expected_calls(chances).reshape(-1, rows).max(1)) > 4


def test_greedy_calls_are_certain():
    _, draft, other = weights()
    chances, calls = coins(0.0, draft), np.asarray(decode(0.0).counts.calls)
    assert set(chances.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(expected_calls(chances), calls)
    for row, count in zip(chances[:VOCAB], calls, strict=False):
        law = predict.calls_law(row, GAMMA)
        np.testing.assert_array_equal(law, np.arange(NEW + 1) == count)
    assert len(set(calls.tolist())) > 3  # texts differ in what they need
    for wrong in (coins(0.0, other), coins(0.0, draft, shift=1)):
        assert np.mean(expected_calls(wrong) != calls) > 0.1
