"""Section 3 of Leviathan et al. (2023) agrees with exact arithmetic and simulation."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import closed_forms

ALPHAS = [0.0, 1e-12, 0.1, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53, 1.0]


def geometric_sum(alpha, gamma):
    """Computes Eq. 1 as the sum from which it comes, in exact arithmetic."""
    return float(sum(Fraction(alpha) ** i for i in range(gamma + 1)))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("gamma", [0, 1, 7, 100])
def test_expected_tokens_is_exact_up_to_and_at_one(alpha, gamma):
    want = geometric_sum(alpha, gamma)
    assert closed_forms.expected_tokens(alpha, gamma) == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize(
    ("factor", "arguments", "wanted"),
    [
        ("walltime_factor", (0.5, 2, 0.25), 1.75 / 1.5),
        ("walltime_factor", (1, 3, 0.5), 4 / 2.5),
        ("walltime_factor", (0, 4, 0.25), 1 / 2),
        ("walltime_factor", (0.7, 0, 0.25), 1),
        ("operations_factor", (0.5, 2, 0.25), 3.5 / 1.75),  # rejected rows cost too
        ("operations_factor", (1, 3, 0), 1),
        ("operations_factor", (0, 4, 0), 5),
        ("chen_r", (1, 4), 0.2),  # every draft rejected: the added token counts
        ("chen_r", (5, 4), 1),
        ("oracle_factor", (1, 0.25), 4),
        ("oracle_factor", (1, 0), np.inf),
        *(("optimal_gamma", x, 0) for x in ((0.3, 0.3), (0.2, 0.3), (0, 0), (1, 2))),
    ],
)
def test_factors_by_hand(factor, arguments, wanted):
    assert getattr(closed_forms, factor)(*arguments) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("c", "alpha", "c_lower", "gamma", "wanted"),
    [(0.11, 0.8, 0.02, 4, 0.0565), (0.04, 0.8, 0.005, 5, 0.0176)],
)
def test_an_accelerated_draft_costs_its_share_of_a_round(
    c, alpha, c_lower, gamma, wanted
):
    """It is compared with tokens drawn one by one; the best gamma is that of Section
    3.5."""
    each = np.arange(1, 20)
    costs = closed_forms.accelerated_c(c, alpha=alpha, gamma=each, c_lower=c_lower)
    best = closed_forms.optimal_gamma(alpha, c_lower / c)
    assert best == gamma == each[np.argmin(costs)]
    assert costs[gamma - 1] == pytest.approx(wanted, abs=5e-5)
    kept = np.random.default_rng(0).random((200_000, gamma)) < alpha
    tokens = 1 + np.cumprod(kept, axis=1).sum(1)
    spent = (c + gamma * c_lower) / tokens.mean()
    assert costs[gamma - 1] == pytest.approx(spent, rel=5e-3)
    plain, both = (
        closed_forms.walltime_factor(0.82, closed_forms.optimal_gamma(0.82, x), x)
        for x in (c, costs[gamma - 1])
    )
    assert both > 1.2 * plain


@pytest.mark.parametrize("alpha", [0, 0.05, 0.3, 0.5, 0.7, 0.88, 0.97, 0.99])
@pytest.mark.parametrize("c", [0.001, 0.02, 0.1, 0.3, 0.6, 1, 1.5])
def test_a_speedup_rises_to_its_best_gamma_and_then_falls(alpha, c):
    """Theorem 3.8 is tested as a function of gamma, with Corollary 3.9: some gamma
    helps iff alpha > c, and then by (1 + alpha) / (1 + c) or more."""
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


def test_acceptance_is_the_mean_of_the_coin_and_divergence_total_variation():
    weights = np.random.default_rng(0).exponential(size=(2, 50, 7)) ** 3
    p, q = weights / weights.sum(-1, keepdims=True)
    beta, d = closed_forms.acceptance(p, q), closed_forms.divergence(p, q)
    by_draft = (q * np.minimum(1, p / q)).sum(-1)  # x ~ q, Theorem 3.5
    np.testing.assert_allclose(beta, by_draft, rtol=1e-12)
    np.testing.assert_allclose(d, 1 - beta, rtol=1e-12)  # Lemma 3.3
    # Total variation by its own definition: the largest gap over all 2^7 events.
    events = (np.arange(128)[:, None] >> np.arange(7)) & 1
    np.testing.assert_allclose(d, np.abs((p - q) @ events.T).max(-1), rtol=1e-10)


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
    near_one = closed_forms.expected_tokens(jnp.float32(1 - 2**-20), 100)
    wanted = geometric_sum(1 - 2**-20, 100)  # float32 arguments, in float64
    assert near_one == pytest.approx(wanted, rel=1e-14)
