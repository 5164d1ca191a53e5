"""c, v and the rest of a step, recovered from whole steps at two gammas."""

import numpy as np
import pytest

from specjax.theory import calibrate
from specjax.theory.calibrate import Step

TRUTH = Step(c=0.05, v0=0.8, v1=0.2, rest=0.1)  # v is 1 on one token


def times(gammas):
    """Whole steps, and the steps of the target alone, by hand."""
    whole = [gamma * 0.05 + 0.8 + 0.2 * (gamma + 1) + 0.1 for gamma in gammas]
    return whole, [0.8 + 0.2 * (gamma + 1) for gamma in gammas]


@pytest.mark.parametrize("gammas", [(1, 2), (2, 9), (1, 10)])
def test_what_a_step_consists_of_is_recovered(gammas):
    step = calibrate.parts(gammas, *times(gammas))
    assert step == pytest.approx(TRUTH)
    for gamma in range(1, 20):
        (whole,), (own,) = times([gamma])
        assert step.at(gamma) == pytest.approx(whole)
        assert step.v(gamma) == pytest.approx(own)
    assert step.v(0) == pytest.approx(1)


def test_whole_steps_alone_give_a_line_and_no_parts():
    whole, _ = times((2, 9))
    line = calibrate.line((2, 9), whole)
    assert line.slope == pytest.approx(TRUTH.c + TRUTH.v1)
    assert line.intercept == pytest.approx(TRUTH.v0 + TRUTH.v1 + TRUTH.rest)
    # Other parts, the same whole steps: nothing in them tells which.
    other = Step(c=0.15, v0=0.7, v1=0.1, rest=0.3)
    for gamma in range(1, 20):
        assert line.at(gamma) == pytest.approx(TRUTH.at(gamma))
        assert line.at(gamma) == pytest.approx(other.at(gamma))


@pytest.mark.parametrize("part", Step._fields)
def test_every_part_counts(part):
    """With one part 1.5 times too large, no step of the range has the right time."""
    wrong = TRUTH._replace(**{part: 1.5 * getattr(TRUTH, part)})
    off = [wrong.at(gamma) / TRUTH.at(gamma) - 1 for gamma in range(1, 11)]
    assert min(off) > 0.01 and max(off) < 0.5


@pytest.mark.parametrize(
    ("gammas", "two"),
    [
        (range(11), (2, 9)),
        ((0, 1, 2, 3, 5, 7), (2, 7)),
        ((0, 1, 2, 3, 5, 8), (2, 8)),
        ((1, 3, 5, 7, 10), (3, 10)),
        ((0, 1, 2), (1, 2)),
        ((0, 4, 5), (4, 5)),
        ((0, 3), None),
        ((0,), None),
    ],
)
def test_the_two_gammas_are_chosen_by_the_range_alone(gammas, two):
    assert calibrate.chosen(tuple(gammas)) == two


def test_a_bent_step_is_missed_least_by_the_chosen_two():
    gammas = np.arange(1, 11)
    bent = 1 + 0.6 * np.sqrt(gammas)

    def worst(low, high):
        line = calibrate.line((low, high), (bent[low - 1], bent[high - 1]))
        return np.abs([line.at(gamma) for gamma in gammas] - bent).max()

    assert worst(*calibrate.chosen(gammas)) < 0.75 * worst(1, 10)


def test_what_gives_no_line_is_refused():
    for gammas in ((0, 3), (3, 3), (3, 1), (1, 2, 3)):
        with pytest.raises(ValueError, match="gammas must be two that ascend"):
            calibrate.line(gammas, (1.0, 2.0))
    for steps in ((1.0,), (1.0, np.nan), (1.0, np.inf)):
        with pytest.raises(ValueError, match="steps must be two finite times"):
            calibrate.line((1, 2), steps)
    with pytest.raises(ValueError, match="alone must be two finite times"):
        calibrate.parts((1, 2), (1.0, 2.0), (np.nan, 1.0))
    with pytest.raises(ValueError, match="gammas must ascend"):
        calibrate.chosen((0, 3, 1))
