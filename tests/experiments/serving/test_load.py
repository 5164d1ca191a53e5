"""A simulated server agrees with numbers computed by hand and with queueing theory; a
row of a tiny pair is predicted from other prompts, measured, and shown."""

import numpy as np
import pytest

from experiments.serving import measure, simulate
from experiments.serving.parts import LoadSetting
from experiments.serving.simulate import Costs
from specjax.measure.pairs import Task
from specjax.prompts import Prompts
from tests.support.tiny_pair import pair


def answer_times(serve, costs: Costs, calls, at=None) -> list[float]:
    at = np.zeros(len(calls)) if at is None else at
    return simulate.answer_times(serve, costs, at=at, calls=calls).tolist()


def test_by_hand():
    costs = Costs((1, 2), (1.0, 3.0), admit=0.5, begin=2.0)
    # 0 and 1 are admitted by 1; 1 ends at 4, 2 is admitted by 4.5 and ends at 7.5; from
    # then on 0 is alone, by the program of one row.
    assert answer_times(simulate.serve_refilling(2), costs, [4, 1, 1]) == [
        9.5,
        4.0,
        7.5,
    ]
    # Two together, 2 + 4 * 3; then one, of as many rows.
    assert answer_times(simulate.serve_in_batches(2), costs, [4, 1, 1]) == [
        14.0,
        14.0,
        19.0,
    ]
    four = answer_times(
        simulate.serve_in_batches(4), Costs((4,), (1.0,)), [9, 1, 1, 1, 2]
    )
    assert four == [9.0] * 4 + [11.0]
    # Who comes within a step is admitted at its end.
    late = answer_times(simulate.serve_refilling(2), costs, [3, 1], [1.0, 2.2])
    assert late == [1.0 + 0.5 + 1 + 0.5 + 3 + 1, 1.0 + 0.5 + 1 + 0.5 + 3]


def test_steps_of_a_request():
    """A request of 8 tokens at 3 per step takes 3 steps; when texts differ, each
    request follows one of them."""
    texts = [np.array([3]), np.array([1])]
    calls = simulate.steps_per_request(np.full(400, 8), texts)
    assert {*calls.tolist()} == {3, 8} and abs(calls.mean() - 5.5) < 0.5
    # From the text's beginning on, and again where it ends.
    late = simulate.steps_per_request(np.full(9, 11), [np.array([1, 1, 4])])
    assert {*late.tolist()} == {3 + 2 + 1}


def test_one_row_is_the_queue_of_pollaczek_and_khinchine():
    """In M/D/1 at a load of 0.7, the mean wait is rho D / (2 (1 - rho)), and then the
    request takes D."""
    count, rho = 40_000, 0.7
    at = simulate.poisson(rho, count)
    calls = np.ones(count, int)
    times = answer_times(simulate.serve_refilling(1), Costs((1,), (1.0,)), calls, at)
    assert np.mean(times - at) == pytest.approx(1 + rho / (2 * (1 - rho)), rel=0.05)


def test_what_is_told():
    told = simulate.latency_numbers(
        at=np.zeros(4), times=np.array([1.0, 2, 3, 10]), tokens=np.array([5, 5, 5, 5])
    )
    assert told == {"rate": 2.0, "mean": 4.0, "p50": 2.5, "p95": pytest.approx(8.95)}


@pytest.mark.parametrize(
    ("drafted", "first"),
    [([1, 1, 3], 3.0), ([3, 1, 3], 3.0), ([2, 2, 2], 1.0), ([1, 1, 1], None)],
)
def test_from_which_load_on_a_draft_does_not_pay(drafted, first):
    assert simulate.crossing([1, 2, 3], drafted, [2, 2, 2]) == first


# Rows.

PROMPTS = Prompts([[1, i] for i in range(10)])
SMALL = LoadSetting(gammas=(0, 2), batches=(2,), rows=2, requests=12, rounds=1)
SMALL = SMALL._replace(least=2, most=12, others=4)


def build(setting: LoadSetting, prompts: Prompts = PROMPTS):
    return measure.build(
        *pair(), setting=setting, task="mine", read=lambda *_: Task(prompts, ())
    )


@pytest.mark.slow
def test_a_row():
    it = build(SMALL).run()
    assert it["gamma"] == 2 and 24 <= it["tokens"] <= 144
    for mode in ("refill", "wait", "open"):
        for who in ("plain", "drafted"):
            name = f"{mode}_{who}"
            assert it[f"{name}_p50"] <= it[f"{name}_p95"]
            ratio = it[f"{name}_rate"] / it[f"{name}_rate_predicted"]
            assert it[f"{name}_rate_ratio"] == pytest.approx(ratio)
            assert 0.01 < ratio < 100  # seconds, and not milliseconds
    plain, drafted = it["by_batch"]
    assert plain["given"] == 1 < drafted["given"] <= 3
    assert (plain["speedup"], plain["v"], plain["c"]) == (1.0, 1.0, None)
    assert len(it["loads"]) == 2 * len(simulate.SHARES)
    asked = measure.requests(PROMPTS, np.array([3, 4]), SMALL)[0]
    assert asked.tokens[:, :2].tolist() == PROMPTS.tokens[4:6]  # of no other prompt


@pytest.mark.parametrize(
    ("setting", "prompts", "why"),
    [
        (SMALL._replace(gammas=(1, 2)), PROMPTS, "gammas must ascend from 0"),
        (SMALL._replace(rows=4), PROMPTS, "rows be one of them"),
        (SMALL._replace(requests=11), PROMPTS, "requests must fill batches of 2"),
        (SMALL._replace(others=10), PROMPTS, "more than 10 prompts of at most"),
        (SMALL._replace(longest=1), PROMPTS, "prompts of at most 1 tokens"),
        (SMALL, PROMPTS._replace(inputs=[[1]] * 10), "for a decoder alone"),
    ],
)
def test_what_cannot_be_measured_is_told_at_once(setting, prompts, why):
    with pytest.raises(ValueError, match=why):
        build(setting, prompts)
