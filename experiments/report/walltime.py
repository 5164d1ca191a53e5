"""Records of walltime: their speeds from their seconds, and the paper's columns.

Speeds, their intervals and predictions are made of the seconds of every text that a
record keeps (`specjax.theory.speedup`). Records from before have none: they show the
interval that was recorded, marked. Their overhead follows from their steps; what they
called predicted was a line through the same texts' steps, and is not shown.
"""

from collections.abc import Callable

from experiments.records.markup import interval, number, uncertain
from experiments.records.records import device
from experiments.records.table import Records
from experiments.report.columns import (
    Columns,
    Grid,
    Item,
    ends,
    erring,
    grid,
    plain,
    some,
)
from specjax.theory import speedup

BEFORE = "not in a record of this age"
BASELINE = "baseline"
LAWLESS = "no law of every step to predict by"
WHY = BEFORE, BASELINE, LAWLESS
RECORDED = "as recorded"
XLA = "_xla"  # ends the name of a row that XLA's own products measured again
FOLDERS = "table2", "table2_data", "table2_paper"
PREDICTION = "predicted", "predicted_ci", "residual", "expected_tokens_per_call"


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
    it = measured | dict.fromkeys(PREDICTION, nothing)
    steps, costs = it["step_ms"], speedup.costs(it)
    rest = [ms / it["target_ms"] - x for ms, x in zip(steps, costs, strict=True)]
    it |= {"overhead": rest, "overhead_se": nothing}
    it |= dict.fromkeys((f"best_{name}" for name in PREDICTION), None)
    return it | {"best_overhead": rest[it["gamma"].index(it["best_gamma"])]}


def unpredicted(it: Item, gamma: int) -> str:
    """Why a record has no prediction at this gamma."""
    if gamma == 0:
        return BASELINE
    return LAWLESS if "chosen_on" in it or None in it["predicted_steps"] else BEFORE


def named(it: Item) -> str:
    """The draft of a walltime record, and its task where that is not code."""
    task = it.get("task", "code")
    return it["draft"] if task == "code" else f"{it['draft']} ({task})"


def products(record: dict) -> str:
    """Who multiplied few rows: "thin" or "xla"; before there was a choice, XLA did."""
    return record["provenance"].get("products", "xla")


def at(record: dict, i: int) -> dict:
    """A record's numbers at the i-th of its gammas, and what else is shown of it."""
    it = record["measured"]
    lists = {k: x for k, x in it.items() if isinstance(x, list) and k[:5] != "best_"}
    there = {k: x[i] for k, x in lists.items() if len(x) == len(it["gamma"])}
    shown = {"record": it, "draft": named(it), "products": products(record)}
    return it | there | shown | {"device": device(record)}


def at_best(record: dict) -> dict:
    it = record["measured"]
    return at(record, it["gamma"].index(it["best_gamma"]))


def prediction(it: Item) -> str:
    if it["predicted"] is None:
        return unpredicted(it["record"], it["gamma"])
    return interval(it["predicted"], it["predicted_ci"])


def speed(it: Item) -> str:
    """A measured speed; an interval that the record alone cannot give again says so."""
    shown = interval(it["speedup"], it["speedup_ci"])
    return shown + ("" if "chosen_on" in it else f" {RECORDED}")


def best_speed(it: Item) -> str:
    both = {"speedup": it["best_speedup"], "speedup_ci": it["best_speedup_ci"]}
    return speed(it | both)


def residual(it: Item) -> str:
    return "" if it["residual"] is None else f"{100 * it['residual']:+.1f} %"


def chosen(it: Item) -> str:
    return f"{it['chosen_on']} others" if it.get("chosen_on") else "the same texts"


def repeated(it: Item) -> str:
    return "" if it.get("repeated") is None else f"{100 * it['repeated']:.0f} %"


def elsewhere(it: Item) -> str:
    """alpha where a greedy text does not repeat itself."""
    if it.get("repeated") is None or it["alpha_fresh"] is None:
        return ""
    return uncertain(it["alpha_fresh"], it["alpha_fresh_se"])


def verdict(it: Item) -> str:
    low, high = it["best_speedup_ci"] or (0.0, float("inf"))
    return "gains" if low > 1 else "loses" if high < 1 else "neither, by its error"


BEST: Columns = {
    "draft": "{draft}",
    "T": "{temperature:g}",
    "batch": "{batch}",
    "gamma": "{best_gamma}",
    "chosen on": chosen,
    "alpha": plain("alpha"),
    "c": plain("best_c"),
    "v": plain("best_v"),
    "overhead": erring("overhead"),
    "EXP": plain("best_exp"),
    "predicted [95 %]": prediction,
    "EMP [95 %]": best_speed,
    "prediction / EMP - 1": residual,
    "repeated text": repeated,
    "alpha outside of it": elsewhere,
    "products": "{products}",
    "hardware": "{device}",
}
BATCHES: Columns = {
    "texts at a time": "{batch}",
    "predicted best speed": prediction,
    "EMP [95 %]": best_speed,
    "at gamma": "{best_gamma}",
    "": verdict,
}
EVERY: Columns = {
    "gamma": "{gamma}",
    "c [95 %]": ends("c"),
    "v [95 %]": ends("v"),
    "overhead": erring("overhead"),
    "step, ms": plain("step_ms"),
    "tokens a call": plain("tokens_per_call"),
    "by their own scores": plain("predicted_tokens_per_call"),
    "by other texts": plain("expected_tokens_per_call"),
    "EXP": plain("exp"),
    "predicted speed [95 %]": prediction,
    "EMP [95 %]": speed,
    "prediction / EMP - 1": residual,
}


def in_the_papers_shape(records: Records) -> list[Grid]:
    """Table 4 of all records; then how many texts at a time speculation gains with, of
    each pair that was measured with several."""
    rows = {k: at_best(x) for name in FOLDERS for k, x in records.get(name, {}).items()}
    shape = grid("In the paper's shape, at the best gamma", BEST, rows.values())
    pairs: dict[str, list[dict]] = {}
    for row, it in rows.items():
        if not row.endswith(XLA):
            pair = f"{it['target']} with {it['draft']}, T = {it['temperature']:g}"
            pairs.setdefault(f"{pair}: by batch", []).append(it)
    several = [
        grid(title, BATCHES, sorted(each, key=lambda it: it["batch"]))
        for title, each in pairs.items()
        if len({it["batch"] for it in each}) > 1
    ]
    return [*some(shape), *several]


def every_gamma(folder: str, records: Records) -> list[Grid]:
    """A row a pair with its gammas beside each other, then a table for each record."""
    grids = []
    for record in records.get(folder, {}).values():
        it = record["measured"]
        pair = f"{it['target']} with {named(it)}, {products(record)} products"
        title = f"{pair}, T = {it['temperature']:g}, batch {it['batch']}: every gamma"
        items = [at(record, i) for i in range(len(it["c"]))]
        grids.append(grid(title, EVERY, items))
    return [*some(by_pair(records.get(folder, {}))), *some(*grids)]


def by_pair(rows: dict[str, dict]) -> Grid:
    """Speeds of a record at each gamma, and what was published of its best."""
    gammas = {g for record in rows.values() for g in record["measured"]["gamma"] if g}

    def at_gamma(gamma: int) -> Callable[[Item], str]:
        def cell(it: Item) -> str:
            own = it["record"]
            here = gamma in own["gamma"]
            return number(own["speedup"][own["gamma"].index(gamma)]) if here else ""

        return cell

    columns: Columns = {"pair": "{target} with {draft}", "T": "{temperature:g}"}
    columns |= {"batch": "{batch}", "products": "{products}"}
    columns |= {f"gamma = {gamma}": at_gamma(gamma) for gamma in sorted(gammas)}
    columns |= {"best gamma": "{best_gamma}", "EMP [95 %]": best_speed}
    columns |= {"published": plain("published")}
    items = [
        at_best(record) | {"published": record["published"].get("best_speedup")}
        if record.get("published")
        else at_best(record)
        for record in rows.values()
    ]
    return grid("Speed at each gamma, a row a pair", columns, items)
