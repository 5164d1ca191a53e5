"""Claims of Chen et al. (2023) as Mody tells them, and of a lesson page on the method.

K is gamma, r the tokens decoded in a call over K + 1. What the records say is that of
folders chen_data, chen_paper, table2, figure3, kinds, certificate and conformance.
"""

from pathlib import Path

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
NEEDS_CHEN = "no row of Chen's in folder chen_data or chen_paper"


def chen_rows(records: Records) -> list[dict]:
    """What was measured by Chen's protocol: K drafted tokens a call, whole texts."""
    folders = (records.get(name, {}) for name in ("chen_data", "chen_paper"))
    every = (record["measured"] for folder in folders for record in folder.values())
    rows = [m for m in every if "theoretical_speed" in m]  # not a row of walltime
    return sorted(rows, key=lambda m: (m["task"], m["draft"], m["temperature"]))


def chen_label(m: dict) -> str:
    task = Path(m["task"]).stem
    return f"{m['draft']} ({task}), T = {m['temperature']:g}, K = {m['K']}"


def chen_measured(m: dict) -> str:
    return walltime.interval(m["speed"], m["speed_interval"])


def chen_speed(records: Records) -> Outcome:
    """Their own rows decide; rows of folder table2, at their best gamma, are told.

    That K + 1 tokens are scored in the time of one, v = 1, is part of the claim: the
    speed that r and v give together says how much of a gap is v's.
    """
    cases = []
    for m in chen_rows(records):
        theory, speed = m["theoretical_speed"], m["speed"]
        c, v = (m[f"t_{part}_ms"] / m["t_target_ms"] for part in ("draft", "score"))
        with_v = m["tokens_per_call"] / (m["K"] * c + v)
        told = f"{chen_label(m)}: {number(theory)} by r = {number(m['r'])}, measured"
        told += f" {chen_measured(m)}; v = {number(v)}, with which {number(with_v)}"
        luck = error_of(m["speed_interval"]) / speed, m["r_se"] / m["r"]
        error = theory / speed * together(*luck)
        cases.append(Case(told, NEAR - off(theory, speed), error))
    for m in filter(walltime.costs, walltime.rows(records)):
        gamma, speed = m["best_gamma"], m["best_speedup"]
        if gamma == 0:
            continue  # no draft, no r
        r = closed_forms.chen_r(m["best_tokens_per_call"], gamma)
        theory = closed_forms.chen_speedup(r, gamma, m["best_c"], 1.0)
        told = f"{walltime.label(m)}: {number(theory)} by r = {number(r)}, measured"
        error = theory / speed * walltime.best_error(m) / speed
        gap = NEAR - off(theory, speed)
        cases.append(Case(f"{told} {walltime.best(m)}", gap, error, beside=True))
    return judge(cases, NEEDS_CHEN)


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
    rows = [
        (chen_label(m), [m["tokens_per_call"]], [m["K"]]) for m in chen_rows(records)
    ]
    rows += [
        (walltime.label(m), m["tokens_per_call"], m["gamma"])
        for m in walltime.rows(records)
    ]
    cases = []
    for name, tokens, gammas in rows:
        both = list(zip(tokens, gammas, strict=True))
        gap = min(min(count - 1, gamma + 1 - count) for count, gamma in both)
        told = f"{name}: {number(min(tokens))} to {number(max(tokens))} a call"
        cases.append(Case(told, gap + 1e-9))
    return judge(cases, "no record of folders chen_data, chen_paper or table2")


def chen_models(records: Records) -> Outcome:
    rows = chen_rows(records)
    ours = (f"{chen_label(m)}: {chen_measured(m)}" for m in rows)
    why = "other models: Chinchilla is not public, GPT-2 XL is not here"
    return untestable(f"{why}; ours: {'; '.join(ours)}" if rows else why)


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
    """At the best gamma of folder table2, and at Chen's K, which nobody chose."""
    cases = [
        walltime.case(
            m, walltime.best(m), m["best_speedup"] - 1, walltime.best_error(m)
        )
        for m in walltime.rows(records)
        if m["best_gamma"]
    ]
    for m in chen_rows(records):
        told = f"{chen_label(m)}: {chen_measured(m)}"
        cases.append(Case(told, m["speed"] - 1, error_of(m["speed_interval"])))
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
