"""Claims of Chen et al. (2023) as Mody tells them, and of a lesson page on the method.

K is gamma, r the tokens decoded in a call over K + 1. What the records say is that of
folders table2, figure3, kinds, certificate and conformance.
"""

from experiments.records.markup import number
from experiments.records.table import Records
from experiments.report.claims import walltime
from experiments.report.claims.verdicts import (
    Case,
    Outcome,
    absent,
    error_of,
    judge,
    off,
    together,
    untestable,
)
from specjax.theory import closed_forms

NEAR = 0.08  # theory and measurement of Chen et al. are 6.8 % and 7.7 % apart
EQUAL = 1e-12  # of laws that are enumerated in float64


def chen_speed(records: Records) -> Outcome:
    cases = []
    for m in filter(walltime.costs, walltime.rows(records)):
        gamma, emp = m["best_gamma"], m["best_speedup"]
        if gamma == 0:
            continue  # no draft, no r
        r = closed_forms.chen_r(m["best_tokens_per_call"], gamma)
        theory = closed_forms.chen_speedup(r, gamma, m["best_c"], 1.0)
        told = f"{number(theory)} by r = {number(r)}, measured {walltime.best(m)}"
        error = theory / emp * walltime.best_error(m) / emp
        lacks = walltime.scoring_costs(m)
        cases.append(walltime.case(m, told, NEAR - off(theory, emp), error, lacks))
    return judge(cases, walltime.NEEDS)


def chen_law(records: Records) -> Outcome:
    """Theorem 1 is Algorithm 1's: enumerated, texts of several tokens."""
    rows = records.get("certificate", {})
    if "token" not in rows:
        return absent("needs row token of folder certificate")
    m = rows["token"]["measured"]
    told = f"{m['exact']} of {m['total']} cases are exact, at most"
    told += f" {number(m['worst_float64'])} off in float64"
    return judge([Case(told, m["exact"] - m["total"])], "")


def chen_filters(records: Records) -> Outcome:
    return conformance(records, "tv_token_cut", "logits cut to the two largest")


def chen_tokens(records: Records) -> Outcome:
    cases = []
    for m in walltime.rows(records):
        both = list(zip(m["tokens_per_call"], m["gamma"], strict=True))
        gap = min(min(tokens - 1, gamma + 1 - tokens) for tokens, gamma in both)
        least, most = min(both)[0], max(both)[0]
        told = f"{walltime.label(m)}: {number(least)} to {number(most)} a call"
        cases.append(Case(told, gap + 1e-9))
    return judge(cases, "no record of folder table2")


def chen_models(records: Records) -> Outcome:
    return untestable("other models: Chinchilla is not public, GPT-2 XL is not here")


def conformance(records: Records, key: str, what: str) -> Outcome:
    """That a law which folder conformance enumerates is its sampler's."""
    m = records.get("conformance", {}).get("rules", {}).get("measured", {})
    if key not in m:
        return absent("needs row rules of folder conformance")
    told = f"{what}: total variation {number(m[key])} over three tokens"
    return judge([Case(told, EQUAL - m[key])], "")


def lesson_limit(records: Records) -> Outcome:
    """1 / (1 - alpha) at the largest gamma, which takes c = 0 and v = 1."""
    cases = []
    for m in filter(walltime.costs, walltime.rows(records)):
        limit, c, v = 1 / (1 - m["alpha"]), m["c"][-1], m["v"][-1]
        speed, ends = m["speedup"][-1], m["speedup_ci"][-1]
        told = f"gamma = {m['gamma'][-1]}: {walltime.interval(speed, ends)},"
        told += f" 1 / (1 - alpha) = {number(limit)}"
        large = c > walltime.NEGLIGIBLE_C or v > 1 + walltime.CLOSE
        lacks = f"c = {number(c)}, v = {number(v)}" if large else ""
        gap = walltime.NEAR - off(limit, speed)
        doubt = walltime.error_of(ends) / speed, m["alpha_se"] * limit
        error = limit / speed * together(*doubt)
        cases.append(walltime.case(m, told, gap, error, lacks))
    return judge(cases, walltime.NEEDS)


def lesson_harmless(records: Records) -> Outcome:
    cases = [
        walltime.case(
            m, walltime.best(m), m["best_speedup"] - 1, walltime.best_error(m)
        )
        for m in walltime.rows(records)
        if m["best_gamma"]
    ]
    return judge(cases, walltime.NEEDS)


def lesson_length(records: Records) -> Outcome:
    """K* by the page beside the best gamma of Theorem 3.8, one off allowed."""
    cases = []
    for row, record in sorted(records.get("figure3", {}).items()):
        m, c = record["measured"], row.rpartition("_")[2]
        for alpha in (0.7, 0.9):
            ours, page = m["best_gamma"][m["alpha"].index(alpha)], 1 / (1 - alpha)
            told = f"alpha = {alpha}, c = {c}: {page:.1f}, Theorem 3.8 {ours:g}"
            cases.append(Case(told, 1 - abs(ours - page)))
    return judge(cases, "no record of folder figure3")


def lesson_tokens(records: Records) -> Outcome:
    """(1 - alpha^K) / (1 - alpha): without the token that every call adds."""
    cases = []
    for m in walltime.rows(records):
        if not walltime.costs(m):
            continue
        at = m["c"].index(walltime.costs(m)[0])  # the least gamma that drafts
        gamma, tokens = m["gamma"][at], m["tokens_per_call"][at]
        page_says, slope = walltime.expected(m["alpha"], gamma - 1)
        told = f"gamma = {gamma}: {number(page_says)}, measured {number(tokens)}"
        luck = (m["steps_se"][at] or 0.0) / m["steps"][at]
        error = together(luck, slope * m["alpha_se"] / tokens)
        cases.append(
            walltime.case(m, told, walltime.CLOSE - off(page_says, tokens), error)
        )
    return judge(cases, walltime.NEEDS)


def lesson_law(records: Records) -> Outcome:
    return conformance(records, "tv_lesson", "its loop, which adds no token at the end")


ORDER = ("function word", "other word"), ("other word", "name")


def lesson_words(records: Records) -> Outcome:
    """The order of the page's per cents, which are of no pair that it names: function
    words before common ones, and those before names."""
    cases = []
    rows = records.get("kinds", {}) | records.get("kinds_data", {})
    for row, record in sorted(rows.items()):
        cells = {it["label"]: it for it in record["measured"]["groups"]["kind"]}
        for labels in ORDER:
            if not cells.keys() >= {*labels}:
                continue  # in German all nouns look like names
            easy, hard = (cells[label]["expected"] for label in labels)
            if None in (*easy, *hard):
                continue  # of too few texts
            both = (
                f"{label}s {walltime.interval(share, ends)}"
                for label, (share, *ends) in zip(labels, (easy, hard), strict=True)
            )
            error = together(*(error_of(ends) for _, *ends in (easy, hard)))
            cases.append(Case(f"{row}: {', '.join(both)}", easy[0] - hard[0], error))
    return judge(cases, "no record of folder kinds")


def lesson_results(records: Records) -> Outcome:
    return untestable(
        "other models; the paper itself prints 3.4 and 2.6 for T5-small on EnDe, at"
        " gamma = 7, and has no PaLM"
    )
