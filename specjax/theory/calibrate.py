"""What a step costs, from whole steps at two gammas: c, v and the rest inside a step.

A step that drafts gamma > 0 tokens takes

    gamma c + v0 + v1 (gamma + 1) + rest:

gamma drafted tokens of c each (Leviathan et al., 2023, https://arxiv.org/abs/2211.17192,
Definition 3.7), a target call on gamma + 1 tokens a row, whose time v is taken to be a
line in them, and what drafting adds to every step besides. At gamma = 0 a step is the
target call alone.

Whole steps at two gammas are two numbers: an intercept v0 + v1 + rest and a slope
c + v1 (`line`). That is all that the time of a step at a third gamma asks for, and it
tells neither c from v1 nor v0 from the rest. Two more numbers do: the target's own
steps at the same gammas, in which it scores gamma tokens that cost nothing to draft and
keeps none of them (`drafters.nothing`). They take v0 + v1 (gamma + 1), sampling and the
loop included, and so all four follow (`parts`).

A prediction that is worth its name is of a gamma that was not fitted. Where v bends, it
is off, and says so there. Everything here is float64 numpy; times are of any one unit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Line(NamedTuple):
    """intercept, slope: of the time of a step in gamma >= 1; what they consist of is
    not known."""

    intercept: float
    slope: float

    def at(self, gamma: int) -> float:
        """The time of a step that drafts `gamma` tokens."""
        return self.intercept + self.slope * gamma


class Step(NamedTuple):
    """What a step consists of.

    c: one drafted token. v0, v1: of a target call on n tokens a row, v0 + v1 n. rest:
    of a step, besides.
    """

    c: float
    v0: float
    v1: float
    rest: float

    def v(self, gamma: int) -> float:
        """The time of a target call on gamma + 1 tokens a row."""
        return self.v0 + self.v1 * (gamma + 1)

    def at(self, gamma: int) -> float:
        """The time of a step that drafts `gamma` >= 1 tokens: Theorem 3.8's gamma c + 1
        with v in the place of 1, and the rest."""
        return gamma * self.c + self.v(gamma) + self.rest


def chosen(gammas: Sequence[int]) -> tuple[int, int] | None:
    """The two gammas to fit, chosen before anything is timed; None if fewer draft.

    They are those nearest the Chebyshev nodes of the range of `gammas` > 0: of lines
    through a curve that bends one way, the one there has the least largest error.

    Raises ValueError unless gammas ascend.
    """
    drafting = np.array([gamma for gamma in gammas if gamma > 0], np.float64)
    if np.any(np.diff(gammas) <= 0):
        raise ValueError(f"gammas must ascend; got {tuple(gammas)}")
    if drafting.size < 2:
        return None
    middle, half = drafting[[0, -1]].mean(), np.ptp(drafting) / 2
    nodes = middle + half * np.array([-1, 1]) / np.sqrt(2)
    low, high = (drafting[np.argmin(np.abs(drafting - node))] for node in nodes)
    return int(low), int(high)


def line(gammas: Sequence[int], steps: Sequence[float]) -> Line:
    """Through the times of whole steps at two gammas.

    Raises ValueError unless they are two different gammas >= 1 and two finite times.
    """
    low, high = _two(gammas)
    first, second = _times("steps", steps)
    slope = (second - first) / (high - low)
    return Line(first - slope * low, slope)


def parts(
    gammas: Sequence[int], steps: Sequence[float], alone: Sequence[float]
) -> Step:
    """c, v and the rest, from whole steps at two gammas and the target's own there.

    steps: times of whole steps. alone: of steps in which the target reads as many
    tokens and nothing is drafted. The step that it returns takes `steps` at both
    gammas. Noise may leave a part below 0.

    Raises ValueError as `line`.
    """
    target = line(gammas, _times("alone", alone))
    whole = line(gammas, steps)
    # v is a line in gamma + 1: at gamma = -1 it is v0.
    return Step(
        c=whole.slope - target.slope,
        v0=target.intercept - target.slope,
        v1=target.slope,
        rest=whole.intercept - target.intercept,
    )


def _two(gammas: Sequence[int]) -> tuple[int, int]:
    if len(gammas) != 2 or not 1 <= gammas[0] < gammas[1]:
        raise ValueError(
            f"gammas must be two that ascend from at least 1, not {tuple(gammas)}: a"
            " line needs two, and at gamma = 0 nothing is drafted"
        )
    return tuple(gammas)


def _times(name: str, times: Sequence[float]) -> tuple[float, float]:
    if len(times) != 2 or not np.all(np.isfinite(times)):
        raise ValueError(f"{name} must be two finite times, one a gamma; got {times}")
    first, second = map(float, times)
    return first, second
