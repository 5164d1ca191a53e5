"""The cost of a step from whole texts, and forecasts that do not contain their answer.

A machine is made up whose steps are known: every promise is kept by its times, and
broken by times or forecasters that are wrong in one way.
"""

import copy

import numpy as np
import pytest

from specjax.bench import inside
from specjax.bench.inside import Timed
from specjax.theory import calibrate, predict

TRUTH = calibrate.Step(c=0.05, v0=0.8, v1=0.2, rest=0.1)  # over T1, which is 1 ms
GAMMAS = list(range(11))
TWO = inside.fitted(GAMMAS)
PIECES, NOISE = 8, 0.01
TEXTS, TOKENS, PREFILL = 4, 96, [3.0, *[5.0] * 10]
COINS = np.random.default_rng(3).random((TEXTS, TOKENS)) ** 0.5  # acceptances
COUNTED = sum(predict.expected_calls(coins, GAMMAS) for coins in COINS)


def step(gamma):
    return TRUTH.at(gamma) if gamma else 1.0


def row(seed=0):
    """`measured` of walltime, the calls as many as expected."""
    noise = 1 + 0.002 * np.random.default_rng(seed).normal(size=len(GAMMAS))
    times = np.array([step(gamma) for gamma in GAMMAS]) * COUNTED * noise
    seconds = (times + TEXTS * np.array(PREFILL)) / 1e3
    return {
        "gamma": GAMMAS,
        "texts": TEXTS,
        "batch": 1,
        "seconds": seconds.tolist(),
        "prefill_ms": PREFILL,
        "steps": COUNTED.tolist(),
        "predicted_steps": COUNTED.tolist(),
        "speedup": (seconds[0] / seconds).tolist(),
    }


def keeps_its_promise(row):
    """Within 2 % at every gamma that was not fitted."""
    off = [x for x in inside.speeds(row)["residual"] if x is not None]
    return len(off) == len(GAMMAS) - 3 and max(map(abs, off)) < 0.02


def test_other_gammas_are_forecast_and_the_fitted_are_not_counted():
    result = inside.speeds(row())
    assert result["fitted"] == list(TWO) == [2, 9]
    absent = [g for g, x in zip(GAMMAS, result["predicted"], strict=True) if x is None]
    assert absent == [0, *TWO]
    assert keeps_its_promise(row())


def test_the_parts_forecast_as_the_line_through_whole_steps_does():
    plain = row()
    whole = np.array(plain["seconds"]) * 1e3 - TEXTS * np.array(PREFILL)
    whole /= plain["steps"]
    own = [TRUTH.v(gamma) for gamma in TWO]
    two = calibrate.parts(TWO, whole[list(TWO)] / whole[0], own)
    parted = inside.speeds(plain | {"inside": two._asdict()})["predicted"]
    for speed, other in zip(parted, inside.speeds(plain)["predicted"], strict=True):
        assert speed is other is None or speed == pytest.approx(other)


@pytest.mark.parametrize("times", [1.5, 1 / 1.5])
def test_a_forecast_by_a_wrong_v_fails(times):
    right = row() | {"inside": TRUTH._asdict()}
    assert keeps_its_promise(right)
    wrong = TRUTH._replace(v0=times * TRUTH.v0, v1=times * TRUTH.v1)
    assert not keeps_its_promise(right | {"inside": wrong._asdict()})


def test_a_bent_step_is_seen():
    bent = row()
    bent["speedup"][5] /= 1.05
    assert not keeps_its_promise(bent)


def tautology(row):
    """What a forecast must not be: each gamma's own steps are in it."""
    before = np.array(row["prefill_ms"]) * row["texts"]
    times = (1e3 * np.array(row["seconds"]) - before) / row["steps"]
    whole = before + times * row["predicted_steps"]
    return {"predicted": (1e3 * row["seconds"][0] / whole).tolist()}


def moves(forecast):
    """Which forecasts know what was measured at their own gamma."""
    before, moved = forecast(row())["predicted"], []
    for at, gamma in enumerate(GAMMAS):
        other = copy.deepcopy(row())
        for name in ("seconds", "steps", "speedup", "prefill_ms"):
            other[name][at] *= 1.7 if name != "steps" else 0.9
        if forecast(other)["predicted"][at] != before[at]:
            moved.append(gamma)
    return moved


def test_no_forecast_contains_what_it_forecasts():
    assert moves(inside.speeds) == []
    assert set(moves(tautology)) >= set(GAMMAS) - {0}


def test_what_tells_nothing_is_not_forecast():
    lawless = row() | {"predicted_steps": [None] * len(GAMMAS)}
    assert inside.speeds(lawless)["predicted"] == [None] * len(GAMMAS)
    short = {key: x[:2] if isinstance(x, list) else x for key, x in row().items()}
    assert inside.speeds(short) == {
        "fitted": [],
        "predicted": [None, None],
        "residual": [None, None],
    }
    noisy = row()
    noisy["seconds"][9] = 0.0  # a clock that saw no step: the line falls below 0
    result = inside.speeds(noisy)
    assert result["predicted"][10] is None is result["residual"][10]
    assert result["predicted"][1] > 0


def timed(gammas, time, random):
    """Pieces of a drifting machine: its speed is the same for all texts of a piece."""
    steps = np.tile(random.integers(50, 90, len(gammas)), (PIECES, 1)).astype(float)
    noise = 1 + NOISE * random.normal(size=steps.shape)
    return Timed(steps * [time(gamma) for gamma in gammas] * noise, steps)


def fit(seed, wrong=lambda gamma: 1.0):
    """wrong: by what the target's own steps seem longer than they are."""
    random = np.random.default_rng(seed)
    whole = timed(GAMMAS, step, random)
    alone = timed((0, *TWO), lambda gamma: TRUTH.v(gamma) * wrong(gamma), random)
    drift = 1 + 0.3 * np.sin(np.arange(PIECES))[:, None]
    result = inside.fit(
        GAMMAS, whole._replace(ms=whole.ms * drift), alone._replace(ms=alone.ms * drift)
    )
    return result | {"gamma": GAMMAS}


def test_the_parts_are_right_within_their_errors():
    result = [fit(seed)["inside"] for seed in range(30)]
    for name in inside.PARTS:
        off = np.array([each[name] - getattr(TRUTH, name) for each in result])
        error = np.mean([each[f"{name}_se"] for each in result])
        assert 0.6 < off.std() / error < 1.6
        assert abs(off.mean()) < 3 * off.std() / np.sqrt(len(off))


def test_overhead_is_0_at_gamma_0_and_the_rest_elsewhere():
    result = [fit(seed) for seed in range(30)]
    overhead = np.array([each["overhead"] for each in result])
    error = np.array([each["overhead_se"] for each in result])
    assert np.mean(np.abs(overhead[:, 0]) < 2 * error[:, 0]) > 0.8
    assert np.all(error[:, 0] < 0.02) and np.any(overhead[:, 0] != 0)
    np.testing.assert_allclose(overhead[:, 1:].mean(0), TRUTH.rest, atol=0.02)
    assert sum(map(len, map(inside.doubts, result))) <= 4  # of 60, at two errors


def test_steps_of_the_target_that_seem_too_long_are_doubted():
    """v 1.5 times too large: overall, and in calls of more than one token alone."""
    both, drafting = fit(0, lambda gamma: 1.5), fit(0, lambda gamma: 1 + gamma / 4)
    assert both["overhead"][0] == pytest.approx(-0.5, abs=0.05)
    assert "overhead at gamma = 0 is -0." in inside.doubts(both)[0]
    (doubt,) = inside.doubts(fit(0, lambda gamma: 1.5 if gamma else 1.0))
    assert "c or v is too large" in doubt
    assert drafting["inside"]["c"] < 0  # a v that grows too fast takes c's share
    assert inside.doubts(fit(0)) == []


def test_what_was_timed_apart_is_compared():
    c = [None, *[0.06] * 10]
    result = fit(0) | {"c": c, "v": [1.1 * TRUTH.v(gamma) for gamma in GAMMAS]}
    for (gamma, c, v), two in zip(inside.apart(result), TWO, strict=True):
        assert gamma == two
        assert c == pytest.approx(0.06 / result["inside"]["c"] - 1)
        assert v == pytest.approx(0.1, abs=0.03)
    result["inside"]["c"] = -0.01
    assert inside.apart(result)[0][1] is None


def test_one_gamma_gives_no_parts_and_one_piece_no_error():
    steps = np.full((1, 2), 10.0)
    whole = Timed(steps * [1.0, 1.5], steps)
    result = inside.fit([0, 3], whole, Timed(steps[:, :1] * 1.1, steps[:, :1]))
    assert result["fitted"] == [] and result["inside"] is None
    assert result["overhead"] == [pytest.approx(-0.1), None]
    assert result["overhead_se"] == [None, None]
    (doubt,) = inside.doubts(result | {"gamma": [0, 3]})
    assert "below 0 and its error is not known" in doubt


def test_a_clock_that_saw_no_step_gives_no_parts():
    steps = np.full((2, 3), 10.0)
    result = inside.fit([0, 1, 2], Timed(-steps, steps), Timed(steps, steps))
    assert result["inside"] is None and result["overhead"] == [None] * 3
    assert inside.doubts(result | {"gamma": [0, 1, 2]}) == []


def test_an_overhead_below_0_by_more_than_its_error_is_doubted():
    result = fit(0)
    result["overhead"][5], result["overhead_se"][5] = -1.23, 0.2
    result["overhead"][6], result["overhead_se"][6] = -1.23, 0.9
    (doubt,) = inside.doubts(result)
    assert "overhead is below 0 at gamma = 5 (-1.230 ± 0.200):" in doubt
