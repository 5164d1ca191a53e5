"""How a claim is judged: by comparisons that are each larger than their error, or not.

A claim makes one comparison or many. `gap` says how far a comparison is on the claim's
side, in any unit, and `error` is its standard error; a comparison is decided if the gap
exceeds as many errors as 95 % confidence asks for over all comparisons of the claim
together (Bonferroni). A comparison in which a precondition of the claim fails is told
and does not decide.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
OUT_OF_SCOPE = "its precondition does not hold here"
UNDECIDED = "not decided, within errors"
NOT_TESTABLE, NOT_RUN = "not testable here", "not run"
VERDICTS = (REPRODUCED, CONTRADICTED, OUT_OF_SCOPE, UNDECIDED, NOT_TESTABLE, NOT_RUN)

CONFIDENCE = 0.95
NORMAL = NormalDist()


class Case(NamedTuple):
    """One comparison. told: what was compared, with its numbers.

    lacks: the precondition that fails, with the numbers that show it; empty if none
    does. beside: told, but not what the claim is about, such as another batch.
    """

    told: str
    gap: float
    error: float = 0.0
    lacks: str = ""
    beside: bool = False


class Outcome(NamedTuple):
    """`short` is a line, `evidence` the numbers of every comparison."""

    verdict: str
    short: str
    evidence: tuple[str, ...] = ()


def judge(cases: Iterable[Case], needs: str, share: float = 1.0) -> Outcome:
    """The verdict of a claim that holds in `share` of its cases, all by default.

    needs: what to run where there is no case that decides.
    """
    cases = list(cases)
    deciding = [case for case in cases if not case.beside]
    if not deciding:
        return absent(needs)
    inside = [case for case in deciding if not case.lacks]
    errors = critical(len(inside) or len(deciding))
    signs = [sign(case, errors) for case in inside]
    counts = {word: signs.count(value) for value, word in WORDS.items()}
    counts[LACKS] = len(deciding) - len(inside)
    told = (f"{count} {word}" for word, count in counts.items() if count)
    short = f"of {len(deciding)}: {', '.join(told)}"
    ruling = verdict(signs, share, len(deciding))
    return Outcome(ruling, short, evidence(cases, errors))


HOLDS, FAILS, OPEN = 1, -1, 0
WORDS = {HOLDS: "hold", FAILS: "fail", OPEN: "within errors"}
LACKS = "without its precondition"


def verdict(signs: Sequence[int], share: float, count: int) -> str:
    """Of the comparisons whose preconditions hold, out of `count`.

    If those are fewer than half, they can contradict a claim and not bear it out.
    """
    least = share * len(signs)
    if len(signs) - signs.count(FAILS) < least:
        return CONTRADICTED
    if 2 * len(signs) < count:
        return OUT_OF_SCOPE
    return REPRODUCED if signs.count(HOLDS) >= least else UNDECIDED


def sign(case: Case, errors: float) -> int:
    """HOLDS or FAILS beyond so many errors, or OPEN; what has no error is decided."""
    if case.error == 0:
        return HOLDS if case.gap >= 0 else FAILS
    if abs(case.gap) <= errors * case.error:
        return OPEN
    return HOLDS if case.gap > 0 else FAILS


def critical(count: int) -> float:
    """How many standard errors decide one of `count` comparisons, two-sided."""
    return NORMAL.inv_cdf(1 - (1 - CONFIDENCE) / (2 * count))


def evidence(cases: Sequence[Case], errors: float) -> tuple[str, ...]:
    """A line a comparison, those that do not hold marked."""
    marks = {HOLDS: "", FAILS: " (fails)", OPEN: " (within errors)"}
    return tuple(
        f"{case.told} (precondition: {case.lacks})"
        if case.lacks
        else f"{case.told}{marks[sign(case, errors)]}"
        for case in cases
    )


def absent(needs: str) -> Outcome:
    return Outcome(NOT_RUN, needs)


def untestable(why: str, *told: str) -> Outcome:
    return Outcome(NOT_TESTABLE, why, told)


def together(*errors: float) -> float:
    """The error of a sum or a difference of independent numbers."""
    return math.hypot(*errors)


def error_of(ends: Sequence[float]) -> float:
    """The standard error behind a 95 % interval, as of a normal law."""
    low, high = ends
    return (high - low) / (2 * critical(1))


def off(predicted: float, measured: float) -> float:
    """The relative difference of a prediction."""
    return abs(predicted / measured - 1)
