"""What is measured to answer a question, on pairs that decode in a moment."""

import numpy as np
import pytest

from experiments.questions import asked, invariance, monitor, stopping
from experiments.questions.verdict import by_text, judge, resampled
from specjax import sides
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from tests.support import tiny

PROMPTS = Prompts([[1], [1, 2], [3], [0], [2], [0, 1], [3, 2], [2, 2]])
SIZES = dict(tokens=96, gamma=3, new_tokens=12, batch=4)


def pair():
    world = tiny.tables()
    target = sides.of_model("target", world.target, world.target_weights)
    return target, sides.of_model("draft", world.draft, world.draft_weights)


def test_a_verdict_goes_either_way_and_not_within_two_errors():
    assert judge("it gains", 0.05, 0.01, 0.01).startswith("survives: it gains 5.00% ±")
    assert judge("it gains", 0.004, 0.001, 0.01).startswith("killed")
    assert judge("it gains", 0.02, 0.01, 0.01).startswith("undecided")
    assert judge("it gains", 0.0, None, 0.0) == "killed: it gains 0.00% = 0%"
    assert judge("it costs", 0.05, 0.01, 0.1, most=True).startswith("survives")
    assert judge("it costs", 0.2, 0.01, 0.1, most=True).startswith("killed")
    told = {f"{x}_gain": 0.1 for x in ("head", "product", "oracle")}
    told |= {f"{x}_gain_se": 0.01 for x in ("head", "product", "oracle")}
    words = [x.partition(":")[0] for x in stopping.verdicts(told)]
    assert words == ["survives"] * 3
    worse = told | {"head_gain": -0.1, "oracle_gain": 0.7}
    words = [x.partition(":")[0] for x in stopping.verdicts(worse)]
    assert words == ["killed", "survives", "killed"]


def test_errors_are_over_texts():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(200), 5)
    each = np.stack([rng.normal(size=200)[owner], np.ones(1000)], -1)
    totals = by_text(each, owner)
    value, error = resampled(lambda sums: sums[0] / sums[1], totals)
    assert value == pytest.approx(each[:, 0].mean())
    assert error == pytest.approx(200**-0.5, rel=0.2)  # and not 1000 ** -0.5


def test_a_head_learns_chances_and_rules_stop_after_what_they_saw():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    chance = 1 / (1 + np.exp(-(x @ [1.0, -2.0] + 0.5)))
    head = stopping.fitted(x, chance)
    np.testing.assert_allclose(stopping.predicted(head, x), chance, atol=0.02)
    score = np.array([[0.9, 0.2, 0.9], [0.1, 0.9, 0.9], [0.9, 0.9, 0.9]])
    assert stopping.stopped(score, 0.5).tolist() == [2, 1, 3]


def test_rules_are_ordered_by_what_they_know():
    protocol = Protocol("tiny", 1.0, **SIZES)
    kept = {}
    how = pair(), PROMPTS, protocol, kept
    told = stopping.measure(*how, c=0.1, slope=0.05)
    assert told["closed_gamma"] == 0 and told["closed_oracle"] == 1
    assert told["closed_renewal_chances"] < 1 and told["oracle_gain"] > 0
    assert told["verdict"] == stopping.verdicts(told) and len(kept) == 1
    seen = next(iter(kept.values())).seen
    assert (seen[..., 0] <= seen[..., 1] + 1e-6).all()  # q(x) is at most max q
    assert (seen[..., 2] > 0).all() and (seen[..., 2] <= np.log(4) + 1e-5).all()
    assert not seen[0, 0, 0] == seen[0, 1, 0] == seen[0, 2, 0]


def test_a_race_is_dearer_than_algorithm_1():
    protocol = Protocol("tiny", 1.0, **SIZES)
    told = invariance.measure(pair(), PROMPTS, protocol, {}, decoded=True)
    assert told["match"] < told["race"] < told["beta"]
    low = told["beta"] / (2 - told["beta"])
    assert low < told["race"] and told["price"] == pytest.approx(
        1 - told["race"] / told["beta"]
    )
    assert len(told["points"]) == 3 and "fewer_token" in told


@pytest.mark.parametrize("fault", ["none", "residual_is_p"])
def test_a_fault_is_seen_and_an_exact_run_is_not(fault):
    sizes = SIZES | {"tokens": 1500, "batch": 32}
    protocol = Protocol("tiny", 1.0, **sizes)
    told = monitor.measure(pair(), PROMPTS, protocol, {}, fault=fault)
    assert told["verdict"][0].startswith("survives: of all orders an alarm ends")
    assert (told["delay"] is None) == (fault == "none")
    if fault != "none":
        assert 20 < told["delay"] <= told["delay_most"] < 1500


def test_what_is_unknown_is_refused_by_name():
    with pytest.raises(ValueError, match="no question 'x': choose one of stopping"):
        asked.build("x", *pair(), None)
    with pytest.raises(ValueError, match="no fault 'x': choose one of none"):
        monitor.measure(pair(), PROMPTS, None, {}, fault="x")
