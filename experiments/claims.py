"""What Leviathan et al. (2023) claim, and what the records here say of each claim.

`claims(found)` computes every verdict from records (`tables.collect`); a claim whose
records are absent was not run, and one about other models is not testable here. The
words of each claim are in claims.json; claims about walltime are tested in
`walltime_claims`.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from experiments import catalogue, markup, tables
from experiments import walltime_claims as walltime
from experiments.walltime_claims import (
    CLOSE,
    NOT_REPRODUCED,
    NOT_RUN,
    NOT_TESTABLE,
    REPRODUCED,
    Gap,
    Measured,
    Outcome,
    absent,
    gaps,
    judged,
    label,
    shown_gap,
    walltimes,
)
from specjax import theory

VERDICTS = (REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE, NOT_RUN)
STATED = Path(__file__).with_name("claims.json")  # test -> name, where, statement

DRAFTS = ("unigram", "bigram", "small", "base", "large")  # of table3, by capacity
FAMILIES = {"gpt": 3, "ende": 5, "docs": 5}  # how many of them each has
TRIVIAL = ("unigram", "bigram")
NEGLIGIBLE_ALPHA = 0.03  # the least alpha of Table 3, called not negligible there


class Claim(NamedTuple):
    """`where` and `statement`: the paper's; `evidence`: our own numbers."""

    name: str
    where: str
    statement: str
    verdict: str
    evidence: str


def claims(found: tables.Records) -> list[Claim]:
    """One row a claim, in the order of claims.json, each by the test of its key."""
    stated = json.loads(STATED.read_text("utf-8"))
    return [Claim(*words, *TESTS[key](found)) for key, words in stated.items()]


def alphas(found: tables.Records) -> dict[tuple[str, str, int], Measured]:
    """What folder table3 measured, by family, draft and temperature."""
    rows = found.get("table3", {})
    named = {place: "{}_{}_t{}".format(*place) for place in places()}
    return {at: rows[row]["measured"] for at, row in named.items() if row in rows}


def places() -> list[tuple[str, str, int]]:
    return [
        (family, draft, heat)
        for family, count in FAMILIES.items()
        for draft in DRAFTS[:count]
        for heat in (0, 1)
    ]


def shown_alpha(m: Measured) -> str:
    return f"{m['alpha']:.3f} ± {m['alpha_se']:.3f}"


def of(place: tuple[str, str, int]) -> str:
    family, draft, heat = place
    return f"{draft} ({family}), T = {heat}"


def capacity(found: tables.Records) -> Outcome:
    at, holds, told = alphas(found), True, []
    if len(at) < len(places()):
        return absent("needs every draft of folder table3 at both temperatures")
    for family, count in FAMILIES.items():
        for heat in (0, 1):
            row = {draft: at[family, draft, heat] for draft in DRAFTS[:count]}
            rising = [m["alpha"] for m in row.values()]
            holds &= all(a < b for a, b in pairwise(rising))
            several = (f"{draft} {shown_alpha(m)}" for draft, m in row.items())
            told.append(f"{family}, T = {heat}: {', '.join(several)}")
    return judged(holds), "; ".join(told)


def sharpness(found: tables.Records) -> Outcome:
    at, exceptions, told = alphas(found), [], []
    if len(at) < len(places()):
        return absent("needs every draft of folder table3 at both temperatures")
    for family, draft, _ in places()[::2]:
        cold, hot = at[family, draft, 0], at[family, draft, 1]
        name = f"{draft} ({family})"
        exceptions += [name] if cold["alpha"] <= hot["alpha"] else []
        told.append(f"{name}: {shown_alpha(cold)} at T = 0, {shown_alpha(hot)} at 1")
    told.insert(0, f"exceptions: {', '.join(exceptions) or 'none'}")
    return judged(not exceptions), "; ".join(told)


def trivial_alpha(found: tables.Records) -> Outcome:
    at = {key: m for key, m in alphas(found).items() if key[1] in TRIVIAL}
    if not at:
        return absent("no n-gram record in folder table3")
    told = [f"{of(key)}: {shown_alpha(m)}" for key, m in at.items()]
    holds = all(m["alpha"] >= NEGLIGIBLE_ALPHA for m in at.values())
    return judged(holds), "; ".join(told)


def serial_runs(found: tables.Records) -> Outcome:
    """Tokens per target call of every record; at least 1 if calls never exceed them."""
    least = [min(m["tokens_per_call"]) for m in walltimes(found)]
    least += [m["decoded_tokens"] / m["target_calls"] for m in alphas(found).values()]
    if not least:
        return absent("no record of folder table2 or table3")
    told = f"at least {markup.number(min(least))} tokens per run in {len(least)} rows"
    return judged(min(least) >= 1), told


def equation_1(found: tables.Records) -> Outcome:
    def gap(m: Measured) -> Gap:
        def eq1(m: Measured) -> list[float]:
            return [theory.expected_tokens(m["alpha"], g) for g in m["gamma"]]

        return gaps(m, "tokens_per_call", eq1)

    every = [(label(m), gap(m)) for m in walltimes(found)]
    for key, m in alphas(found).items():
        single = {"alpha": m["alpha"], "gamma": [m["protocol"]["gamma"]]}
        single["tokens_per_call"] = [m["tokens_per_call"]]
        every.append((f"{of(key)}, folder table3", gap(single)))
    if not every:
        return absent("no record of folder table2 or table3")
    kept = sum(worst[0] <= CLOSE for _, worst in every)
    told = [f"{name}: {shown_gap(worst)}" for name, worst in every]
    told.insert(0, f"holds in {kept} of {len(every)} rows")
    return judged(kept == len(every)), "; ".join(told)


def identical(found: tables.Records) -> Outcome:
    """Texts at T = 0 that are the target's own, of how many."""
    counts = [
        (label(m), m["same_greedy_texts"], m["texts"])
        for m in walltimes(found)
        if m["temperature"] == 0
    ]
    counts += [
        (f"{of(key)}, folder table3", m["same_greedy_texts"], m["sequences"])
        for key, m in alphas(found).items()
        if key[-1] == 0
    ]
    if not counts:
        return absent("no record at temperature 0 in folder table2 or table3")
    told = [f"{name}: {same} of {texts}" for name, same, texts in counts]
    kept = sum(same for _, same, _ in counts), sum(texts for *_, texts in counts)
    told.insert(0, f"{kept[0]} of {kept[1]} texts")
    return judged(all(same == texts for _, same, texts in counts)), "; ".join(told)


def memory(found: tables.Records) -> Outcome:
    """Per emitted token, the draft's share included, against the target alone."""
    rows = [record["measured"] for record in found.get("operations", {}).values()]
    if not rows:
        return absent("no record of folder operations")
    told = [
        f"{m['draft']}, gamma = {m['gamma']}, batch {m['batch']}:"
        f" {markup.number(m['operations_factor'])} x the operations,"
        f" {markup.number(m['bytes_factor'])} x the bytes"
        f" ({markup.number(m['bytes_factor_expected'])} for weights and cache alone)"
        for m in sorted(rows, key=lambda m: (m["draft"], m["batch"], m["gamma"]))
    ]
    holds = all(m["operations_factor"] > 1 > m["bytes_factor"] for m in rows)
    return judged(holds), "; ".join(told)


def figure_1(found: tables.Records) -> Outcome:
    rows = [record["measured"] for record in found.get("figure1", {}).values()]
    told = [
        f"{m['tokens']} tokens in {m['target_calls']} runs at gamma = {m['gamma']}"
        f" ({markup.number(m['tokens'] / m['target_calls'])} a run)"
        for m in sorted(rows, key=lambda m: m["gamma"])
    ]
    ours = "; ".join(told) or "our own text was not run"
    return NOT_TESTABLE, f"other models; {ours}"


def closed_forms(found: tables.Records) -> Outcome:
    """Numbers of Table 1 that our closed forms round to, of how many."""
    lines = catalogue.table1().lines
    rows = found.get("table1", {})
    if any(line.row not in rows for line in lines):
        return absent("needs every row of folder table1")
    right = [
        abs(rows[line.row]["measured"][line.quantity] - line.published)
        <= 0.5 * 10**-line.decimals + 1e-9
        for line in lines
    ]
    return judged(all(right)), f"{sum(right)} of {len(right)} numbers round to it"


TESTS = {
    test.__name__: test
    for test in (
        *(closed_forms, capacity, sharpness, trivial_alpha, serial_runs),
        *(equation_1, identical, memory, figure_1, walltime.argmax_speed),
        *(walltime.small_cost, walltime.theorem, walltime.predictor),
        *(walltime.some_gamma, walltime.minimum, walltime.trivial_speed),
        walltime.acceleration,
    )
}
