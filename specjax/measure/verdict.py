"""The verdict on a measured pair, in words: whether it is faster, whether the text is
the same, and why.

A report's page, the terminal and `--json` use it.
"""

from specjax.drafts.source import CERTAIN, REDUCED_VOCAB, SAMPLED, TABLE
from specjax.theory import speedup
from specjax.verifiers import guarantees

NOISY = 0.25  # of a speed: the width of an interval that says little
FLOOR = 0.15  # of alpha: a head with a wrong layer was seen at 0.11, right at 0.48
COSTS = {
    "draft": "drafting (gamma c)",
    "score": "the target's call on more tokens (v)",
    "rest": "what is neither model (overhead)",
}
DRAFTED = {
    SAMPLED: "the draft samples from its law",
    TABLE: "the draft samples from a table",
    REDUCED_VOCAB: "the draft samples from its law of some ids",
    CERTAIN: "the draft is deterministic",
}


def summary(row: dict) -> dict:
    """Returns the verdict, the largest cost and the warnings, for `--json`.

    costs_most: a key of COSTS.
    """
    said = {"verdict": verdict(row), "costs_most": largest_cost(row)}
    return said | {"warnings": warnings(row)}


def verdict(row: dict) -> str:
    """Returns one line about a row of `measure.walltime`.

    For example "gamma 3: 1.80x [1.60, 2.00]; same distribution; drafting (gamma c)
    costs most".
    """
    speed = f"{row['best_speedup']:.2f}x{format_interval(row['best_speedup_ci'])}"
    parts = [
        f"gamma {row['best_gamma']}: {speed}, {speed_verdict(row)}",
        text_guarantee(row),
    ]
    return "; ".join([*parts, f"{COSTS[largest_cost(row)]} costs most"])


def format_interval(interval: list[float] | None) -> str:
    """Returns an interval in brackets; "" if there is none."""
    return "" if interval is None else " [{:.2f}, {:.2f}]".format(*interval)


def speed_verdict(row: dict) -> str:
    """Returns what the interval of the best speed shows, in words."""
    if row["best_speedup_ci"] is None:
        return "of a single text, so without an interval"
    low, high = row["best_speedup_ci"]
    if low > 1:
        return "faster than the target alone"
    slower = "slower than the target alone: decode without a draft"
    return slower if high < 1 else "no difference was seen"


def text_guarantee(row: dict) -> str:
    """Returns in words what is guaranteed of the text, and what greedy texts have
    shown."""
    promise = row["exactness"]
    exact, known = promise in guarantees.EXACT, not guarantees.is_unknown(promise)
    if row["temperature"] == 0:
        found = f"greedy texts {row['same_greedy_texts']} of {row['texts']} identical"
        others = "by a rule that may change them" if known else promise
        return found if exact else f"{found}, {others}"
    other = f"another distribution ({promise})" if known else promise
    return "same distribution" if exact else other


def law_guarantee(row: dict) -> str:
    """Returns in words what is guaranteed of the output, and how its drafts are
    made."""
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


def largest_cost(row: dict) -> str:
    """Returns the key in COSTS with the largest cost at the best gamma.

    A call on one token costs 1 in any case, and is not counted.
    """
    spent = costs(row, row["gamma"].index(row["best_gamma"]))
    extra = {**spent, "score": spent["score"] - 1}
    return max(extra, key=lambda name: extra[name])


def costs(row: dict, at: int) -> dict[str, float]:
    """Returns the cost of each part of a step, at the gamma with this index.

    They are drafting, the target's call and the rest, in calls of the target on one
    token: the denominator of Theorem 3.8 with v and the overhead.
    """
    gamma, c = row["gamma"][at], row["c"][at] or 0.0
    rest = row["overhead"][at] or 0.0
    return {"draft": gamma * c, "score": row["v"][at], "rest": rest}


def warnings(row: dict) -> list[str]:
    """Returns the reasons to doubt the numbers, one line each."""
    own = noise_warning(row), alpha_warning(row)
    return [*speedup.doubts(row), *filter(None, own)]


def noise_warning(row: dict) -> str | None:
    """Returns a warning if the times spread too much for a conclusion, else None."""
    low, high = row["best_speedup_ci"] or (0.0, 0.0)
    wide = (high - low) / row["best_speedup"]
    if wide <= NOISY:
        return None
    return (
        f"the interval of the best speed is {wide:.0%} of it wide: measure again on an"
        " idle machine, with --thorough"
    )


def alpha_warning(row: dict) -> str | None:
    """Returns a warning if a model or head drafts so badly that it may have been read
    wrongly, else None. Files do not show a wrong layer, position or target."""
    read, alpha = row.get("draft_regime") in (SAMPLED, REDUCED_VOCAB), row.get("alpha")
    if not read or alpha is None or alpha >= FLOOR:
        return None
    return (
        f"alpha is {alpha:.2f}, little above chance: was the draft trained for"
        f" {row['target']}, and does a head read the layers that it was trained on?"
    )
