"""Every claim of claims.json, and how one is judged.

A claim makes comparisons of an estimate with a bound, or of two estimates, one for each
subject that the records have. `gap` says how far it is on the claim's side, in any
unit, and `error` is its standard error; a comparison is decided if the gap exceeds as
many errors as 95 % confidence asks for over all comparisons of the claim together
(Bonferroni). One in which a precondition of the claim fails is told and does not
decide; where that works against the claim, and the claim comes out all the same, it
counts, with an "although".
"""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.records.table import Records
from experiments.report.claims import quantities, subjects
from experiments.report.claims.quantities import Number, critical, number_of

STATED = Path(__file__).with_name("claims.json")
REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
OUT_OF_SCOPE = "its precondition does not hold here"
UNDECIDED = "not decided, within errors"
NOT_TESTABLE, NOT_RUN = "not testable here", "not run"
VERDICTS = (REPRODUCED, CONTRADICTED, OUT_OF_SCOPE, UNDECIDED, NOT_TESTABLE, NOT_RUN)
HOLDS, FAILS, OPEN = 1, -1, 0
WORDS = {HOLDS: "hold", FAILS: "fail", OPEN: "within errors"}
LACKS = "without its precondition"


class Case(NamedTuple):
    """One comparison. told: what was compared, with its numbers. lacks: the
    precondition that fails; empty if none does. beside: told, and does not decide."""

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


class Claim(NamedTuple):
    """`where` and `statement` are the paper's; `outcome` is ours."""

    key: str
    paper: str
    name: str
    where: str
    statement: str
    outcome: Outcome


@cache
def stated() -> dict[str, dict[str, dict]]:
    """By paper and key: the words of each claim, and what it compares."""
    return json.loads(STATED.read_text("utf-8"))


def claims(records: Records) -> list[Claim]:
    """Every claim of claims.json, judged."""
    return [
        Claim(key, paper, it["name"], it["where"], it["statement"], judged(it, records))
        for paper, several in stated().items()
        for key, it in several.items()
    ]


def judged(claim: dict, records: Records) -> Outcome:
    """The outcome of one claim, by what it says that is compared, or why nothing is."""
    if why := claim.get("untestable"):
        ours = getattr(quantities, claim["ours"])(records) if "ours" in claim else ""
        return Outcome(NOT_TESTABLE, f"{why}; ours: {ours}" if ours else why)
    cases = [case for it in claim["compare"] for case in compared(it, records)]
    return judge(cases, claim["needs"], claim.get("share", 1.0))


def compared(it: dict, records: Records) -> Iterator[Case]:
    """A comparison for each subject, or for the worst of each group of them. of: the
    subjects, see `subjects.of`. estimate, and `above`, `below`, `within` (a distance of
    `from`) or `near` (relative to `from`): numbers, see `number_of`; by: by how much at
    least. told: how both are written. lacks: a precondition; although: it works against
    the claim."""
    several = subjects.of(it["of"], records)
    if "worst" not in it:
        yield from (case_of(it, subject) for subject in several)
        return
    for _, group in itertools.groupby(several, key=lambda subject: subject["group"]):
        yield min((case_of(it, x) for x in group), key=lambda case: case.gap)


def case_of(it: dict, subject: dict) -> Case:
    (side,) = {"above", "below", "within", "near"} & it.keys()
    bound = it["from"] if side in ("within", "near") else it[side]
    x, y = number_of(subject, it["estimate"]), number_of(subject, bound)
    gap, error = distance(side, it[side], x, y)
    lacks = getattr(quantities, it["lacks"])(subject) if "lacks" in it else ""
    words = it.get("told", "{estimate} against {bound}")
    told = f"{subject['label']}: {words.format(estimate=x.shown, bound=y.shown)}"
    gap -= it.get("by", 0)
    if lacks and gap > 0 and "although" in it:
        told, lacks = f"{told}, although {lacks}", ""
    return Case(told, gap, error, lacks, subject.get("beside", False))


def distance(side: str, most: float, x: Number, y: Number) -> tuple[float, float]:
    """How far two numbers are on the claim's side, and the error of that."""
    error = math.hypot(x.error, y.error)
    if side == "above":
        return x.value - y.value, error
    if side == "below":
        return y.value - x.value, error
    if side == "within":
        return most - abs(x.value - y.value), error
    ratio = x.value / y.value
    relative = math.hypot(x.error / y.value, ratio * y.error / y.value)
    return most - abs(ratio - 1), relative


def judge(cases: Sequence[Case], needs: str, share: float = 1.0) -> Outcome:
    """The verdict of a claim that holds in `share` of its cases, all by default. needs:
    what to run where there is no case that decides."""
    decisive = [case for case in cases if not case.beside]
    if not decisive:
        return Outcome(NOT_RUN, needs)
    inside = [case for case in decisive if not case.lacks]
    errors = critical(len(inside) or len(decisive))
    signs = [sign(case, errors) for case in inside]
    counts = {word: signs.count(value) for value, word in WORDS.items()}
    counts[LACKS] = len(decisive) - len(inside)
    told = (f"{count} {word}" for word, count in counts.items() if count)
    short = f"of {len(decisive)}: {', '.join(told)}"
    ruling = verdict(signs, share, len(decisive))
    return Outcome(ruling, short, tuple(evidence(case, errors) for case in cases))


def verdict(signs: Sequence[int], share: float, count: int) -> str:
    """Of the comparisons whose preconditions hold, out of `count`. If those are fewer
    than half, they can contradict a claim and not bear it out."""
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


def evidence(case: Case, errors: float) -> str:
    """A line a comparison, those that do not hold marked."""
    if case.lacks:
        return f"{case.told} (precondition: {case.lacks})"
    marks = {HOLDS: "", FAILS: " (fails)", OPEN: " (within errors)"}
    return f"{case.told}{marks[sign(case, errors)]}"
