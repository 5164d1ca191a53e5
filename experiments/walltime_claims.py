"""Claims about walltime, each decided by what folder table2 measured.

A test takes the records (`tables.collect`) and returns a verdict and our numbers. The
paper measured at batch 1, which decides; other batches are told beside it. alpha is
E(beta), c the time of one drafted token over one target token (Definition 3.7), v that
of gamma + 1 positions over one; EXP is Theorem 3.8, EMP what was measured.
"""

from collections.abc import Callable

from experiments import catalogue, markup, tables
from experiments.walltime_tables import named
from specjax import theory

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
NOT_TESTABLE, NOT_RUN = "not testable here", "not run"

SMALL_C = 0.05  # Definition 3.7: "always less than"
NEGLIGIBLE_C = 0.02  # the least c that Table 4 prints
NEAR = 0.2  # EXP and EMP agree; `paper_gaps` says how often they do in Table 4
CLOSE = 0.05  # ours: wider than most intervals, finer than what gamma changes

Outcome = tuple[str, str]  # verdict, evidence
Measured = dict
Gap = tuple[float, int, float, float]  # relative, gamma, measured, expected


def judged(holds: bool) -> str:
    return REPRODUCED if holds else NOT_REPRODUCED


def absent(what: str) -> Outcome:
    return NOT_RUN, what


def walltimes(found: tables.Records) -> list[Measured]:
    """What folder table2 measured, by batch, draft and temperature."""
    every = [record["measured"] for record in found.get("table2", {}).values()]
    return sorted(every, key=lambda m: (m["batch"], named(m), m["temperature"]))


def label(m: Measured) -> str:
    return f"{named(m)}, T = {m['temperature']:g}, batch {m['batch']}"


def interval(value: float, ci: list[float]) -> str:
    low, high = map(markup.number, ci)
    return f"{markup.number(value)} [{low}, {high}]"


def best(m: Measured) -> str:
    return interval(m["best_speedup"], m["best_speedup_ci"])


def each(
    rows: list[Measured], holds: Callable, show: Callable, any_batch: bool = False
) -> Outcome:
    """Decided by every row at batch 1 (or any); tells all, and those that fail."""
    deciding = [m for m in rows if any_batch or m["batch"] == 1]
    if not deciding:
        return absent("no record of folder table2 at batch 1")
    failing = {True: "", False: " (fails)"}
    told = [f"{label(m)}: {show(m)}{failing[bool(holds(m))]}" for m in rows]
    kept = sum(map(bool, map(holds, deciding)))
    where = "" if any_batch else " at batch 1"
    told.insert(0, f"holds in {kept} of {len(deciding)} rows{where}")
    return judged(kept == len(deciding)), "; ".join(told)


def costs(m: Measured) -> list[float]:
    return [c for c in m["c"] if c is not None]


def shown_costs(m: Measured) -> str:
    low, high = min(costs(m)), max(costs(m))
    return f"c from {markup.number(low)} to {markup.number(high)} over gamma"


def off(predicted: float, measured: float) -> float:
    return abs(predicted / measured - 1)


def gaps(m: Measured, measured: str, expected: Callable) -> Gap:
    """The worst gamma: how far off, gamma, what was measured, what was expected."""
    both = zip(m["gamma"], m[measured], expected(m), strict=True)
    return max((off(e, x), gamma, x, e) for gamma, x, e in both)


def shown_gap(gap: Gap) -> str:
    off_by, gamma, measured, expected = gap
    return (
        f"at most {100 * off_by:.1f} % off (gamma = {gamma}: measured"
        f" {markup.number(measured)}, predicted {markup.number(expected)})"
    )


def small_cost(found: tables.Records) -> Outcome:
    rows = [m for m in walltimes(found) if costs(m)]
    return each(rows, lambda m: max(costs(m)) < SMALL_C, shown_costs)


def argmax_speed(found: tables.Records) -> Outcome:
    rows = {(named(m), m["temperature"], m["batch"]): m for m in walltimes(found)}
    drafts = [d for d, heat, b in rows if (heat, b) == (0, 1) and (d, 1, 1) in rows]
    if not drafts:
        return absent("no draft of folder table2 at both temperatures and batch 1")
    pairs = [(rows[draft, 0, 1], rows[draft, 1, 1]) for draft in drafts]
    told = [f"{named(a)}: {best(a)} at T = 0, {best(b)} at T = 1" for a, b in pairs]
    holds = all(a["best_speedup"] > b["best_speedup"] for a, b in pairs)
    return judged(holds), "; ".join(told)


def paper_gaps() -> list[float]:
    """How far EXP is from EMP in each row of the paper's Table 4."""
    rows = catalogue.rows_of("table4_expected_vs_measured")
    return [off(row["expected"], row["measured"]) for row in rows]


def theorem(found: tables.Records) -> Outcome:
    rows = walltimes(found)
    first = [m for m in rows if m["batch"] == 1]
    if not first:
        return absent("no record of folder table2 at batch 1")
    theirs = paper_gaps()
    share = sum(gap <= NEAR for gap in theirs) / len(theirs)
    near = [off(m["best_exp"], m["best_speedup"]) <= NEAR for m in first]
    told = [
        f"{label(m)}: EXP {markup.number(m['best_exp'])}, EMP {best(m)},"
        f" off by {100 * off(m['best_exp'], m['best_speedup']):.0f} %"
        for m in rows
    ]
    kept = f"within 20 % in {sum(near)} of {len(near)} rows at batch 1; "
    return judged(sum(near) / len(near) >= share), kept + "; ".join(told)


def predictor(found: tables.Records) -> Outcome:
    """At T = 1 the number of calls is random: two standard errors of it are allowed."""

    def holds(m: Measured) -> bool:
        pairs = zip(m["predicted"], m["speedup"], chance(m), strict=True)
        return all(off(p, s) <= CLOSE + luck for p, s, luck in pairs)

    def show(m: Measured) -> str:
        worst = gaps(m, "speedup", lambda m: m["predicted"])
        luck = chance(m)[m["gamma"].index(worst[1])]
        return shown_gap(worst) + f", of which chance ± {100 * luck:.1f} %"

    rows = [m for m in walltimes(found) if None not in m["predicted"]]
    return each(rows, holds, show, any_batch=True)


def chance(m: Measured) -> list[float]:
    """Two standard errors of the number of target calls at each gamma, over it."""
    pairs = zip(m["steps_se"], m["steps"], strict=True)
    return [2 * (se or 0.0) / steps for se, steps in pairs]


def corollary(found: tables.Records, holds: Callable, show: Callable) -> Outcome:
    """Of the rows with alpha > c, at the least gamma that drafts (Corollary 3.9)."""
    rows = [m for m in walltimes(found) if costs(m)]
    helped = [m for m in rows if m["alpha"] > costs(m)[0]]
    batch_1 = [m["batch"] == 1 for m in helped]
    if any(m["batch"] == 1 for m in rows) and not any(batch_1):
        return NOT_TESTABLE, "alpha exceeds c in none of our rows at batch 1"
    return each(helped, holds, show)


def some_gamma(found: tables.Records) -> Outcome:
    def show(m: Measured) -> str:
        alpha, c = markup.number(m["alpha"]), markup.number(costs(m)[0])
        return f"{best(m)} at gamma = {m['best_gamma']}, alpha {alpha}, c {c}"

    return corollary(found, lambda m: m["best_speedup_ci"][0] > 1, show)


def minimum(found: tables.Records) -> Outcome:
    def bound(m: Measured) -> float:
        return theory.minimum_gain(m["alpha"], costs(m)[0])  # Corollary 3.9

    def show(m: Measured) -> str:
        v = markup.number(m["best_v"])
        return f"{best(m)} against {markup.number(bound(m))}, v {v}"

    return corollary(found, lambda m: m["best_speedup"] >= bound(m), show)


def trivial_speed(found: tables.Records) -> Outcome:
    rows = [m for m in walltimes(found) if m["draft"] in ("unigram", "bigram")]

    def helps(m: Measured) -> bool:
        return m["best_speedup_ci"][0] > 1

    def show(m: Measured) -> str:
        said = "helps" if helps(m) else "does not help"
        return f"{said}, {best(m)}, {shown_costs(m)}"

    def holds(m: Measured) -> bool:
        return helps(m) and max(costs(m)) < NEGLIGIBLE_C

    return each([m for m in rows if costs(m)], holds, show)


def acceleration(found: tables.Records) -> Outcome:
    rows = walltimes(found)
    if not rows:
        return NOT_TESTABLE, "other models; our own speedups were not run"
    top = max(rows, key=lambda m: m["best_speedup"])
    return NOT_TESTABLE, f"other models; ours at best {best(top)} ({label(top)})"
