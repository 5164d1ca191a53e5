"""Records of walltime in the shape of the paper's tables: a line a pair or a gamma.

Speeds, their intervals and predictions are made of the seconds of every text that a
record keeps (`specjax.theory.speedup`). Records from before have none: they show the
interval that was recorded, marked. Their overhead follows from their steps; what they
called predicted was a line through the same texts' steps, and is not shown.
"""

from experiments.papers.leviathan.walltime_table import XLA
from experiments.records.markup import number
from experiments.records.records import device
from experiments.records.table import Records
from specjax.theory import speedup

BEFORE = "not in a record of this age"
BASELINE = "baseline"
LAWLESS = "no law of every step to predict by"
WHY = BEFORE, BASELINE, LAWLESS
BEST = ("best_predicted",)  # what a record may lack
RECORDED = "as recorded"

HEAD = ["draft", "T", "batch", "gamma", "chosen on", "alpha", "c", "v", "overhead"]
HEAD += ["EXP", "predicted [95 %]", "EMP [95 %]", "prediction / EMP - 1"]
HEAD += ["repeated text", "alpha outside of it", "products", "hardware"]
BATCHES = ["texts at a time", "predicted best speed", "EMP [95 %]", "at gamma", ""]
EVERY = ["gamma", "c [95 %]", "v [95 %]", "overhead", "step, ms", "tokens a call"]
EVERY += ["by their own scores", "by other texts", "EXP", "predicted speed [95 %]"]
EVERY += ["EMP [95 %]", "prediction / EMP - 1"]


def current(measured: dict) -> dict:
    """The numbers of a record of walltime, speeds from its seconds; others as they are.

    Of one that keeps no seconds: the recorded speeds, no prediction, and the overhead
    of its whole steps.
    """
    if "chosen_on" in measured:
        return measured | speedup.speedup_from(measured)
    if "predicted_steps" not in measured:
        return measured
    nothing = [None] * len(measured["gamma"])
    names = "predicted", "predicted_ci", "residual", "expected_tokens_per_call"
    it = measured | dict.fromkeys(names, nothing)
    steps, costs = it["step_ms"], speedup.costs(it)
    rest = [ms / it["target_ms"] - x for ms, x in zip(steps, costs, strict=True)]
    it |= {"overhead": rest, "overhead_se": nothing}
    it |= dict.fromkeys((f"best_{name}" for name in names), None)
    return it | {"best_overhead": rest[it["gamma"].index(it["best_gamma"])]}


def missing(it: dict, name: str, gamma: int) -> str:
    """Why a record has no number of this name at this gamma."""
    del name
    if gamma == 0:
        return BASELINE
    return LAWLESS if "chosen_on" in it or None in it["predicted_steps"] else BEFORE


def wider(records: Records) -> list[tuple[str, list, list]]:
    """Table 4 in the paper's shape, of all records of walltime."""
    folders = "table2", "table2_data", "table2_paper"
    measured = {k: v for name in folders for k, v in records.get(name, {}).items()}
    title = "In the paper's shape, at the best gamma"
    shape = [(title, HEAD, best(measured))] if measured else []
    return shape + batches(measured)


def batches(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """How many texts at a time speculation still gains with, for each pair that was
    measured with several; predicted at whichever gamma that is best with."""
    grouped: dict[str, list[dict]] = {}
    for row, record in records.items():
        it = record["measured"]
        if not row.endswith(XLA):
            pair = f"{it['target']} with {named(it)}, T = {it['temperature']:g}"
            grouped.setdefault(pair, []).append(it)
    tables = []
    for pair, several in grouped.items():
        several.sort(key=lambda it: it["batch"])
        if len({it["batch"] for it in several}) > 1:
            lines = [batch_line(it) for it in several]
            tables.append((f"{pair}: by batch", BATCHES, lines))
    return tables


def batch_line(it: dict) -> list[str]:
    low, high = it["best_speedup_ci"] or (0.0, float("inf"))
    verdict = "gains" if low > 1 else "loses" if high < 1 else "neither, by its error"
    at = it["gamma"].index(it["best_gamma"])
    return [
        str(it["batch"]),
        prediction(it, at),
        speed(it, it["best_speedup"], it["best_speedup_ci"]),
        str(it["best_gamma"]),
        verdict,
    ]


def gammas(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """A table of every gamma for each record that has more than one."""
    lines = ((title(record), EVERY, every_gamma(record)) for record in records.values())
    return [table for table in lines if table[-1]]


def best(records: dict[str, dict]) -> list[list[str]]:
    """A line a record: Table 4's columns, and what it lacks."""
    return [_best(record) for record in records.values()]


def _best(record: dict) -> list[str]:
    it = record["measured"]
    at = it["gamma"].index(it["best_gamma"])
    return [
        named(it),
        f"{it['temperature']:g}",
        str(it["batch"]),
        str(it["best_gamma"]),
        f"{it['chosen_on']} others" if it.get("chosen_on") else "the same texts",
        *map(number_or_blank, (it[name] for name in ("alpha", "best_c", "best_v"))),
        uncertain(it["overhead"][at], it["overhead_se"][at]),
        number(it["best_exp"]),
        prediction(it, at),
        speed(it, it["best_speedup"], it["best_speedup_ci"]),
        percent(it["residual"][at]),
        *repeats(it),
        products(record),
        device(record),
    ]


def repeats(it: dict) -> list[str]:
    """The share of repeated text and alpha elsewhere, of greedy texts."""
    if it.get("repeated") is None:
        return ["", ""]
    elsewhere = it["alpha_fresh"]
    alpha = "" if elsewhere is None else uncertain(elsewhere, it["alpha_fresh_se"])
    return [f"{100 * it['repeated']:.0f} %", alpha]


def products(record: dict) -> str:
    """Who multiplied few rows: "thin" or "xla"; before there was a choice, XLA did."""
    return record["provenance"].get("products", "xla")


def prediction(it: dict, at: int) -> str:
    x, ends = it["predicted"][at], it["predicted_ci"][at]
    return missing(it, "predicted", it["gamma"][at]) if x is None else interval(x, ends)


def speed(it: dict, value: float, ends: list[float] | None) -> str:
    """A measured speed; an interval that the record alone cannot give again says so."""
    return interval(value, ends) + ("" if "chosen_on" in it else f" {RECORDED}")


def uncertain(x: float, error: float | None) -> str:
    return number(x) if error is None else f"{number(x)} ± {number(error)}"


def named(it: dict) -> str:
    """The draft of a walltime record, and its task where that is not code."""
    task = it.get("task", "code")
    return it["draft"] if task == "code" else f"{it['draft']} ({task})"


def every_gamma(record: dict) -> list[list[str]]:
    """A line a gamma of one record."""
    return [_at(record["measured"], at) for at in range(len(record["measured"]["c"]))]


def _at(it: dict, at: int) -> list[str]:
    return [
        str(it["gamma"][at]),
        interval(it["c"][at], it["c_ci"][at]),
        interval(it["v"][at], it["v_ci"][at]),
        uncertain(it["overhead"][at], it["overhead_se"][at]),
        number(it["step_ms"][at]),
        number(it["tokens_per_call"][at]),
        number_or_blank(it["predicted_tokens_per_call"][at]),
        number_or_blank(it["expected_tokens_per_call"][at]),
        number(it["exp"][at]),
        prediction(it, at),
        speed(it, it["speedup"][at], it["speedup_ci"][at]),
        percent(it["residual"][at]),
    ]


def title(record: dict) -> str:
    it = record["measured"]
    pair = f"{it['target']} with {named(it)}, {products(record)} products"
    return f"{pair}, T = {it['temperature']:g}, batch {it['batch']}: every gamma"


def interval(value: float | None, ends: list[float] | None) -> str:
    if value is None or ends is None:
        return number_or_blank(value)
    return f"{number(value)} [{', '.join(map(number, ends))}]"


def number_or_blank(x: float | None) -> str:
    """A number, or nothing where there is none, such as a call not to be predicted."""
    return "" if x is None else number(x)


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:+.1f} %"
