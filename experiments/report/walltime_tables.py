"""Records of walltime in the shape of the paper's tables: a line a pair or a gamma.

Records from before steps were fitted at two gammas have no c, v and overhead inside a
step, and their prediction was of whole steps measured at the very gamma. What they lack
says so; their prediction is made again, from the times and counts that they hold.
"""

from experiments.leviathan.walltime_table import XLA
from experiments.records.markup import number
from experiments.records.records import device
from experiments.records.table import Records
from specjax.bench import inside
from specjax.theory.calibrate import Step

BEFORE = "recorded before it was measured: not available"
FITTED, BASELINE = "fitted, not predicted", "baseline"
LAWLESS, SHORT = "no law to predict by", "steps too short for the clock"
WHY = BEFORE, FITTED, BASELINE, LAWLESS, SHORT
BEST = ("best_predicted", "best_overhead")  # what a record may lack

HEAD = ["draft", "T", "batch", "gamma", "alpha", "c", "v", "c inside", "v inside"]
HEAD += ["overhead", "EXP", "predicted", "EMP [95 %]", "prediction / EMP - 1"]
HEAD += ["fitted at", "repeated text", "alpha outside of it", "products", "hardware"]
BATCHES = ["texts at a time", "predicted best speed", "EMP [95 %]", "at gamma", ""]
EVERY = ["gamma", "c [95 %]", "v [95 %]", "c inside", "v inside", "overhead"]
EVERY += ["step, ms", "tokens a call", "predicted", "EXP", "predicted speed"]
EVERY += ["EMP [95 %]", "prediction / EMP - 1"]


def current(measured: dict) -> dict:
    """The numbers of a record of walltime as one of today has them; others as they are.

    Of one from before: the speeds at the gammas that are not fitted, predicted from its
    own times at those that are; and whole steps of the texts that are measured, where
    `step_ms` was of other texts.
    """
    if "fitted" in measured or "predicted_steps" not in measured:
        return measured
    it = measured | inside.speeds(measured) | {"step_ms": inside.steps(measured)}
    it |= dict.fromkeys(("overhead", "overhead_se"), [None] * len(it["gamma"]))
    at = it["gamma"].index(it["best_gamma"])
    it |= {f"best_{key}": it[key][at] for key in ("predicted", "residual", "overhead")}
    return it | {"inside": None, "before": True}


def missing(it: dict, name: str, gamma: int) -> str:
    """Why a record has no number of this name at this gamma."""
    if name in ("overhead", "c", "v"):
        return BEFORE if it.get("before") else SHORT
    if gamma in (0, *it["fitted"]):
        return FITTED if gamma else BASELINE
    return LAWLESS if None in it["predicted_steps"] else SHORT


def wider(records: Records) -> list[tuple[str, list, list]]:
    """Table 4 in the paper's shape, of all records of walltime."""
    folders = "table2", "table2_data", "table2_paper"
    measured = {k: v for name in folders for k, v in records.get(name, {}).items()}
    title = "In the paper's shape, at the best gamma"
    shape = [(title, HEAD, best(measured))] if measured else []
    return shape + batches(measured)


def batches(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """How many texts at a time speculation still gains with, for each pair that was
    measured with several; predicted by whichever gamma was not fitted."""
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
    predicted = [x for x in it["predicted"] if x is not None]
    low, high = it["best_speedup_ci"]
    verdict = "gains" if low > 1 else "loses" if high < 1 else "neither, by its error"
    return [
        str(it["batch"]),
        number(max(predicted)) if predicted else "",
        interval(it["best_speedup"], it["best_speedup_ci"]),
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
        *map(number_or_blank, (it[name] for name in ("alpha", "best_c", "best_v"))),
        *within(it, at),
        number(it["best_exp"]),
        prediction(it, at),
        interval(it["best_speedup"], it["best_speedup_ci"]),
        percent(it["best_residual"]),
        " and ".join(map(str, it["fitted"])),
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


def within(it: dict, at: int) -> list[str]:
    """c, v and the overhead inside a step, each with its standard error."""
    gamma, step = it["gamma"][at], it["inside"]
    if step is None:
        names = ("c", "v", "overhead")
        return [missing(it, name, gamma) if gamma else "" for name in names]
    parts = Step(*(step[name] for name in Step._fields))
    c = uncertain(parts.c, step["c_se"]) if gamma else ""
    v = number(parts.v(gamma)) if gamma else ""
    return [c, v, uncertain(it["overhead"][at], it["overhead_se"][at])]


def prediction(it: dict, at: int) -> str:
    x = it["predicted"][at]
    return missing(it, "predicted", it["gamma"][at]) if x is None else number(x)


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
        *within(it, at),
        number(it["step_ms"][at]),
        number(it["tokens_per_call"][at]),
        number_or_blank(it["predicted_tokens_per_call"][at]),
        number(it["exp"][at]),
        prediction(it, at),
        interval(it["speedup"][at], it["speedup_ci"][at]),
        percent(it["residual"][at]),
    ]


def title(record: dict) -> str:
    it = record["measured"]
    pair = f"{it['target']} with {named(it)}, {products(record)} products"
    return f"{pair}, T = {it['temperature']:g}, batch {it['batch']}: every gamma"


def interval(value: float | None, ends: list[float] | None) -> str:
    if value is None:
        return ""
    return f"{number(value)} [{', '.join(map(number, ends))}]"


def number_or_blank(x: float | None) -> str:
    """A number, or nothing where there is none, such as a call not to be predicted."""
    return "" if x is None else number(x)


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:+.1f} %"
