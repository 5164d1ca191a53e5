"""Estimators of alpha: by hand on small data, and by coverage on simulated decoding."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import closed_forms, estimate

SEQUENCES, REPEATS = 60, 400


def test_rao_blackwell_by_hand():
    beta, sequence = [0.9, 0.7, 0.2], [5, 5, 3]
    got = estimate.rao_blackwell(beta, sequence)
    # Totals 1.6 of 2 and 0.2 of 1, mean 0.6: residuals 0.4 and -0.4.
    assert got.value == pytest.approx(0.6)
    assert got.se == pytest.approx(np.sqrt(2 / 1 * 2 * 0.4**2) / 3)
    assert got.naive_se == pytest.approx(np.std(beta, ddof=1) / np.sqrt(3))
    assert (got.count, got.sequences) == (3, 2)


def test_two_drafts_on_the_same_texts_by_hand():
    """Every text is 0.5 easier for the first draft: no error, whatever the texts."""
    beta, sequence = np.array([0.9, 0.7, 0.6]), [5, 5, 3]
    (more, tokens), (less, _) = (
        estimate.by_text(x, sequence) for x in (beta, beta - 0.5)
    )
    assert tokens.tolist() == [1, 2] and more.tolist() == pytest.approx([0.6, 1.6])
    got = estimate.difference(more, less, tokens)
    assert got.value == pytest.approx(0.5) and got.se == pytest.approx(0)
    # Differences 0.3 of 1 and 1.2 of 2, mean 0.5: residuals -0.2 and 0.2.
    got = estimate.difference(more, less + [0.2, -0.2], tokens)
    assert got.value == pytest.approx(0.5)
    assert got.se == pytest.approx(np.sqrt(2 / 1 * 2 * 0.2**2) / 3)


def test_counts_by_hand():
    got = estimate.counts([6, 1], [8, 2])  # 7 of 10: residuals 0.4 and -0.4
    assert got.value == pytest.approx(0.7)
    assert got.se == pytest.approx(np.sqrt(2 / 1 * 2 * 0.4**2) / 10)
    assert got.naive_se == pytest.approx(np.sqrt(0.7 * 0.3 / 10))
    assert (got.count, got.sequences) == (10, 2)


def test_chen_r_by_hand():
    got = estimate.chen_r([6, 1], [4, 3], gamma=2)  # 14 tokens in 7 calls
    assert got.value == pytest.approx(2 / 3)
    assert got.se == pytest.approx(np.sqrt(2 / 1 * 2 * 2**2) / 7 / 3)
    alpha = closed_forms.implied_alpha(2, 2)
    # One call emits 1, 2 or 3 tokens.
    law = np.array([1 - alpha, alpha * (1 - alpha), alpha**2])
    variance = law @ np.array([1, 4, 9]) - 2**2
    assert got.naive_se == pytest.approx(np.sqrt(variance / 7) / 3)
    assert (got.count, got.sequences) == (7, 2)


def test_implied_alpha_by_hand():
    got = estimate.implied_alpha([6, 1], [4, 3], gamma=2)
    alpha = (np.sqrt(5) - 1) / 2  # 1 + alpha + alpha^2 = 2
    assert got.value == pytest.approx(alpha)
    tokens = estimate.chen_r([6, 1], [4, 3], gamma=2)
    assert got.se == pytest.approx(tokens.se * 3 / (1 + 2 * alpha))
    assert got.naive_se == pytest.approx(tokens.naive_se * 3 / (1 + 2 * alpha))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_all_or_nothing_accepted(alpha):
    calls = np.array([3, 5])
    accepted = (4 * alpha * calls).astype(int)
    got = estimate.implied_alpha(accepted, calls, gamma=4)
    assert (got.value, got.se, got.naive_se) == (alpha, 0, 0)
    assert estimate.counts(accepted, np.maximum(accepted, calls)).value == alpha


def test_neither_order_nor_texts_never_decoded_matter():
    rng = np.random.default_rng(2)
    beta, sequence = rng.random(30), rng.integers(0, 5, 30)
    order, whole = rng.permutation(30), estimate.rao_blackwell(beta, sequence)
    moved = estimate.rao_blackwell(beta[order], sequence[order])
    np.testing.assert_allclose(moved, whole, rtol=1e-12)
    some = estimate.counts([6, 0, 1], [8, 0, 2])
    np.testing.assert_array_equal(some, estimate.counts([6, 1], [8, 2]))
    some = estimate.chen_r([6, 0, 1], [4, 0, 3], 2)
    np.testing.assert_array_equal(some, estimate.chen_r([6, 1], [4, 3], 2))


def test_one_sequence_has_no_clustered_error():
    got = estimate.rao_blackwell([0.2, 0.4], [0, 0])
    assert np.isnan(got.se) and got.naive_se > 0
    assert np.isnan(estimate.counts([3], [4]).se)
    assert np.isnan(estimate.implied_alpha([3], [2], 4).se)
    got = estimate.rao_blackwell([0.2], [0])  # one position has no error at all
    assert got.value == 0.2 and np.isnan(got.se) and np.isnan(got.naive_se)


def test_calls_without_drafts_emit_one_token():
    got = estimate.chen_r([0, 0], [3, 5], gamma=0)
    assert (got.value, got.se, got.naive_se) == (1, 0, 0)


def test_easy_and_hard_texts_separate_the_estimators():
    """Half the texts accept all, half nothing; 12 tokens each, gamma = 3."""
    beta, sequence = np.repeat([1.0, 0.0], 12), np.repeat([0, 1], 12)
    accepted, tested, calls = [9, 0], [9, 12], [3, 12]
    got = estimate.all_four(beta, sequence, accepted, tested, calls, gamma=3)
    assert list(got) == ["rao_blackwell", "counts", "chen_r", "implied_alpha"]
    assert got["rao_blackwell"].value == 0.5
    assert got["counts"].value == pytest.approx(9 / 21)  # bonus tokens are untested
    assert got["chen_r"].value == pytest.approx(24 / 15 / 4)
    # Calls per token of the fully clustered case, (1 - alpha) + alpha / (gamma + 1).
    assert 1 / (4 * got["chen_r"].value) == pytest.approx(0.5 + 0.5 / 4)
    assert closed_forms.expected_tokens(got["implied_alpha"].value, 3) == pytest.approx(
        1.6
    )
    assert got["implied_alpha"].value < got["counts"].value < 0.5


def decode(beta, calls, gamma, rng):
    """Totals of Algorithm 1 per sequence [S]: accepted, tested. beta [S] per text."""
    coins = rng.random((len(beta), calls.max(), gamma)) < beta[:, None, None]
    n = np.cumprod(coins, -1).sum(-1) * (np.arange(calls.max()) < calls[:, None])
    tested = np.minimum(n + 1, gamma) * (np.arange(calls.max()) < calls[:, None])
    return n.sum(1), tested.sum(1)


def varied(rng):
    """Each text has its own beta, uniform in [0.3, 0.9]: mean 0.6."""
    return rng.uniform(0.3, 0.9, SEQUENCES)


def equal(rng):
    del rng
    return np.full(SEQUENCES, 0.6)


def rao_blackwell_run(rng, difficulty):
    lengths = rng.integers(5, 61, SEQUENCES)
    sequence = np.repeat(np.arange(SEQUENCES), lengths)
    beta = difficulty(rng)[sequence] + rng.uniform(-0.1, 0.1, len(sequence))
    return estimate.rao_blackwell(beta, sequence)


def counts_run(rng, difficulty):
    calls = rng.integers(5, 41, SEQUENCES)
    return estimate.counts(*decode(difficulty(rng), calls, 4, rng))


def chen_run(rng, difficulty):
    calls = rng.integers(5, 41, SEQUENCES)
    return estimate.chen_r(decode(difficulty(rng), calls, 4, rng)[0], calls, 4)


def implied_run(rng, difficulty):
    calls = rng.integers(5, 41, SEQUENCES)
    return estimate.implied_alpha(decode(difficulty(rng), calls, 4, rng)[0], calls, 4)


def per_call():
    """What decoding `varied` tends to: mean drafts accepted and tested in one call."""
    beta = np.linspace(0.3, 0.9, 10_001)
    tested = closed_forms.expected_tokens(
        beta, 3
    )  # draft i + 1 if i <= 3 were accepted
    return closed_forms.expected_tokens(beta, 4).mean() - 1, tested.mean()


ACCEPTED, TESTED = per_call()
CLUSTERED = [
    (rao_blackwell_run, 0.6),
    (counts_run, ACCEPTED / TESTED),
    (chen_run, (ACCEPTED + 1) / 5),
    (implied_run, closed_forms.implied_alpha(ACCEPTED + 1, 4)),
]
INDEPENDENT = [
    (rao_blackwell_run, 0.6),
    (counts_run, 0.6),
    (chen_run, closed_forms.expected_tokens(0.6, 4) / 5),
    (implied_run, 0.6),
]


@functools.cache
def replicates(run, difficulty):
    rng = np.random.default_rng(0)
    return [run(rng, difficulty) for _ in range(REPEATS)]


def coverage(run, difficulty, truth, field):
    """How often the 95 % interval holds the truth. Standard deviation 1.1 %."""
    got = replicates(run, difficulty)
    off = np.array([(e.value - truth) / getattr(e, field) for e in got])
    return np.mean(np.abs(off) < 1.96)


@pytest.mark.parametrize("run, truth", CLUSTERED)
def test_the_clustered_error_covers(run, truth):
    assert 0.90 < coverage(run, varied, truth, "se") < 0.98


@pytest.mark.parametrize("run, truth", CLUSTERED)
def test_the_naive_error_does_not_cover_clustered_texts(run, truth):
    assert coverage(run, varied, truth, "naive_se") < 0.85


@pytest.mark.parametrize("run, truth", CLUSTERED[1:])
def test_the_coverage_check_notices_another_estimand(run, truth):
    assert abs(truth - 0.6) > 0.01  # the mean of beta is not what these three estimate
    assert coverage(run, varied, 0.6, "se") < 0.85


@pytest.mark.parametrize("field", ["se", "naive_se"])
@pytest.mark.parametrize("run, truth", INDEPENDENT)
def test_independent_acceptances_are_covered_by_both(run, truth, field):
    assert 0.90 < coverage(run, equal, truth, field) < 0.98


def test_without_the_small_sample_correction_few_texts_are_not_covered():
    """Four texts: the correction is a factor of 4 / 3 in the variance."""
    rng = np.random.default_rng(3)
    beta = rng.normal(0.5, 0.1, (4000, 4, 1)).clip(0, 1)
    got = [estimate.rao_blackwell(b.ravel(), np.arange(4)) for b in beta]
    variance = np.var([e.value for e in got])
    estimated = np.mean([e.se**2 for e in got])
    assert estimated == pytest.approx(variance, rel=0.1)
    assert estimated * 3 / 4 != pytest.approx(variance, rel=0.1)


def test_jax_arrays_are_welcome_and_the_result_is_numbers():
    beta = jnp.array([0.9, 0.7, 0.2])
    got = estimate.rao_blackwell(beta, jnp.array([0, 0, 1]))
    assert [type(x) for x in got] == [float, float, int, float, int]
    got = estimate.implied_alpha(jnp.array([6, 1]), jnp.array([4, 3]), 2)
    assert [type(x) for x in got] == [float, float, int, float, int]


def test_wrong_measurements_are_errors():
    for beta, ids in ([[0.5], [0, 1]], [[], []], [[[0.5]], [[0]]]):
        with pytest.raises(ValueError, match=r"must both be \[N\]"):
            estimate.rao_blackwell(beta, ids)
    for beta in (1.1, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"beta must be in \[0, 1\]"):
            estimate.rao_blackwell([beta], [0])
    with pytest.raises(ValueError, match="accepted exceeds tested"):
        estimate.counts([3, 1], [2, 9])
    with pytest.raises(ValueError, match=r"accepted exceeds gamma \* calls"):
        estimate.chen_r([9], [2], gamma=4)
    with pytest.raises(ValueError, match="gamma must be >= 1"):
        estimate.implied_alpha([0], [2], gamma=0)
    for totals in ([[0], [0]], [[-1], [2]], [[np.nan], [2]]):
        with pytest.raises(ValueError, match="nothing was measured"):
            estimate.counts(*totals)
    with pytest.raises(ValueError, match=r"totals must be \[S\]"):
        estimate.chen_r([[1, 2]], [[3, 4]], gamma=4)
