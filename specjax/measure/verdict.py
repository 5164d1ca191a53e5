"""What a measured pair comes to, in words: faster or not, the same text or not, why."""

NOISY = 0.25  # of a speed: the width of an interval that says little
COSTS = {
    "draft": "drafting (gamma c)",
    "score": "the target's call on more tokens (v)",
    "rest": "what is neither model (overhead)",
}


def verdict(row: dict) -> str:
    """A line on a row of `measure.walltime`, such as "gamma 3: 1.80x [1.60, 2.00];
    same distribution; drafting (gamma c) costs most"."""
    gamma, speed, ends = (row[f"best_{x}"] for x in ("gamma", "speedup", "speedup_ci"))
    ends = "" if ends is None else " [{:.2f}, {:.2f}]".format(*ends)
    parts = [f"gamma {gamma}: {speed:.2f}x{ends}, {faster(row)}", same(row)]
    spent = costs(row, row["gamma"].index(gamma))
    extra = {**spent, "score": spent["score"] - 1}  # alone a call costs 1, too
    dearest = max(extra, key=extra.get)
    return "; ".join([*parts, f"{COSTS[dearest]} costs most"])


def faster(row: dict) -> str:
    """What the interval of the best speed says."""
    if row["best_speedup_ci"] is None:
        return "of a single text, so without an interval"
    low, high = row["best_speedup_ci"]
    if low > 1:
        return "faster than the target alone"
    return "slower than the target alone" if high < 1 else "no difference was seen"


def same(row: dict) -> str:
    """What is promised of the text, and of greedy ones what was seen."""
    exact = row["exactness"] in ("exact law", "pathwise")
    if row["temperature"] == 0:
        found = f"greedy texts {row['same_greedy_texts']} of {row['texts']} identical"
        return found if exact else f"{found}, by a rule that may change them"
    return (
        "same distribution" if exact else f"another distribution ({row['exactness']})"
    )


def costs(row: dict, at: int) -> dict[str, float]:
    """A step of the gamma at this index, in calls of the target on one token: drafting,
    the target's call, the rest; Theorem 3.8's denominator with v and what it lacks."""
    gamma, c = row["gamma"][at], row["c"][at] or 0.0
    rest = row["overhead"][at] or 0.0
    return {"draft": gamma * c, "score": row["v"][at], "rest": rest}


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
