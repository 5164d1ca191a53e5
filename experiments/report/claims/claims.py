"""The claims in claims.json, and how each is judged.

A claim makes comparisons of an estimate with a bound, or of two estimates, one for each
subject that the records have. `gap` is the distance by which a comparison is on the
claim's side, in any unit, and `error` its standard error. A comparison is decided if
the gap exceeds as many errors as 95 % confidence requires for all comparisons of the
claim together (Bonferroni). A comparison in which a precondition of the claim fails is
shown and does not decide; if that failure works against the claim, and the comparison
supports it all the same, it counts, with an "although".
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
from experiments.report.claims.quantities import Number, critical_errors, find_number

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
    """A comparison, on which a claim is judged.

    Attributes:
        text: the comparison in words, with its numbers.
        lacks: the precondition that fails; empty if none does.
        beside: whether it is shown only, and does not decide.
    """

    text: str
    gap: float
    error: float = 0.0
    lacks: str = ""
    beside: bool = False


class Outcome(NamedTuple):
    """The verdict on a claim: `short` is one line, `evidence` has the numbers of every
    comparison.
    """

    verdict: str
    short: str
    evidence: tuple[str, ...] = ()


class Claim(NamedTuple):
    """A claim of a paper: `where` and `statement` are taken from the paper, `outcome`
    is ours.
    """

    key: str
    paper: str
    name: str
    where: str
    statement: str
    outcome: Outcome


@cache
def read_claims() -> dict[str, dict[str, dict]]:
    """Returns the text and the comparisons of each claim, by paper and key."""
    return json.loads(STATED.read_text("utf-8"))


def claims(records: Records) -> list[Claim]:
    """Returns every claim of claims.json with its outcome."""
    return [
        Claim(
            key,
            paper,
            it["name"],
            it["where"],
            it["statement"],
            judge_claim(it, records),
        )
        for paper, several in read_claims().items()
        for key, it in several.items()
    ]


def judge_claim(claim: dict, records: Records) -> Outcome:
    """Returns the outcome of one claim from its comparisons, or the reason why nothing
    can be compared.
    """
    if why := claim.get("untestable"):
        ours = getattr(quantities, claim["ours"])(records) if "ours" in claim else ""
        return Outcome(NOT_TESTABLE, f"{why}; ours: {ours}" if ours else why)
    cases = [case for it in claim["compare"] for case in compare_subjects(it, records)]
    return judge(cases, claim["needs"], claim.get("share", 1.0))


def compare_subjects(it: dict, records: Records) -> Iterator[Case]:
    """Yields a comparison for each subject, or for the worst subject of each group.

    Args:
        it: `of` are the subjects, see `subjects.find`; `estimate` and one of `above`,
            `below`, `within` (a distance of `from`) and `near` (relative to `from`) are
            numbers, see `find_number`; `by` is the least distance; `format` is how both
            are written; `lacks` is a precondition; `although` says that its failure
            works against the claim.
    """
    several = subjects.find(it["of"], records)
    if "worst" not in it:
        yield from (make_case(it, subject) for subject in several)
        return
    for _, group in itertools.groupby(several, key=lambda subject: subject["group"]):
        yield min((make_case(it, x) for x in group), key=lambda case: case.gap)


def make_case(it: dict, subject: dict) -> Case:
    """Returns the comparison of one subject."""
    (side,) = {"above", "below", "within", "near"} & it.keys()
    bound = it["from"] if side in ("within", "near") else it[side]
    x, y = find_number(subject, it["estimate"]), find_number(subject, bound)
    gap, error = distance(side, it[side], x, y)
    lacks = getattr(quantities, it["lacks"])(subject) if "lacks" in it else ""
    words = it.get("format", "{estimate} against {bound}")
    text = f"{subject['label']}: {words.format(estimate=x.shown, bound=y.shown)}"
    gap -= it.get("by", 0)
    if lacks and gap > 0 and "although" in it:
        text, lacks = f"{text}, although {lacks}", ""
    return Case(text, gap, error, lacks, subject.get("beside", False))


def distance(side: str, most: float, x: Number, y: Number) -> tuple[float, float]:
    """Returns the distance between two numbers, positive on the side that the claim
    states, and the error of that distance.
    """
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
    """Returns the verdict on a claim that must hold in `share` of its cases, by default
    in all.

    Args:
        needs: what to run if there is no case that decides.
    """
    decisive = [case for case in cases if not case.beside]
    if not decisive:
        return Outcome(NOT_RUN, needs)
    inside = [case for case in decisive if not case.lacks]
    errors = critical_errors(len(inside) or len(decisive))
    signs = [sign(case, errors) for case in inside]
    counts = {word: signs.count(value) for value, word in WORDS.items()}
    counts[LACKS] = len(decisive) - len(inside)
    parts = (f"{count} {word}" for word, count in counts.items() if count)
    short = f"of {len(decisive)}: {', '.join(parts)}"
    ruling = verdict(signs, share=share, count=len(decisive))
    return Outcome(ruling, short, tuple(evidence(case, errors) for case in cases))


def verdict(signs: Sequence[int], *, share: float, count: int) -> str:
    """Returns the verdict on the comparisons whose preconditions hold, out of `count`
    comparisons.

    If those are fewer than half, they can contradict a claim but not confirm it.
    """
    least = share * len(signs)
    if len(signs) - signs.count(FAILS) < least:
        return CONTRADICTED
    if 2 * len(signs) < count:
        return OUT_OF_SCOPE
    return REPRODUCED if signs.count(HOLDS) >= least else UNDECIDED


def sign(case: Case, errors: float) -> int:
    """Returns HOLDS or FAILS for a gap beyond `errors` standard errors, else OPEN; a
    gap without an error is decided.
    """
    if case.error == 0:
        return HOLDS if case.gap >= 0 else FAILS
    if abs(case.gap) <= errors * case.error:
        return OPEN
    return HOLDS if case.gap > 0 else FAILS


def evidence(case: Case, errors: float) -> str:
    """Returns one line on a comparison; a comparison that does not hold is marked."""
    if case.lacks:
        return f"{case.text} (precondition: {case.lacks})"
    marks = {HOLDS: "", FAILS: " (fails)", OPEN: " (within errors)"}
    return f"{case.text}{marks[sign(case, errors)]}"
