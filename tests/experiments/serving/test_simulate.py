"""A simulated server: by hand, and against what queues are known to do."""

import numpy as np
import pytest

from experiments.serving import simulate
from experiments.serving.simulate import Costs, Load

ONE = [np.ones(1, int)]  # a token a step


def ended(serve, costs: Costs, tokens, at=None, emitted=ONE) -> list[float]:
    tokens = np.array(tokens)
    at = np.zeros(tokens.size) if at is None else np.array(at)
    return simulate.ended(serve, costs, Load(at, tokens, emitted)).tolist()


def test_by_hand():
    costs = Costs((1, 2), (1.0, 3.0), admit=0.5, begin=2.0)
    # 0 and 1 are admitted by 1; 1 ends at 4, 2 is admitted by 4.5 and ends at 7.5; from
    # then on 0 is alone, by the program of one row.
    assert ended(simulate.refilled(2), costs, [4, 1, 1]) == [9.5, 4.0, 7.5]
    # Two together, 2 + 4 * 3; then one, of as many rows.
    assert ended(simulate.waiting(2), costs, [4, 1, 1]) == [14.0, 14.0, 19.0]
    # Who comes within a step is admitted at its end.
    late = ended(simulate.refilled(2), costs, [3, 1], [1.0, 2.2])
    assert late == [1.0 + 0.5 + 1 + 0.5 + 3 + 1, 1.0 + 0.5 + 1 + 0.5 + 3]


def test_steps_of_a_request():
    """Of 8 tokens at 3 a step are 3 steps; of texts that differ, each follows one."""
    load = Load(np.zeros(400), np.full(400, 8), [np.array([3]), np.array([1])])
    calls = load.calls()
    assert {*calls.tolist()} == {3, 8} and abs(calls.mean() - 5.5) < 0.5


def test_one_row_is_the_queue_of_pollaczek_and_khinchine():
    """M/D/1 at a load of 0.7: a mean wait of rho D / (2 (1 - rho)) before D itself."""
    count, rho = 40_000, 0.7
    at = simulate.poisson(rho, count)
    times = np.array(
        ended(simulate.refilled(1), Costs((1,), (1.0,)), np.ones(count, int), at)
    )
    assert np.mean(times - at) == pytest.approx(1 + rho / (2 * (1 - rho)), rel=0.05)


def test_what_is_told():
    told = simulate.told(np.zeros(4), np.array([1.0, 2, 3, 10]), np.array([5, 5, 5, 5]))
    assert told == {"rate": 2.0, "mean": 4.0, "p50": 2.5, "p95": pytest.approx(8.95)}


@pytest.mark.parametrize(
    ("drafted", "first"),
    [([1, 1, 3], 3.0), ([3, 1, 3], 3.0), ([2, 2, 2], 1.0), ([1, 1, 1], None)],
)
def test_from_which_load_on_a_draft_does_not_pay(drafted, first):
    assert simulate.crossing([1, 2, 3], drafted, [2, 2, 2]) == first
