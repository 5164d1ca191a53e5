"""Section 3 of Leviathan et al. (2023), against exact arithmetic and simulation."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax.theory import closed_forms

ALPHAS = [0.0, 1e-12, 0.1, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53, 1.0]


def geometric_sum(alpha, gamma):
    """Eq. 1 as the sum it comes from, in exact arithmetic."""
    return float(sum(Fraction(alpha) ** i for i in range(gamma + 1)))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("gamma", [0, 1, 7, 100])
def test_expected_tokens_is_exact_up_to_and_at_one(alpha, gamma):
    want = geometric_sum(alpha, gamma)
    assert closed_forms.expected_tokens(alpha, gamma) == pytest.approx(want, rel=1e-14)


def test_walltime_charges_gamma_drafts_and_one_target_run():
    assert closed_forms.walltime_factor(0.5, 2, 0.25) == pytest.approx(1.75 / 1.5)
    assert closed_forms.walltime_factor(1, 3, 0.5) == pytest.approx(4 / 2.5)
    assert closed_forms.walltime_factor(0, 4, 0.25) == pytest.approx(1 / 2)
    assert closed_forms.walltime_factor(0.7, 0, 0.25) == 1


def test_operations_charge_rejected_rows_too():
    assert closed_forms.operations_factor(0.5, 2, 0.25) == pytest.approx(3.5 / 1.75)
    assert closed_forms.operations_factor(1, 3, 0) == pytest.approx(1)
    assert closed_forms.operations_factor(0, 4, 0) == pytest.approx(5)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(alpha=st.floats(0.0, 0.99), c=st.floats(0.001, 1.5))
def test_a_speedup_rises_to_its_best_gamma_and_then_falls(alpha, c):
    """Theorem 3.8 in gamma, and Corollary 3.9: some gamma helps iff alpha > c, and then
    by (1 + alpha) / (1 + c) or more."""
    best = closed_forms.optimal_gamma(alpha, c)
    factors = closed_forms.walltime_factor(alpha, np.arange(2 * best + 50), c)
    assert np.all(np.diff(factors[: best + 1]) > -1e-12)
    assert np.all(np.diff(factors[best:]) < 1e-12)
    assert factors[best] >= 1 - 1e-12
    if alpha > c:
        assert factors[best] >= closed_forms.minimum_gain(alpha, c) - 1e-12 > 1 - 1e-12
    else:
        assert best == 0


def test_optimal_gamma_has_no_cap():
    alpha, c = 1 - 1e-6, 1e-6
    best = closed_forms.optimal_gamma(alpha, c)
    near = closed_forms.walltime_factor(alpha, best + np.array([-1000, 0, 1000]), c)
    assert best > 1_000_000 and near.argmax() == 1


@pytest.mark.parametrize("alpha, c", [(0.3, 0.3), (0.2, 0.3), (0, 0), (1, 1), (1, 2)])
def test_no_draft_helps_without_a_gain(alpha, c):
    assert closed_forms.optimal_gamma(alpha, c) == 0


@pytest.mark.parametrize("alpha, c", [(1, 0.1), (1, 0), (0.5, 0), ([0.5, 1], 0.1)])
def test_an_unbounded_gamma_is_an_error(alpha, c):
    with pytest.raises(ValueError, match="no gamma is optimal"):
        closed_forms.optimal_gamma(alpha, c)


def distributions(rows, vocabulary, seed):
    weights = np.random.default_rng(seed).exponential(size=(2, rows, vocabulary)) ** 3
    return weights / weights.sum(-1, keepdims=True)


def test_acceptance_is_the_mean_of_the_coin_of_algorithm_1():
    p, q = distributions(50, 7, seed=0)
    by_draft = (q * np.minimum(1, p / q)).sum(-1)  # x ~ q, Theorem 3.5
    by_target = (p * np.minimum(1, q / p)).sum(-1)  # x ~ p
    np.testing.assert_allclose(closed_forms.acceptance(p, q), by_draft, rtol=1e-12)
    np.testing.assert_allclose(closed_forms.acceptance(p, q), by_target, rtol=1e-12)


def test_divergence_is_total_variation():
    p, q = distributions(50, 7, seed=1)
    d = closed_forms.divergence(p, q)
    np.testing.assert_allclose(
        d, 1 - closed_forms.acceptance(p, q), rtol=1e-12
    )  # Lemma 3.3
    # Total variation by its own definition: the largest gap over all 2^7 events.
    events = (np.arange(128)[:, None] >> np.arange(7)) & 1
    gap = np.abs((p - q) @ events.T).max(-1)
    np.testing.assert_allclose(d, gap, rtol=1e-10)


def test_minimum_gain_is_the_factor_of_one_draft():
    alpha, c = np.linspace(0, 1, 11), np.linspace(0, 0.9, 10)[:, None]
    one_draft = closed_forms.walltime_factor(alpha, 1, c)
    gain = closed_forms.minimum_gain(alpha, c)
    np.testing.assert_allclose(gain, one_draft, rtol=1e-14)


def test_the_oracle_is_simulated():
    """It drafts the run of acceptances ahead, then pays one target run for the rest."""
    alpha, c = 0.8, 0.05
    run = np.random.default_rng(0).geometric(1 - alpha, 200_000) - 1
    speedup = np.mean(run + 1) / np.mean(run * c + 1)
    assert closed_forms.oracle_factor(alpha, c) == pytest.approx(speedup, rel=5e-3)
    assert closed_forms.oracle_factor(1, 0.25) == 4
    assert closed_forms.oracle_factor(1, 0) == np.inf
    best = closed_forms.walltime_factor(alpha, closed_forms.optimal_gamma(alpha, c), c)
    assert closed_forms.oracle_factor(alpha, c) > best


def test_chen_counts_the_added_token():
    assert closed_forms.chen_r(1, 4) == pytest.approx(0.2)  # every draft rejected
    assert closed_forms.chen_r(5, 4) == 1


def test_chen_speedup_is_theorem_3_8_at_the_implied_alpha():
    tokens, K, t_draft, t_target = np.array([1, 2.5, 4, 5]), 4, 1.8, 14.1
    alpha = closed_forms.implied_alpha(tokens, K)
    want = closed_forms.walltime_factor(alpha, K, t_draft / t_target)
    r = closed_forms.chen_r(tokens, K)
    got = closed_forms.chen_speedup(r, K, t_draft, t_target)
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("gamma", [1, 4, 50])
def test_implied_alpha_inverts_equation_1(gamma):
    alpha = np.array([0, 1e-3, 0.2, 0.5, 0.88, 0.999, 1])
    tokens = closed_forms.expected_tokens(alpha, gamma)
    inverse = closed_forms.implied_alpha(tokens, gamma)
    np.testing.assert_allclose(inverse, alpha, rtol=1e-12)
    np.testing.assert_array_equal(inverse[[0, -1]], [0, 1])


def test_numbers_give_numbers_and_arrays_broadcast():
    alpha, gamma, c = np.array([0.2, 0.9]), np.array([[1], [5], [9]]), 0.1
    factors = closed_forms.walltime_factor(alpha, gamma, c)
    assert factors.shape == (3, 2)
    assert factors[2, 1] == closed_forms.walltime_factor(0.9, 9, 0.1)
    assert type(closed_forms.walltime_factor(jnp.float32(0.5), 3, 0.1)) is float
    assert type(closed_forms.optimal_gamma(0.5, 0.1)) is int
    best = closed_forms.optimal_gamma(alpha[:, None], np.array([0.05, 0.1, 0.5]))
    assert best.shape == (2, 3) and best[1, 1] == closed_forms.optimal_gamma(0.9, 0.1)
    p = jnp.full((2, 3, 4), 0.25)
    assert closed_forms.acceptance(p, p[0, 0]).shape == (2, 3)
    assert type(closed_forms.divergence(p[0, 0], p[0, 0])) is float


def test_float32_arguments_are_computed_in_float64():
    alpha = jnp.float32(1 - 2**-20)
    assert closed_forms.expected_tokens(alpha, 100) == pytest.approx(
        geometric_sum(1 - 2**-20, 100), rel=1e-14
    )


@pytest.mark.parametrize("alpha", [-0.01, 1.01, np.nan, [0.5, 2]])
def test_alpha_outside_its_range_is_an_error(alpha):
    for call in (
        lambda: closed_forms.expected_tokens(alpha, 3),
        lambda: closed_forms.walltime_factor(alpha, 3, 0.1),
        lambda: closed_forms.operations_factor(alpha, 3, 0.1),
        lambda: closed_forms.optimal_gamma(alpha, 0.1),
        lambda: closed_forms.minimum_gain(alpha, 0.1),
        lambda: closed_forms.oracle_factor(alpha, 0.1),
    ):
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
            call()


@pytest.mark.parametrize("gamma", [-1, 0.05, np.inf, np.nan])
def test_gamma_that_counts_nothing_is_an_error(gamma):
    for call in (
        lambda: closed_forms.expected_tokens(0.5, gamma),
        lambda: closed_forms.walltime_factor(0.5, gamma, 7),
        lambda: closed_forms.operations_factor(0.5, gamma, 7),
        lambda: closed_forms.implied_alpha(1, gamma),
    ):
        with pytest.raises(ValueError, match="gamma must be a whole number"):
            call()
    with pytest.raises(ValueError, match="K must be a whole number"):
        closed_forms.chen_r(1, gamma)
    with pytest.raises(ValueError, match="K must be a whole number"):
        closed_forms.chen_speedup(0.5, gamma, 1, 10)


@pytest.mark.parametrize("c", [-0.1, np.inf, np.nan])
def test_negative_or_infinite_costs_are_errors(c):
    for call in (
        lambda: closed_forms.walltime_factor(0.5, 3, c),
        lambda: closed_forms.operations_factor(0.5, 3, c),
        lambda: closed_forms.optimal_gamma(0.5, c),
        lambda: closed_forms.minimum_gain(0.5, c),
        lambda: closed_forms.oracle_factor(0.5, c),
        lambda: closed_forms.chen_speedup(0.5, 3, c, 10),
        lambda: closed_forms.chen_speedup(0.5, 3, 1, c),
    ):
        with pytest.raises(ValueError, match="must be finite and >= 0"):
            call()


def test_other_arguments_out_of_range_are_errors():
    for tokens in (0.99, 5.01, np.nan):
        with pytest.raises(ValueError, match="tokens per call"):
            closed_forms.implied_alpha(tokens, 4)
        with pytest.raises(ValueError, match="tokens per call"):
            closed_forms.chen_r(tokens, 4)
    with pytest.raises(ValueError, match="gamma must be >= 1"):
        closed_forms.implied_alpha(1, 0)
    for r in (0, 1.1, np.nan):
        with pytest.raises(ValueError, match="r must be in"):
            closed_forms.chen_speedup(r, 4, 1, 10)
    with pytest.raises(ValueError, match="t_target must be > 0"):
        closed_forms.chen_speedup(0.5, 4, 1, 0)


def test_what_is_no_distribution_is_an_error():
    uniform = np.full(4, 0.25)
    for f in (closed_forms.acceptance, closed_forms.divergence):
        with pytest.raises(ValueError, match="one vocabulary"):
            f(uniform, np.ones(1))  # would broadcast
        with pytest.raises(ValueError, match="one vocabulary"):
            f(0.5, 0.5)
        with pytest.raises(ValueError, match="rows of q"):
            f(uniform, np.log(uniform))
        with pytest.raises(ValueError, match="rows of p"):
            f([1.5, -0.5, 0, 0], uniform)
