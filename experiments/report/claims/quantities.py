"""What claims compare: rows that records have, their numbers, and what a claim asks.

A subject is what was measured in a row, or a part or a pair of that, with a `label`.
`beside`: it is told, and is not what the claim is about, such as another batch.
alpha is E(beta), c the time of one drafted token over one target token (Definition
3.7), v that of gamma + 1 positions over one; EXP is Theorem 3.8, EMP what was measured.
K is gamma, r the tokens decoded in a call over K + 1 (Chen et al., 2023).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

from experiments import catalogue
from experiments.records.markup import interval, number, uncertain
from experiments.records.table import Records
from experiments.report.columns import measured
from experiments.report.walltime import XLA, named
from specjax.theory import closed_forms, estimate

CONFIDENCE = 0.95
DRAFTS = ("unigram", "bigram", "small", "base", "large")  # of table3, by capacity
FAMILIES = {"gpt": 3, "ende": 5, "docs": 5}  # how many of them each has
TRIVIAL = ("unigram", "bigram")
OF_THE_DRAFT = ("gamma", "rule", "policy", "kernels")  # no matter to the target's texts
NEGLIGIBLE_C = 0.02  # the least c that Table 4 prints
CLOSE = 0.05  # ours: wider than most intervals, finer than what gamma changes
HUNDREDTH = 50  # ours: a target this many times its draft is about a hundred times it
# Parameters of the bundled models in millions, by which c is expected to be small.
MILLIONS = {"code_target": 33.6, "code_small": 0.99, "t5_target": 41.4}
MILLIONS |= {"t5_large": 4.7, "t5_base": 2.5, "t5_small": 1.0}
# By the page's own order, whose per cents are of no pair that it names.
WORDS = ("function word", "other word"), ("other word", "name")


class Number(NamedTuple):
    """A number with its standard error, and how it is written."""

    value: float
    error: float = 0.0
    shown: str = ""


def exactly(x: float) -> Number:
    return Number(x, 0.0, number(x))


def critical(count: int) -> float:
    """How many standard errors decide one of `count` comparisons, two-sided."""
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * count))


def error_of(ends: Sequence[float]) -> float:
    """The standard error behind a 95 % interval, as of a normal law."""
    low, high = ends
    return (high - low) / (2 * critical(1))


# Subjects.


def table1(records: Records) -> list[dict]:
    """Each number of Table 1, once every row is there."""
    lines, rows = catalogue.named("table1").lines, measured(records, "table1")
    if any(line.row not in rows for line in lines):
        return []
    return [
        {
            "label": line.what,
            "ours": rows[line.row][line.quantity],
            "published": line.published,
        }
        for line in lines
    ]


def table2(records: Records) -> list[dict]:
    """By batch, draft and temperature; batch 1 decides, as in the paper. A row by XLA's
    products is one of these again."""
    rows = measured(records, "table2").items()
    every = [it for row, it in rows if not row.endswith(XLA)]
    every.sort(key=lambda it: (it["batch"], named(it), it["temperature"]))
    return [
        it
        | {
            "label": f"{named(it)}, T = {it['temperature']:g}, batch {it['batch']}",
            "beside": it["batch"] != 1,
        }
        for it in every
    ]


def drafted(records: Records) -> list[dict]:
    """Those rows of table2 that have a c."""
    return [it for it in table2(records) if costs(it)]


def ngrams(records: Records) -> list[dict]:
    return [it for it in drafted(records) if it["draft"] in TRIVIAL]


def gaining(records: Records) -> list[dict]:
    return [it for it in table2(records) if it["best_gamma"]]


def beside(records: Records) -> list[dict]:
    """Rows of table2 at a best gamma that drafts, to be told beside Chen's."""
    return [it | {"beside": True} for it in drafted(records) if it["best_gamma"]]


def greedy(records: Records) -> list[dict]:
    rows = table2(records), every_alpha(records)
    return [
        it | {"beside": False, "count": it.get("texts", it.get("sequences"))}
        for it in itertools.chain(*rows)
        if it.get("temperature", it.get("heat")) == 0
    ]


def deciding(rows: list[dict]) -> list[dict]:
    """The same whatever the batch."""
    return [it | {"beside": False} for it in rows]


def calls(records: Records) -> list[dict]:
    """The tokens of a call, of every gamma of table2 and of table3."""
    several = [it | {"tokens": it["tokens_per_call"]} for it in table2(records)]
    for it in every_alpha(records):
        few = it["decoded_tokens"] / it["target_calls"]
        several.append(it | {"tokens": [few]})
    return deciding(several)


def chens_calls(records: Records) -> list[dict]:
    rows = table2(records) + [
        it | {"tokens_per_call": [it["tokens_per_call"]], "gamma": [it["K"]]}
        for it in chen(records)
    ]
    return deciding(rows)


def at_every_gamma(records: Records) -> Iterator[dict]:
    """Equation 1 beside the tokens of a call; a `group` is one row. Of table3 whole
    calls: Chen's r counts them beyond the end of a text."""
    for it in table2(records):
        for at, gamma in enumerate(it["gamma"]):
            tokens, luck = it["tokens_per_call"][at], it["steps_se"][at] or 0.0
            counted = it["predicted_tokens_per_call"][at]
            error = tokens * luck / it["steps"][at]
            here = {"gamma": gamma, "tokens": tokens, "tokens_se": error}
            here |= {"beside": False, "counted": counted, "group": it["label"]}
            yield it | here
    for it in every_alpha(records):
        gamma, r = it["protocol"]["gamma"], it["estimates"]["chen_r"]
        tokens, error = ((gamma + 1) * r[key] for key in ("value", "se"))
        here = {"gamma": gamma, "tokens": tokens, "tokens_se": error}
        yield it | here | {"group": it["label"]}


def least_gamma(records: Records) -> Iterator[dict]:
    """The least gamma that drafts."""
    for it in drafted(records):
        at = it["c"].index(costs(it)[0])
        tokens, luck = it["tokens_per_call"][at], it["steps_se"][at] or 0.0
        here = {"gamma": it["gamma"][at], "tokens": tokens}
        yield it | here | {"tokens_se": tokens * luck / it["steps"][at]}


def largest_gamma(records: Records) -> Iterator[dict]:
    for it in drafted(records):
        yield (
            it
            | {f"last_{key}": it[key][-1] for key in ("gamma", "c", "v")}
            | {
                "speed": it["speedup"][-1],
                "speed_ci": it["speedup_ci"][-1],
            }
        )


def forecasts(records: Records) -> Iterator[dict]:
    """Every gamma that other texts predict; a `group` is one row."""
    for it in table2(records):
        for at, forecast in enumerate(it["predicted"]):
            if forecast is not None:
                yield {
                    "label": f"{it['label']}: gamma = {it['gamma'][at]}",
                    "group": it["label"],
                    "predicted": forecast,
                    "predicted_ci": it["predicted_ci"][at],
                    "speed": it["speedup"][at],
                    "speed_ci": it["speedup_ci"][at],
                }


def heats(records: Records) -> list[dict]:
    """Drafts of table2 at both temperatures and batch 1."""
    rows = [it for it in table2(records) if not it["beside"]]
    hot = {named(it): it for it in rows if it["temperature"] == 1}
    return [
        {"label": draft, "cold": it["best_speedup"], "cold_ci": it["best_speedup_ci"]}
        | {"hot": hot[draft]["best_speedup"], "hot_ci": hot[draft]["best_speedup_ci"]}
        for draft, it in ((named(it), it) for it in rows if it["temperature"] == 0)
        if draft in hot
    ]


def places() -> list[tuple[str, str, int]]:
    """Family, draft and temperature of every row of table3 that claims are about."""
    return [
        (family, draft, heat)
        for family, count in FAMILIES.items()
        for draft in DRAFTS[:count]
        for heat in (0, 1)
    ]


def alphas(records: Records) -> dict[tuple[str, str, int], dict]:
    """What folder table3 measured, by family, draft and temperature."""
    rows = measured(records, "table3")
    named = {at: "{}_{}_t{}".format(*at) for at in places()}
    return {at: rows[row] for at, row in named.items() if row in rows}


def every_alpha(records: Records) -> list[dict]:
    return [
        it
        | {
            "label": f"{draft} ({family}), T = {heat}, folder table3",
            "draft_kind": draft,
            "heat": heat,
        }
        for (family, draft, heat), it in alphas(records).items()
    ]


def trivial(records: Records) -> list[dict]:
    return [it for it in every_alpha(records) if it["draft_kind"] in TRIVIAL]


def by_capacity(records: Records) -> list[dict]:
    """Each draft beside the next larger one, once all are there."""
    at = alphas(records)
    if len(at) < len(places()):
        return []
    return [
        {"label": f"{family}, T = {heat}: {more} above {less}"}
        | {"more": at[family, more, heat], "less": at[family, less, heat]}
        for family, count in FAMILIES.items()
        for heat in (0, 1)
        for less, more in itertools.pairwise(DRAFTS[:count])
    ]


def by_heat(records: Records) -> list[dict]:
    """Each draft at T = 0 beside T = 1, once all are there."""
    at = alphas(records)
    if len(at) < len(places()):
        return []
    return [
        {"label": f"{draft} ({family}): T = 0 above T = 1"}
        | {"more": at[family, draft, 0], "less": at[family, draft, 1]}
        for family, draft, _ in places()[::2]
    ]


def operations(records: Records) -> list[dict]:
    every = measured(records, "operations").values()
    return [
        it | {"label": f"{it['draft']}, gamma = {it['gamma']}, batch {it['batch']}"}
        for it in sorted(every, key=lambda it: (it["draft"], it["batch"], it["gamma"]))
    ]


def traced(records: Records) -> list[dict]:
    """Figure 1's texts."""
    every = measured(records, "figure1").values()
    return sorted(every, key=lambda it: it["gamma"])


def chen(records: Records) -> list[dict]:
    """What was measured by Chen's protocol: K drafted tokens a call, whole texts."""
    every = measured(records, "chen_data", "chen_paper").values()
    rows = [it for it in every if "theoretical_speed" in it]  # not a row of walltime
    rows.sort(key=lambda it: (it["task"], it["draft"], it["temperature"]))
    return [
        it
        | {
            "label": f"{it['draft']} ({Path(it['task']).stem}),"
            f" T = {it['temperature']:g}, K = {it['K']}",
            "speed_ci": it["speed_interval"],
        }
        for it in rows
    ]


def certificate(records: Records) -> list[dict]:
    rows = measured(records, "certificate")
    return [rows["token"] | {"label": "cases"}] if "token" in rows else []


def conformance(records: Records) -> list[dict]:
    """Total variation over three tokens."""
    rows = measured(records, "conformance").values()
    return [it | {"label": "total variation over three tokens"} for it in rows]


def verified(folder: str, records: Records) -> list[dict]:
    """Wagner et al. (2024): a pair of models."""
    each = measured(records, folder).values()
    rows = [it | {"label": f"{it['target']} with {it['draft']}"} for it in each]
    return sorted(rows, key=lambda it: it["label"])


def texts(records: Records) -> list[dict]:
    return verified("wagner_text", records)


def scales(records: Records) -> list[dict]:
    return verified("wagner_scale", records)


def summaries(records: Records) -> list[dict]:
    return [it for it in texts(records) if "rouge1_baseline" in it]


def lengths(records: Records) -> Iterator[dict]:
    """The best gamma of Theorem 3.8 beside the page's 1 / (1 - alpha)."""
    for row, it in sorted(measured(records, "figure3").items()):
        for alpha in (0.7, 0.9):
            yield {
                "label": f"alpha = {alpha}, c = {row.rpartition('_')[2]}",
                "best_gamma": it["best_gamma"][it["alpha"].index(alpha)],
                "page": 1 / (1 - alpha),
            }


def words(records: Records) -> Iterator[dict]:
    for row, it in sorted(measured(records, "kinds", "kinds_data").items()):
        cells = {cell["label"]: cell["expected"] for cell in it["groups"]["kind"]}
        for easy, hard in WORDS:
            if not cells.keys() >= {easy, hard}:
                continue  # in German all nouns look like names
            if None in (*cells[easy], *cells[hard]):
                continue  # of too few texts
            pair = {"label": f"{row}: {easy}s above {hard}s"}
            for name, (value, *ends) in ("easy", cells[easy]), ("hard", cells[hard]):
                pair |= {name: value, f"{name}_ci": ends}
            yield pair


# Numbers that no record has as they are.


def costs(it: dict) -> list[float]:
    return [c for c in it["c"] if c is not None]


def slope(alpha: float, gamma: int) -> float:
    """What Equation 1 changes by with alpha."""
    return sum(i * alpha ** (i - 1) for i in range(1, gamma + 1))


def equation_1(it: dict, fewer: int = 0) -> Number:
    alpha, gamma = it["alpha"], it["gamma"] - fewer
    tokens = closed_forms.expected_tokens(alpha, gamma)
    shown = f"{number(tokens)} at gamma = {it['gamma']}"
    return Number(tokens, slope(alpha, gamma) * it["alpha_se"], shown)


def difference(it: dict) -> Number:
    """alpha of one measurement less that of another: text by text where both drafts
    were measured on the same texts, else as of independent numbers."""
    more, less = it["more"], it["less"]
    both = [m.get("alpha_by_text") for m in (more, less)]
    shown = ", ".join(f"{m['alpha']:.3f} ± {m['alpha_se']:.3f}" for m in (more, less))
    if None in both or written(more) != written(less):
        error = math.hypot(more["alpha_se"], less["alpha_se"])
        gap, how = more["alpha"] - less["alpha"], "taken as independent"
        return Number(gap, error, f"{shown}; {how}")
    paired = estimate.difference(*(m["beta"] for m in both), both[0]["tokens"])
    how = f"text by text {number(paired.value)} ± {number(paired.se)}"
    return Number(paired.value, paired.se, f"{shown}; {how}")


def written(it: dict) -> tuple:
    """What says which texts alpha was measured on: who wrote them, and how."""
    how = {name: x for name, x in it["protocol"].items() if name not in OF_THE_DRAFT}
    return it["target"], how, it["alpha_by_text"]["tokens"]


def largest_c(it: dict) -> Number:
    c = max(costs(it))
    ends = it["c_ci"][it["c"].index(c)]
    return Number(c, error_of(ends), interval(c, ends))


def minimum_gain(it: dict) -> Number:
    """Corollary 3.9."""
    return exactly(closed_forms.minimum_gain(it["alpha"], costs(it)[0]))


def limit(it: dict) -> Number:
    """1 / (1 - alpha), which takes c = 0 and v = 1."""
    x = 1 / (1 - it["alpha"])
    return Number(x, it["alpha_se"] * x**2, number(x))


def per_token(name: str, it: dict) -> Number:
    """A factor of operations or bytes, with the luck of the tokens."""
    tokens = closed_forms.expected_tokens(it["alpha"], it["gamma"])
    luck = slope(it["alpha"], it["gamma"]) * it["alpha_se"] / tokens
    return Number(it[name], it[name] * luck, number(it[name]))


def room(it: dict) -> Number:
    """How far the tokens of calls are from fewer than 1 and from more than K + 1."""
    tokens = it["tokens_per_call"]
    both = zip(tokens, it["gamma"], strict=True)
    least = min(min(count - 1, gamma + 1 - count) for count, gamma in both)
    return Number(least + 1e-9, 0.0, f"{number(min(tokens))} to {number(max(tokens))}")


def by_r(it: dict) -> Number:
    """Chen's speed by r, from r of a row of theirs, or of one at its best gamma."""
    if "theoretical_speed" in it:
        c, v = (it[f"t_{part}_ms"] / it["t_target_ms"] for part in ("draft", "score"))
        speed, r = it["theoretical_speed"], it["r"]
        with_v = it["tokens_per_call"] / (it["K"] * c + v)
        shown = f"{number(speed)} by r = {number(r)} (v = {number(v)}, with which"
        return Number(speed, speed * it["r_se"] / r, f"{shown} {number(with_v)})")
    r = closed_forms.chen_r(it["best_tokens_per_call"], it["best_gamma"])
    speed = closed_forms.chen_speedup(r, it["best_gamma"], it["best_c"], 1.0)
    return Number(speed, 0.0, f"{number(speed)} by r = {number(r)}")


def lost(it: dict, method: str = "sigmoid_1e4") -> Number:
    """ROUGE-1 of the baseline less that of a method."""
    first, second = (it[f"rouge1_{name}"] for name in ("baseline", method))
    errors = (it[f"rouge1_se_{name}"] for name in ("baseline", method))
    error = math.hypot(*errors)
    return Number(first - second, error, uncertain(first - second, error))


def most_memory(it: dict) -> Number:
    return exactly(max(it["peak_kib_exact"], it["peak_kib_sigmoid_1e4"]))


def time_error(it: dict, method: str) -> float:
    """Of a median over rounds, for a normal law 1.2533 times that of a mean."""
    return 1.2533 * it[f"us_{method}_sd"] / it["rounds"] ** 0.5


NUMBERS = {
    "equation 1": equation_1,
    "the page's tokens": lambda it: equation_1(it, fewer=1),
    "fewest tokens": lambda it: exactly(min(it["tokens"])),
    "difference": difference,
    "largest c": largest_c,
    "least gain": minimum_gain,
    "limit": limit,
    "operations": lambda it: per_token("operations_factor", it),
    "bytes": lambda it: per_token("bytes_factor", it),
    "room": room,
    "by r": by_r,
    "loss": lost,
    "most memory": most_memory,
}


def number_of(it: dict, name: str | float) -> Number:
    """A constant, one of NUMBERS, or what a record has under this name."""
    if not isinstance(name, str):
        return exactly(name)
    if name in NUMBERS:
        return NUMBERS[name](it)
    x, (kind, _, method) = it[name], name.partition("_")
    if f"{name}_ci" in it:
        return Number(x, error_of(it[f"{name}_ci"]), interval(x, it[f"{name}_ci"]))
    if kind == "us":
        error = time_error(it, method)
    elif name.startswith("step_reduction_"):
        method = name.removeprefix("step_reduction_")
        error = 100 * time_error(it, method) / it["us_baseline"]
    else:
        error = it.get(f"{name}_se", it.get(f"{kind}_se_{method}"))
    return Number(x, error or 0.0, uncertain(x, error or None))


# What a claim takes for granted: nothing, or what it lacks here, with the numbers.


def scoring_costs(it: dict) -> str:
    """That v is not 1 where the speed is best, as Theorem 3.8 takes it to be."""
    at = it["gamma"].index(it["best_gamma"])
    if it["v"][at] <= 1 + CLOSE:
        return ""
    return f"v = {interval(it['v'][at], it['v_ci'][at])} at gamma = {it['gamma'][at]}"


def large_draft(it: dict) -> str:
    """That the draft is not a hundredth of the target, where both sizes are known."""
    target, draft = (MILLIONS.get(it[side]) for side in ("target", "draft"))
    if target is None or draft is None or target / draft >= HUNDREDTH:
        return ""
    return f"the draft is 1/{target / draft:.0f} of its target"


def corollary(it: dict) -> str:
    """What Corollary 3.9 lacks in a row: alpha above c, or v = 1."""
    if it["alpha"] <= costs(it)[0]:
        return f"alpha {number(it['alpha'])} is not above c {number(costs(it)[0])}"
    return scoring_costs(it)


def costly_ngrams(it: dict) -> str:
    c = costs(it)[0]
    if c >= NEGLIGIBLE_C:
        return f"c = {number(c)}, not below {NEGLIGIBLE_C}"
    return scoring_costs(it)


def dependent(it: dict) -> str:
    """An exact count that Equation 1 misses as well shows that acceptances are not
    independent, or that texts end."""
    if "counted" not in it:
        return ""
    if it["counted"] is None:
        return "no draft at every position: alpha is of those tested"
    if abs(equation_1(it).value / it["counted"] - 1) <= CLOSE:
        return ""
    return f"not independent, or texts end: {number(it['counted'])} by exact count"


def not_free(it: dict) -> str:
    c, v = it["last_c"], it["last_v"]
    large = c > NEGLIGIBLE_C or v > 1 + CLOSE
    return f"c = {number(c)}, v = {number(v)}" if large else ""


def blind(it: dict) -> str:
    """ROUGE-1 must see a loss to bound it: a control that keeps every draft shows."""
    most = lost(it, "always")
    if abs(most.value) > critical(1) * most.error:
        return ""
    return f"keeping every draft loses {most.shown} as well"


# What was measured here beside claims that nothing here can test.


def our_texts(records: Records) -> str:
    return "; ".join(
        f"{it['tokens']} tokens in {it['target_calls']} runs at gamma = {it['gamma']}"
        f" ({number(it['tokens'] / it['target_calls'])} a run)"
        for it in traced(records)
    )


def our_best(records: Records) -> str:
    rows = table2(records)
    if not rows:
        return ""
    top = max(rows, key=lambda it: it["best_speedup"])
    return f"at best {number_of(top, 'best_speedup').shown} ({top['label']})"


def our_chen(records: Records) -> str:
    rows = chen(records)
    return "; ".join(f"{it['label']}: {number_of(it, 'speed').shown}" for it in rows)


SUBJECTS = {
    f.__name__: f
    for f in (
        *(table1, table2, drafted, ngrams, gaining, beside, greedy, calls, chens_calls),
        *(at_every_gamma, least_gamma, largest_gamma, forecasts, heats, trivial),
        *(by_capacity, by_heat, operations, chen, certificate, conformance, texts),
        *(scales, summaries, lengths, words),
    )
}
PRECONDITIONS = {
    f.__name__: f
    for f in (
        *(scoring_costs, large_draft, corollary, costly_ngrams, dependent, not_free),
        blind,
    )
}
OURS = {f.__name__: f for f in (our_texts, our_best, our_chen)}
