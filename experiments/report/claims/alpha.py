"""Claims of Leviathan et al. (2023) about acceptance, outputs and operations.

What the records say of each: of folders table1, table3, operations and figure1, and of
table2 where counts of tokens and texts do. alpha is E(beta).
"""

import math
from itertools import pairwise

from experiments import catalogue
from experiments.records.markup import number
from experiments.records.table import Records
from experiments.report.claims import walltime
from experiments.report.claims.verdicts import (
    Case,
    Outcome,
    absent,
    judge,
    off,
    together,
    untestable,
)
from specjax.theory import estimate

DRAFTS = ("unigram", "bigram", "small", "base", "large")  # of table3, by capacity
FAMILIES = {"gpt": 3, "ende": 5, "docs": 5}  # how many of them each has
TRIVIAL = ("unigram", "bigram")
INDEPENDENT = "taken as independent"  # of other texts, or not recorded text by text
NEGLIGIBLE_ALPHA = 0.03  # the least alpha of Table 3, called not negligible there
ALL_DRAFTS = "needs every draft of folder table3 at both temperatures"

Place = tuple[str, str, int]  # family, draft, temperature


def alphas(records: Records) -> dict[Place, dict]:
    """What folder table3 measured, by family, draft and temperature."""
    rows = records.get("table3", {})
    named = {place: "{}_{}_t{}".format(*place) for place in places()}
    return {at: rows[row]["measured"] for at, row in named.items() if row in rows}


def places() -> list[Place]:
    return [
        (family, draft, heat)
        for family, count in FAMILIES.items()
        for draft in DRAFTS[:count]
        for heat in (0, 1)
    ]


def shown(m: dict) -> str:
    return f"{m['alpha']:.3f} ± {m['alpha_se']:.3f}"


def of(place: Place) -> str:
    family, draft, heat = place
    return f"{draft} ({family}), T = {heat}"


def greater(told: str, more: dict, less: dict) -> Case:
    """That one alpha is above another: text by text where both have the same texts."""
    gap, error, paired = difference(more, less)
    how = f"text by text {number(gap)} ± {number(error)}" if paired else INDEPENDENT
    return Case(f"{told}; {how}", gap, error)


OF_THE_DRAFT = ("gamma", "rule", "policy", "kernels")  # no matter to the target's texts


def difference(more: dict, less: dict) -> tuple[float, float, bool]:
    both = [m.get("alpha_by_text") for m in (more, less)]
    if None not in both and written(more) == written(less):
        betas = (it["beta"] for it in both)
        paired = estimate.difference(*betas, both[0]["tokens"])
        return paired.value, paired.se, True
    error = math.hypot(more["alpha_se"], less["alpha_se"])
    return more["alpha"] - less["alpha"], error, False


def written(m: dict) -> tuple:
    """What says which texts alpha was measured on: who wrote them, and how."""
    how = {name: x for name, x in m["protocol"].items() if name not in OF_THE_DRAFT}
    return m["target"], how, m["alpha_by_text"]["tokens"]


def closed_forms(records: Records) -> Outcome:
    """Numbers of Table 1 that our closed forms round to."""
    lines = catalogue.named("table1").lines
    rows = records.get("table1", {})
    if any(line.row not in rows for line in lines):
        return absent("needs every row of folder table1")
    cases = []
    for line in lines:
        ours = rows[line.row]["measured"][line.quantity]
        gap = 0.5 * 10**-line.decimals + 1e-9 - abs(ours - line.published)
        told = f"{line.what}: {number(ours)} against {line.published}"
        cases.append(Case(told, gap))
    return judge(cases, "")


def capacity(records: Records) -> Outcome:
    at, cases = alphas(records), []
    if len(at) < len(places()):
        return absent(ALL_DRAFTS)
    for family, count in FAMILIES.items():
        for heat in (0, 1):
            for less, more in pairwise(DRAFTS[:count]):
                lower, other = at[family, less, heat], at[family, more, heat]
                told = f"{family}, T = {heat}: {more} {shown(other)},"
                cases.append(greater(f"{told} {less} {shown(lower)}", other, lower))
    return judge(cases, ALL_DRAFTS)


def sharpness(records: Records) -> Outcome:
    at, cases = alphas(records), []
    if len(at) < len(places()):
        return absent(ALL_DRAFTS)
    for family, draft, _ in places()[::2]:
        cold, hot = at[family, draft, 0], at[family, draft, 1]
        told = f"{draft} ({family}): {shown(cold)} at T = 0, {shown(hot)} at 1"
        cases.append(greater(told, cold, hot))
    return judge(cases, ALL_DRAFTS)


def trivial_alpha(records: Records) -> Outcome:
    cases = [
        Case(f"{of(place)}: {shown(m)}", m["alpha"] - NEGLIGIBLE_ALPHA, m["alpha_se"])
        for place, m in alphas(records).items()
        if place[1] in TRIVIAL
    ]
    return judge(cases, "no n-gram record in folder table3")


def serial_runs(records: Records) -> Outcome:
    """Tokens per target call; at least 1 if calls never exceed tokens."""
    rows = [
        (walltime.label(m), min(m["tokens_per_call"])) for m in walltime.rows(records)
    ]
    rows += [
        (f"{of(place)}, folder table3", m["decoded_tokens"] / m["target_calls"])
        for place, m in alphas(records).items()
    ]
    cases = [Case(f"{name}: at least {number(x)}", x - 1) for name, x in rows]
    return judge(cases, "no record of folder table2 or table3")


def equation_1(records: Records) -> Outcome:
    """Of folder table3 whole calls: Chen's r counts them beyond the end of a text."""
    cases = [walltime.equation_1(m) for m in walltime.rows(records)]
    for place, m in alphas(records).items():
        gamma, r = m["protocol"]["gamma"], m["estimates"]["chen_r"]
        tokens, error = ((gamma + 1) * r[key] for key in ("value", "se"))
        by_eq1, slope = walltime.expected(m["alpha"], gamma)
        gap = walltime.CLOSE - off(by_eq1, tokens)
        told = (
            f"{of(place)}, folder table3: {number(tokens)} at gamma = {gamma},"
            f" {number(by_eq1)} by Equation 1"
        )
        doubt = together(error, slope * m["alpha_se"]) / tokens
        cases.append(Case(told, gap, doubt))
    return judge(cases, "no record of folder table2 or table3")


def identical(records: Records) -> Outcome:
    """Texts at T = 0 that are the target's own, of how many."""
    counts = [
        (walltime.label(m), m["same_greedy_texts"], m["texts"])
        for m in walltime.rows(records)
        if m["temperature"] == 0
    ]
    counts += [
        (f"{of(place)}, folder table3", m["same_greedy_texts"], m["sequences"])
        for place, m in alphas(records).items()
        if place[-1] == 0
    ]
    cases = [
        Case(f"{name}: {same} of {texts} texts", same - texts)
        for name, same, texts in counts
    ]
    return judge(cases, "no record at temperature 0 in folder table2 or table3")


def memory(records: Records) -> Outcome:
    """Per emitted token, the draft's share included, against the target alone."""
    cases = []
    every = [record["measured"] for record in records.get("operations", {}).values()]
    for m in sorted(every, key=lambda m: (m["draft"], m["batch"], m["gamma"])):
        name = f"{m['draft']}, gamma = {m['gamma']}, batch {m['batch']}"
        tokens, slope = walltime.expected(m["alpha"], m["gamma"])
        for what, factor, side in (
            ("operations", m["operations_factor"], 1),
            ("bytes", m["bytes_factor"], -1),
        ):
            told = f"{name}: {number(factor)} x the {what}"
            error = factor * slope * m["alpha_se"] / tokens  # luck of the tokens
            cases.append(Case(told, side * (factor - 1), error))
    return judge(cases, "no record of folder operations")


def figure_1(records: Records) -> Outcome:
    every = [record["measured"] for record in records.get("figure1", {}).values()]
    told = [
        f"{m['tokens']} tokens in {m['target_calls']} runs at gamma = {m['gamma']}"
        f" ({number(m['tokens'] / m['target_calls'])} a run)"
        for m in sorted(every, key=lambda m: m["gamma"])
    ]
    ours = "; ours: " + "; ".join(told) if told else "; our own text was not run"
    return untestable(f"other models{ours}")
