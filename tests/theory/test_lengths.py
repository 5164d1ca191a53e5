"""Costs of lengths agree with results by hand, and with closed forms where these
hold."""

import numpy as np
import pytest

from specjax.measure import lengths
from specjax.theory import closed_forms

GAMMA, COUNT = 30, 20_000


def geometric(alpha: float) -> np.ndarray:
    """Returns how many of 30 tokens are accepted, one after the other."""
    return np.minimum(np.random.default_rng(0).geometric(1 - alpha, COUNT) - 1, GAMMA)


def test_a_cost_by_hand():
    v = np.array([1.0, 1.2, 1.5])
    cost = lengths.cost(np.array([2, 0]), np.array([1, 0]), 0.1, v)
    assert cost == pytest.approx((0.2 + 1.5 + 1.0) / 3)
    assert lengths.gap_share(0.5, best=0.6, least=0.4) == pytest.approx(0.5)


def test_the_oracle_is_the_papers():
    """Section 3.5 assumes nothing but calls that each end in a rejection."""
    accepted, v = np.array([0, 3, 1, 7, 0, 0, 2]), np.ones(GAMMA + 1)
    alpha = accepted.sum() / (accepted + 1).sum()
    wanted = 1 / closed_forms.oracle_factor(alpha, 0.07)
    assert lengths.oracle(accepted, 0.07, v) == pytest.approx(wanted)


@pytest.mark.parametrize(("alpha", "c", "slope"), [(0.8, 0.05, 0.0), (0.6, 0.05, 0.05)])
def test_what_knows_no_more_than_alpha_drafts_the_best_gamma(alpha, c, slope):
    accepted, v = geometric(alpha), 1 + slope * np.arange(GAMMA + 1)
    kept = np.full((COUNT, GAMMA), alpha)
    drafted, cost = lengths.replay_renewal(kept, accepted, c, v)
    best = closed_forms.optimal_gamma(alpha, c + slope)
    assert set(drafted) == {best}
    wanted = 1 / closed_forms.walltime_factor(alpha, best, c + slope)
    assert cost == pytest.approx(wanted, rel=0.02)


def test_what_tells_more_costs_less():
    rng = np.random.default_rng(1)
    easy = rng.random((COUNT, GAMMA)) < 0.5
    chance = np.where(easy, 0.95, 0.3)
    kept = rng.random(chance.shape) < chance
    accepted, v = np.cumprod(kept, axis=1).sum(1), np.ones(GAMMA + 1)
    told = lengths.kept_if_sure(np.where(easy, 0.9, 0.2), accepted, bins=4)
    np.testing.assert_allclose(told, chance, atol=0.02)
    least = lengths.oracle(accepted, 0.05, v)
    blind = np.full_like(chance, chance.mean())
    costs = [
        lengths.replay_renewal(x, accepted, 0.05, v)[1] for x in (chance, told, blind)
    ]
    assert least < costs[0] < costs[2] and costs[1] == pytest.approx(costs[0], rel=0.01)
