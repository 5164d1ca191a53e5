"""Estimators of alpha agree with small cases by hand, and cover the truth in simulated
decoding."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import closed_forms, estimate

SEQUENCES, REPEATS = 60, 400


BETA, PHI = [0.9, 0.7, 0.2], (np.sqrt(5) - 1) / 2  # 1 + x + x^2 = 2
TWO = np.sqrt(2 / 1 * 2)  # residuals of two sequences, of equal size and opposite sign
# The law of what a call of two drafts emits, 1, 2 or 3 tokens, at 14 tokens in 7 calls.
LAW = np.array([1 - PHI, PHI * (1 - PHI), PHI**2])
NAIVE = np.sqrt((LAW @ np.array([1, 4, 9]) - 2**2) / 7)
SE, SLOPE = TWO * 2 / 7, 1 + 2 * PHI  # d tokens / d alpha
SPREAD = np.std(BETA, ddof=1) / np.sqrt(3)


@pytest.mark.parametrize(
    ("got", "value", "se", "naive_se", "count"),
    [
        # Totals 1.6 of 2 and 0.2 of 1, mean 0.6; 7 of 10 accepted.
        (estimate.rao_blackwell(BETA, [5, 5, 3]), 0.6, TWO * 0.4 / 3, SPREAD, 3),
        (estimate.counts([6, 1], [8, 2]), 0.7, TWO * 0.4 / 10, np.sqrt(0.021), 10),
        (estimate.ratio([6, 9], [8, 2]), 1.5, TWO * 6 / 10, np.nan, 10),
        (estimate.chen_r([6, 1], [4, 3], 2), 2 / 3, SE / 3, NAIVE / 3, 7),
        (
            estimate.implied_alpha([6, 1], [4, 3], 2),
            PHI,
            SE / SLOPE,
            NAIVE / SLOPE,
            7,
        ),
    ],
    ids=["rao_blackwell", "counts", "ratio", "chen_r", "implied_alpha"],
)
def test_by_hand(got, value, se, naive_se, count):
    wanted = value, se, naive_se, count, 2
    both = (got.value, got.se, got.naive_se, got.count, got.sequences), wanted
    np.testing.assert_allclose(*both, rtol=1e-9)


def test_two_drafts_on_the_same_texts_by_hand():
    """Each text is 0.5 easier for the first draft, so that the error is zero for any
    texts."""
    beta, sequence = np.array([0.9, 0.7, 0.6]), [5, 5, 3]
    (more, tokens), (less, _) = (
        estimate.totals_by_text(x, sequence) for x in (beta, beta - 0.5)
    )
    assert tokens.tolist() == [1, 2] and more.tolist() == pytest.approx([0.6, 1.6])
    got = estimate.difference(more, less, tokens)
    assert got.value == pytest.approx(0.5) and got.se == pytest.approx(0)
    # Differences 0.3 of 1 and 1.2 of 2, mean 0.5: residuals -0.2 and 0.2.
    got = estimate.difference(more, less + [0.2, -0.2], tokens)
    assert got.value == pytest.approx(0.5)
    assert got.se == pytest.approx(np.sqrt(2 / 1 * 2 * 0.2**2) / 3)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_all_or_nothing_accepted(alpha):
    calls = np.array([3, 5])
    accepted = (4 * alpha * calls).astype(int)
    got = estimate.implied_alpha(accepted, calls, gamma=4)
    assert (got.value, got.se, got.naive_se) == (alpha, 0, 0)
    assert estimate.counts(accepted, np.maximum(accepted, calls)).value == alpha
    alone = estimate.chen_r([0, 0], [3, 5], gamma=0)  # a token a call
    assert (alone.value, alone.se, alone.naive_se) == (1, 0, 0)


def test_neither_order_nor_texts_never_decoded_matter():
    rng = np.random.default_rng(2)
    beta, sequence, order = rng.random(30), rng.integers(0, 5, 30), rng.permutation(30)
    moved = estimate.rao_blackwell(beta[order], sequence[order])
    whole = estimate.rao_blackwell(beta, sequence)
    np.testing.assert_allclose(moved, whole, rtol=1e-12)
    some = estimate.counts(jnp.array([6, 0, 1]), jnp.array([8, 0, 2]))
    np.testing.assert_array_equal(some, estimate.counts([6, 1], [8, 2]))
    assert [type(x) for x in some] == [float, float, int, float, int]


def test_one_sequence_has_no_clustered_error():
    got = estimate.rao_blackwell([0.2, 0.4], [0, 0])
    assert np.isnan(got.se) and got.naive_se > 0
    assert np.isnan(estimate.counts([3], [4]).se)
    assert np.isnan(estimate.implied_alpha([3], [2], 4).se)
    got = estimate.rao_blackwell([0.2], [0])  # one position has no error at all
    assert got.value == 0.2 and np.isnan(got.se) and np.isnan(got.naive_se)


def decode(beta, calls, gamma, rng):
    """Returns totals of Algorithm 1 for each sequence [S]: accepted and tested. beta:
    [S], of each text."""
    coins = rng.random((len(beta), calls.max(), gamma)) < beta[:, None, None]
    n = np.cumprod(coins, -1).sum(-1) * (np.arange(calls.max()) < calls[:, None])
    tested = np.minimum(n + 1, gamma) * (np.arange(calls.max()) < calls[:, None])
    return n.sum(1), tested.sum(1)


def draw_varied_texts(rng):
    """Returns texts, each with its own beta, uniform in [0.3, 0.9] with mean 0.6."""
    return rng.uniform(0.3, 0.9, SEQUENCES)


def rao_blackwell_run(rng):
    lengths = rng.integers(5, 61, SEQUENCES)
    sequence = np.repeat(np.arange(SEQUENCES), lengths)
    beta = draw_varied_texts(rng)[sequence] + rng.uniform(-0.1, 0.1, len(sequence))
    return estimate.rao_blackwell(beta, sequence)


def estimate_run(rng, of):
    """Returns an estimate for a simulated run. of: (accepted, tested, calls) ->
    Estimate."""
    calls = rng.integers(5, 41, SEQUENCES)
    return of(*decode(draw_varied_texts(rng), calls, 4, rng), calls)


counts_run, chen_run, implied_run = (
    functools.partial(estimate_run, of=of)
    for of in (
        lambda n, tested, calls: estimate.counts(n, tested),
        lambda n, tested, calls: estimate.chen_r(n, calls, 4),
        lambda n, tested, calls: estimate.implied_alpha(n, calls, 4),
    )
)


def per_call():
    """Returns the limits of decoding `draw_varied_texts`: the mean accepted and tested
    drafts of one call."""
    beta = np.linspace(0.3, 0.9, 10_001)
    tested = closed_forms.expected_tokens(beta, 3)  # draft i + 1 if i <= 3 were kept
    return closed_forms.expected_tokens(beta, 4).mean() - 1, tested.mean()


ACCEPTED, TESTED = per_call()
CLUSTERED = [
    (rao_blackwell_run, 0.6),
    (counts_run, ACCEPTED / TESTED),
    (chen_run, (ACCEPTED + 1) / 5),
    (implied_run, closed_forms.implied_alpha(ACCEPTED + 1, 4)),
]


@functools.cache
def replicates(run):
    rng = np.random.default_rng(0)
    return [run(rng) for _ in range(REPEATS)]


def coverage(run, truth, field):
    """Returns how often the 95 % interval holds the truth, with a standard deviation of
    1.1 %."""
    got = replicates(run)
    off = np.array([(e.value - truth) / getattr(e, field) for e in got])
    return np.mean(np.abs(off) < 1.96)


@pytest.mark.parametrize("run, truth", CLUSTERED)
def test_only_the_clustered_error_covers_clustered_texts(run, truth):
    assert 0.90 < coverage(run, truth, "se") < 0.98
    assert coverage(run, truth, "naive_se") < 0.85
    if run is not rao_blackwell_run:  # the mean of beta is not what the others estimate
        assert abs(truth - 0.6) > 0.01
        assert coverage(run, 0.6, "se") < 0.85
