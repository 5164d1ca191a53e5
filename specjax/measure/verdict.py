"""What a measured pair comes to, in words: faster or not, the same text or not, why.

The page of a report, the terminal and `--json` have it from here.
"""

from specjax.drafts.source import CERTAIN, REDUCED, SAMPLED, TABLE
from specjax.theory import speedup
from specjax.verifiers import guarantees

NOISY = 0.25  # of a speed: the width of an interval that says little
COSTS = {
    "draft": "drafting (gamma c)",
    "score": "the target's call on more tokens (v)",
    "rest": "what is neither model (overhead)",
}
DRAFTED = {
    SAMPLED: "the draft samples from its law",
    TABLE: "the draft samples from a table",
    REDUCED: "the draft samples from its law of some ids",
    CERTAIN: "the draft is deterministic",
}


def summary(row: dict) -> dict:
    """All of it, as `--json` has it beside a record. costs_most: a key of COSTS."""
    said = {"verdict": verdict(row), "costs_most": dearest(row)}
    return said | {"warnings": warnings(row)}


def verdict(row: dict) -> str:
    """A line on a row of `measure.walltime`, such as "gamma 3: 1.80x [1.60, 2.00];
    same distribution; drafting (gamma c) costs most"."""
    speed = f"{row['best_speedup']:.2f}x{ends(row['best_speedup_ci'])}"
    parts = [f"gamma {row['best_gamma']}: {speed}, {faster(row)}", same(row)]
    return "; ".join([*parts, f"{COSTS[dearest(row)]} costs most"])


def ends(interval: list[float] | None) -> str:
    return "" if interval is None else " [{:.2f}, {:.2f}]".format(*interval)


def faster(row: dict) -> str:
    """What the interval of the best speed says."""
    if row["best_speedup_ci"] is None:
        return "of a single text, so without an interval"
    low, high = row["best_speedup_ci"]
    if low > 1:
        return "faster than the target alone"
    slower = "slower than the target alone: decode without a draft"
    return slower if high < 1 else "no difference was seen"


def same(row: dict) -> str:
    """What is promised of the text, and of greedy ones what was seen."""
    promise = row["exactness"]
    exact, known = promise in guarantees.EXACT, not guarantees.is_unknown(promise)
    if row["temperature"] == 0:
        found = f"greedy texts {row['same_greedy_texts']} of {row['texts']} identical"
        others = "by a rule that may change them" if known else promise
        return found if exact else f"{found}, {others}"
    other = f"another distribution ({promise})" if known else promise
    return "same distribution" if exact else other


def law(row: dict) -> str:
    """What is promised of the output, and how its drafts come about."""
    promise = row["exactness"]
    exact = {
        "exact law": "same distribution as the target alone (exact)",
        "pathwise": "same text as the target alone, for the same seed (exact)",
    }
    unknown = guarantees.is_unknown(promise)
    other = (
        promise if unknown else f"another distribution than the target's ({promise})"
    )
    promised = exact.get(promise, other)
    kind = CERTAIN if row["temperature"] == 0 else row["draft_regime"]
    return f"{promised}; {DRAFTED.get(kind, kind)}"


def dearest(row: dict) -> str:
    """Which of COSTS the best gamma pays most for; a call alone costs 1, too."""
    spent = costs(row, row["gamma"].index(row["best_gamma"]))
    extra = {**spent, "score": spent["score"] - 1}
    return max(extra, key=extra.get)


def costs(row: dict, at: int) -> dict[str, float]:
    """A step of the gamma at this index, in calls of the target on one token: drafting,
    the target's call, the rest; Theorem 3.8's denominator with v and what it lacks."""
    gamma, c = row["gamma"][at], row["c"][at] or 0.0
    rest = row["overhead"][at] or 0.0
    return {"draft": gamma * c, "score": row["v"][at], "rest": rest}


def warnings(row: dict) -> list[str]:
    """What speaks against these numbers, a line each."""
    return [*speedup.doubts(row), *filter(None, [noisy(row)])]


def noisy(row: dict) -> str | None:
    """A warning where the machine's times spread too much to tell, or None."""
    low, high = row["best_speedup_ci"] or (0.0, 0.0)
    wide = (high - low) / row["best_speedup"]
    if wide <= NOISY:
        return None
    return (
        f"the interval of the best speed is {wide:.0%} of it wide: measure again on an"
        " idle machine, with --thorough"
    )
