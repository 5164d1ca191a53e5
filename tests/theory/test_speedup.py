"""Speeds are computed from a record alone; gamma and the prediction come from other
texts."""

import json

import numpy as np
import pytest

from specjax.theory import speedup

GAMMAS = [0, 1, 3]
C, V, REST, UNIT = 0.05, (1.0, 1.1, 1.3), 0.2, 2e-3  # over a target call, 2 ms
STEPS = {0: 40.0, 1: 24.0, 3: 16.0}  # of a text of 40 tokens


def step(gamma):
    return UNIT * (V[GAMMAS.index(gamma)] + gamma * C + REST * (gamma > 0))


def random_runs(random, count, rounds):
    ease = np.exp(0.2 * random.normal(size=count))
    steps = [[n if g == 0 else n * x for x in ease] for g, n in STEPS.items()]
    once = [
        np.array(s) * step(gamma) + 1e-3 for gamma, s in zip(GAMMAS, steps, strict=True)
    ]
    times = np.repeat(np.array(once)[..., None], rounds, axis=-1)
    return {"seconds": times, "steps": np.array(steps), "tokens": [[40] * count] * 3}


def row(texts=12, others=6, seed=0):
    """Returns `measured` of walltime on a known machine, with texts of different
    difficulty."""
    random = np.random.default_rng(seed)
    measured, aside = random_runs(random, texts, 3), random_runs(random, others, 1)
    measured["seconds"] *= np.array([1.0, 1.01, 1.5])
    aside |= {"seconds": aside["seconds"][..., 0], "expected_steps": aside["steps"]}
    steps = measured["steps"].sum(1)
    plain = {"gamma": GAMMAS, "c": [None, C, C], "v": list(V), "target_ms": 1e3 * UNIT}
    plain |= {"prefill_ms": [1.0] * 3, "alpha": 0.7, "rounds": 1, "prompts": 99}
    plain |= {"texts": texts, "others": others, "chosen_on": others, "steps": steps}
    plain |= {"tokens_per_call": texts * 40 / steps}
    plain |= {"timed": {"texts": measured, "others": aside}}
    return json.loads(json.dumps(plain, default=lambda array: array.tolist()))


def change_number(name, factor, at=(1, 2), whose="texts"):
    """Returns the row with one number of some texts changed at some gammas."""
    it = row()
    numbers = it["timed"][whose][name]
    for i in at:
        numbers[i] = (factor * np.array(numbers[i])).tolist()
    return it


def test_the_interval_is_students_over_texts():
    """For two texts it is computed by hand: the ratio of means, whose error is linear
    in shares."""
    alone, drafted = np.array([2.0, 4.0]), np.array([1.0, 2.5])
    value, error = speedup.ratio([alone], [drafted])
    assert value == pytest.approx(6 / 3.5)
    share = 2 / 6 - 1 / 3.5
    assert error == pytest.approx(np.sqrt(2 * 2 * share**2))
    low, high = speedup.interval(value, error, 2)
    assert low * high == pytest.approx(value**2)
    assert np.log(high / value) == pytest.approx(12.706 * error, rel=1e-4)
    single = speedup.ratio([alone[:1]], [drafted[:1]])
    assert single == (2.0, None) and speedup.interval(*single, 1) is None


def test_intervals_of_twelve_texts_hold_the_truth_as_often_as_they_say():
    random, held = np.random.default_rng(0), 0
    for _ in range(1000):
        speeds = np.exp(0.3 * random.normal(size=12))
        value, error = speedup.ratio([np.ones(12)], [1 / speeds])
        low, high = speedup.interval(value, error, 12)
        held += low <= np.exp(-(0.3**2) / 2) <= high
    assert 0.93 <= held / 1000 <= 0.97


def test_texts_of_one_prompt_are_one_unit():
    """Texts that repeat those of four prompts tell no more than four texts."""
    once = row(texts=4)
    again = json.loads(json.dumps(once)) | {"texts": 12, "prompts": 4}
    again["timed"]["texts"] = {
        name: [[x for _ in range(3) for x in each] for each in numbers]
        for name, numbers in once["timed"]["texts"].items()
    }
    again["steps"] = [3 * n for n in once["steps"]]
    wanted, found = map(speedup.speedup_from, (once, again))
    np.testing.assert_allclose(found["speedup"], wanted["speedup"])
    np.testing.assert_allclose(found["speedup_ci"], wanted["speedup_ci"])
    alike = speedup.speedup_from(again | {"prompts": 12})["speedup_ci"]
    assert np.ptp(alike[2]) < 0.6 * np.ptp(found["speedup_ci"][2])


def test_speeds_are_ratios_of_medians():
    it = speedup.speedup_from(row())
    times = np.median(row()["timed"]["texts"]["seconds"], axis=-1)
    assert it["speedup"] == pytest.approx(times[0].sum() / times.sum(1))
    for speed, (low, high) in zip(it["speedup"], it["speedup_ci"], strict=True):
        assert low <= speed <= high
    assert it["step_ms"] == pytest.approx([1e3 * step(g) for g in GAMMAS], rel=0.02)
    for name in ("gamma", "speedup", "speedup_ci", "predicted", "exp", "residual"):
        assert it[f"best_{name}"] == {**row(), **it}[name][2]


def test_texts_that_are_shorter_by_chance_change_no_speed_of_one_length():
    """The prefill takes as long as 50 steps, and half of the tokens take half of the
    steps."""
    plain, short, prefill = row(), row(), 50 * UNIT
    for it in (plain, short):
        it["prefill_ms"] = [1e3 * prefill] * 3
        times = np.array(it["timed"]["texts"]["seconds"]) - 1e-3
        if it is short:
            times[2] /= 2
            it["steps"][2] /= 2
            it["timed"]["texts"]["tokens"][2] = [20] * 12
        it["timed"]["texts"]["seconds"] = (times + prefill).tolist()
    spent = np.median(np.array(plain["timed"]["texts"]["seconds"]), -1).sum(1)
    alone, _, drafted = (spent / 12 - prefill) / 40  # of a token
    plain, short = map(speedup.speedup_from, (plain, short))
    assert plain["speedup_same_length"] == pytest.approx(plain["speedup"])
    assert short["speedup"][2] < 0.8 * plain["speedup"][2]
    wanted = (prefill + 30 * alone) / (prefill + 30 * drafted)
    assert short["speedup_same_length"][2] == pytest.approx(wanted)


def test_gamma_is_chosen_on_texts_whose_speed_is_not_told():
    """The measured texts were fastest with gamma 1, the others with 3."""
    it = change_number("seconds", 0.3, at=[1])
    told = speedup.speedup_from(it)
    assert np.argmax(told["speedup"]) == 1 and told["best_gamma"] == 3
    assert told["best_speedup"] == told["speedup"][2]
    # Of texts that are all there are.
    assert speedup.speedup_from(it | {"chosen_on": 0})["best_gamma"] == 1


def test_a_prediction_holds_nothing_of_what_it_predicts():
    plain = speedup.speedup_from(row())
    for name in ("seconds", "tokens", "steps"):
        told = speedup.speedup_from(change_number(name, 1.7))
        assert told["predicted"] == plain["predicted"], name
        assert told["predicted_ci"] == plain["predicted_ci"], name
    moved = speedup.speedup_from(change_number("expected_steps", 1.7, whose="others"))
    assert moved["predicted"][2] < 0.7 * plain["predicted"][2]
    moved = speedup.speedup_from(row() | {"c": [None, 0.1, 0.2]})
    assert moved["predicted"][1:] != plain["predicted"][1:]


def test_the_prediction_is_theorem_3_8_with_v_and_overhead():
    it = speedup.speedup_from(row())
    assert it["overhead"] == pytest.approx([0, REST, REST], abs=1e-9)
    calls = it["expected_tokens_per_call"][2]
    alone, drafted = 40 * UNIT + 1e-3, 40 / calls * step(3) + 1e-3
    assert it["predicted"][2] == pytest.approx(alone / drafted)
    low, high = it["predicted_ci"][2]
    assert low < it["predicted"][2] < high
    assert it["predicted"][0] is None is it["residual"][0]
    assert it["residual"][2] == it["predicted"][2] / it["speedup"][2] - 1


def test_nothing_is_predicted_without_others_or_their_law():
    lawless = row()
    lawless["timed"]["others"]["expected_steps"] = None
    for it in (lawless, row() | {"chosen_on": 0}):
        told = speedup.speedup_from(it)
        assert told["predicted"] == told["predicted_ci"] == [None] * 3
        assert told["best_predicted"] is None and told["best_gamma"] == 3


def test_what_cannot_be_is_doubted():
    it = row()
    assert speedup.doubts(it | speedup.speedup_from(it)) == []
    fast = change_number("seconds", 0.7, at=[2], whose="others")
    (doubt,) = speedup.doubts(fast | speedup.speedup_from(fast))
    assert doubt.startswith("overhead is below 0 at gamma = 3 (-0.")
    few = it | {"chosen_on": 0, "prompts": 12}
    (doubt,) = speedup.doubts(few | speedup.speedup_from(few))
    assert "12 prompts give only 0 texts besides the 12" in doubt
    assert "at least 18 prompts" in doubt
    assert speedup.doubts({"gamma": GAMMAS}) == []
