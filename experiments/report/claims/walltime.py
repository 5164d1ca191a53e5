"""Claims of Leviathan et al. (2023) about walltime, judged by what folder table2 says.

The paper measured at batch 1, which decides; other batches are told beside it. alpha is
E(beta), c the time of one drafted token over one target token (Definition 3.7), v that
of gamma + 1 positions over one; EXP is Theorem 3.8, EMP what was measured. What the
theorems take for granted is a precondition here: v = 1, and c that is small. Where that
works against a claim, and a row bears it out without, the row counts.
"""

from collections.abc import Iterable
from functools import partial

from experiments.records.markup import number
from experiments.records.table import Records, rows_of
from experiments.report.claims.verdicts import (
    Case,
    Outcome,
    error_of,
    judge,
    off,
    together,
    untestable,
)
from experiments.report.walltime import XLA, named
from specjax.theory import closed_forms

SMALL_C = 0.05  # Definition 3.7: "always less than"
NEGLIGIBLE_C = 0.02  # the least c that Table 4 prints
NEAR = 0.2  # EXP and EMP agree; `paper_share` says how often they do in Table 4
CLOSE = 0.05  # ours: wider than most intervals, finer than what gamma changes
HUNDREDTH = 50  # ours: a target this many times its draft is about a hundred times it
# Parameters of the bundled models in millions, by which c is expected to be small.
MILLIONS = {"code_target": 33.6, "code_small": 0.99, "t5_target": 41.4}
MILLIONS |= {"t5_large": 4.7, "t5_base": 2.5, "t5_small": 1.0}
NEEDS = "no record of folder table2 at batch 1"
TRIVIAL = ("unigram", "bigram")


def rows(records: Records) -> list[dict]:
    """What folder table2 measured, by batch, draft and temperature; a row by XLA's
    products is one of these again."""
    table = records.get("table2", {})
    every = [r["measured"] for row, r in table.items() if not row.endswith(XLA)]
    return sorted(every, key=lambda m: (m["batch"], named(m), m["temperature"]))


def label(m: dict) -> str:
    return f"{named(m)}, T = {m['temperature']:g}, batch {m['batch']}"


def interval(value: float, ends: Iterable[float]) -> str:
    low, high = map(number, ends)
    return f"{number(value)} [{low}, {high}]"


def best(m: dict) -> str:
    return interval(m["best_speedup"], m["best_speedup_ci"])


def case(m: dict, told: str, gap: float, error: float = 0.0, lacks: str = "") -> Case:
    """A comparison that decides at batch 1."""
    return Case(f"{label(m)}: {told}", gap, error, lacks, beside=m["batch"] != 1)


def harder(m: dict, told: str, gap: float, error: float, lacks: str) -> Case:
    """The same where what is lacking works against the claim, as v > 1 does against a
    speed: a row that bears the claim out all the same counts."""
    if lacks and gap > 0:
        return case(m, f"{told}, although {lacks}", gap, error)
    return case(m, told, gap, error, lacks)


def best_error(m: dict) -> float:
    return error_of(m["best_speedup_ci"])


def costs(m: dict) -> list[float]:
    return [c for c in m["c"] if c is not None]


def expected(alpha: float, gamma: int) -> tuple[float, float]:
    """Equation 1, and what it changes by with alpha."""
    slope = sum(i * alpha ** (i - 1) for i in range(1, gamma + 1))
    return closed_forms.expected_tokens(alpha, gamma), slope


def scoring_costs(m: dict) -> str:
    """That v is not 1 where the speed is best, as Theorem 3.8 takes it to be."""
    at = m["gamma"].index(m["best_gamma"])
    if m["v"][at] <= 1 + CLOSE:
        return ""
    return f"v = {interval(m['v'][at], m['v_ci'][at])} at gamma = {m['gamma'][at]}"


def large_draft(m: dict) -> str:
    """That the draft is not a hundredth of the target, where both sizes are known."""
    target, draft = (MILLIONS.get(m[side]) for side in ("target", "draft"))
    if target is None or draft is None or target / draft >= HUNDREDTH:
        return ""
    return f"the draft is 1/{target / draft:.0f} of its target"


def small_cost(records: Records) -> Outcome:
    cases = []
    for m in filter(costs, rows(records)):
        c = max(costs(m))
        ends = m["c_ci"][m["c"].index(c)]
        told = f"c at most {interval(c, ends)} over gamma"
        cases.append(harder(m, told, SMALL_C - c, error_of(ends), large_draft(m)))
    return judge(cases, NEEDS)


def argmax_speed(records: Records) -> Outcome:
    at = {(named(m), m["temperature"], m["batch"]): m for m in rows(records)}
    cases = []
    for draft, heat, batch in at:
        if (heat, batch) == (0, 1) and (draft, 1, 1) in at:
            cold, hot = at[draft, 0, 1], at[draft, 1, 1]
            told = f"{draft}: {best(cold)} at T = 0, {best(hot)} at T = 1"
            gap = cold["best_speedup"] - hot["best_speedup"]
            error = together(best_error(cold), best_error(hot))
            cases.append(Case(told, gap, error))
    return judge(cases, "no draft of folder table2 at both temperatures and batch 1")


def equation_1(m: dict) -> Case:
    """The worst gamma of a row. An exact count that Equation 1 misses as well shows
    that acceptances are not independent, or that texts end."""

    def at(i: int) -> Case:
        gamma, tokens, steps = m["gamma"][i], m["tokens_per_call"][i], m["steps"][i]
        by_eq1, slope = expected(m["alpha"], gamma)
        luck = (m["steps_se"][i] or 0.0) / steps
        error = together(luck, slope * m["alpha_se"] / tokens)
        counted = m["predicted_tokens_per_call"][i]
        lacks = ""
        if counted is None:
            lacks = "no draft at every position: alpha is of those tested"
        elif off(by_eq1, counted) > CLOSE:
            lacks = f"not independent, or texts end: {number(counted)} by exact count"
        told = (
            f"{label(m)}: {number(tokens)} at gamma = {gamma}, {number(by_eq1)} by"
            " Equation 1"
        )
        return Case(told, CLOSE - off(by_eq1, tokens), error, lacks)

    return min(map(at, range(len(m["gamma"]))), key=lambda worst: worst.gap)


def paper_share() -> float:
    """How often EXP is near EMP in the paper's Table 4."""
    papers = rows_of("table4_expected_vs_measured")
    near = [off(row["expected"], row["measured"]) <= NEAR for row in papers]
    return sum(near) / len(near)


def theorem(records: Records) -> Outcome:
    cases = []
    for m in rows(records):
        exp, emp = m["best_exp"], m["best_speedup"]
        told = f"EXP {number(exp)}, EMP {best(m)}"
        error = exp / emp * best_error(m) / emp
        cases.append(case(m, told, NEAR - off(exp, emp), error, scoring_costs(m)))
    return judge(cases, NEEDS, paper_share())


def predictor(records: Records) -> Outcome:
    """The worst gamma of every row; other texts predict it."""
    cases = []
    for m in rows(records):
        apart = [at for at, speed in enumerate(m["predicted"]) if speed is not None]
        if apart:
            *_, worst = min(map(partial(predicted, m), apart))
            cases.append(worst)
    return judge(cases, "no row of folder table2 with a forecast")


def predicted(m: dict, at: int) -> tuple[float, int, Case]:
    """How sure a prediction is, its gamma, and the comparison."""
    forecast, measured, gamma = m["predicted"][at], m["speedup"][at], m["gamma"][at]
    luck = error_of(m["predicted_ci"][at]) / measured
    error = together(luck, error_of(m["speedup_ci"][at]) / measured)
    gap = CLOSE - off(forecast, measured)
    told = (
        f"{label(m)}: at gamma = {gamma} predicted {number(forecast)}, measured"
        f" {interval(measured, m['speedup_ci'][at])}"
    )
    return gap, gamma, Case(told, gap, error)


def corollary(m: dict) -> str:
    """What Corollary 3.9 lacks in a row: alpha above c, or v = 1."""
    if m["alpha"] <= costs(m)[0]:
        return f"alpha {number(m['alpha'])} is not above c {number(costs(m)[0])}"
    return scoring_costs(m)


def some_gamma(records: Records) -> Outcome:
    cases = []
    for m in filter(costs, rows(records)):
        told = f"{best(m)} at gamma = {m['best_gamma']}"
        gap = m["best_speedup"] - 1
        cases.append(harder(m, told, gap, best_error(m), corollary(m)))
    return judge(cases, NEEDS)


def minimum(records: Records) -> Outcome:
    cases = []
    for m in filter(costs, rows(records)):
        least = closed_forms.minimum_gain(m["alpha"], costs(m)[0])  # Corollary 3.9
        told = f"{best(m)} against {number(least)}"
        gap = m["best_speedup"] - least
        cases.append(harder(m, told, gap, best_error(m), corollary(m)))
    return judge(cases, NEEDS)


def trivial_speed(records: Records) -> Outcome:
    cases = []
    for m in rows(records):
        if m["draft"] in TRIVIAL and costs(m):
            c = costs(m)[0]
            large = f"c = {number(c)}, not below {NEGLIGIBLE_C}"
            lacks = large if c >= NEGLIGIBLE_C else scoring_costs(m)
            gap = m["best_speedup"] - 1
            cases.append(harder(m, best(m), gap, best_error(m), lacks))
    return judge(cases, "no n-gram record of folder table2 at batch 1")


def acceleration(records: Records) -> Outcome:
    every = rows(records)
    if not every:
        return untestable("other models; our own speeds were not run")
    top = max(every, key=lambda m: m["best_speedup"])
    return untestable(f"other models; ours at best {best(top)} ({label(top)})")
