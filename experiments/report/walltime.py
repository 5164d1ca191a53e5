"""Records of walltime: speeds computed from their seconds, and the paper's columns.

Speeds, their intervals and predictions are computed from the seconds of every text that
a record keeps (`specjax.theory.speedup`). Older records have no seconds: they show the
recorded interval, marked as such. Their overhead follows from their steps. Their
prediction was a line through the steps of the same texts, and is not shown.
"""

from experiments.records.markup import (
    interval,
    number,
    number_or_blank,
    number_with_error,
)
from experiments.records.records import device
from experiments.records.table import Records
from experiments.report import names
from experiments.report.columns import Item, grid, read_columns, read_template, table
from experiments.report.typeset import NONE, Grid
from specjax.theory import speedup

BEFORE = "an older record lacks this"
BASELINE = "baseline"
LAWLESS = "the drafter has no probabilities, so no prediction"
WHY = BEFORE, BASELINE, LAWLESS
RECORDED, UNSURE = "as recorded", "undecided, within its error"
XLA = "_xla"  # ends the name of a row that XLA's own products measured again
FOLDERS = "table2", "table2_data", "table2_paper"
PRODUCTS = {"thin": "ours", "xla": "XLA's"}  # what a table calls them
PREDICTION = "predicted", "predicted_ci", "residual", "expected_tokens_per_call"


def update_record(measured: dict) -> dict:
    """Returns a record of walltime with the speeds computed from its seconds; other
    records unchanged.

    A record without seconds has the recorded speeds, no prediction, and the overhead of
    its whole steps. One that was made before memory was recorded says so.
    """
    if "decoded" in measured:
        return complete_chip_record(measured)
    if "chosen_on" in measured:
        return {"best_memory_mb": BEFORE} | measured | speedup.speedup_from(measured)
    if "predicted_steps" not in measured:
        return measured
    nothing = [None] * len(measured["gamma"])
    it = measured | dict.fromkeys(PREDICTION, nothing)
    steps, costs = it["step_ms"], speedup.step_costs(it)
    rest = [ms / it["target_ms"] - x for ms, x in zip(steps, costs, strict=True)]
    it |= {"overhead": rest, "overhead_se": nothing}
    it |= dict.fromkeys((f"best_{name}" for name in PREDICTION), None)
    return it | {"best_overhead": rest[it["gamma"].index(it["best_gamma"])]}


CHIP = "read_floor_ms", "prefill_alone_ms", "prefill_without_graphs_ms"


def complete_chip_record(measured: dict) -> dict:
    """Returns a record at the paper's sizes, with the numbers added that an older
    record lacks.

    They are the speed at the mean number of calls that the simulated acceptance gives,
    from its own steps, and words for the rest.
    """
    decoded = {it["gamma"]: it for it in measured["decoded"]}
    drafted = decoded[measured["gamma"]]
    whole = measured["texts"] * measured["prefill_ms"][1]
    whole += drafted["expected_calls"] * drafted["step_ms"]
    older = dict.fromkeys(CHIP, BEFORE) | {"speedup_expected": decoded[0]["ms"] / whole}
    return older | measured


def missing_prediction(it: Item, gamma: int) -> str:
    """Returns why a record has no prediction at this gamma."""
    if gamma == 0:
        return BASELINE
    return LAWLESS if "chosen_on" in it or None in it["predicted_steps"] else BEFORE


def draft_label(it: Item) -> str:
    """Returns the draft of a walltime record, and its task if that is not code."""
    task = it.get("task", "code")
    return it["draft"] if task == "code" else f"{it['draft']} ({task})"


def products(record: dict) -> str:
    """Returns the kind of matrix products for few rows, "thin" or "xla"; older records,
    made before there was a choice, used XLA's.
    """
    return record["provenance"].get("products", "xla")


def numbers_at(record: dict, i: int) -> dict:
    """Returns a record's numbers at the i-th of its gammas, and the cells made from
    them.
    """
    whole = record["measured"]
    lists = {k: x for k, x in whole.items() if isinstance(x, list) and k[:5] != "best_"}
    it = whole | {k: x[i] for k, x in lists.items() if len(x) == len(whole["gamma"])}
    forecast = interval(it["predicted"], it["predicted_ci"])
    off, repeats = it["residual"], it.get("repeated")
    others = it.get("chosen_on")
    fresh = None if repeats is None else it["alpha_fresh"]
    low, high = whole["best_speedup_ci"] or (0.0, float("inf"))
    return it | {
        "pair": names.pair(
            record["table"],
            record["row"],
            f"{whole['target']} with {draft_label(whole)}",
        ),
        "products": PRODUCTS.get(products(record), ""),
        "device": device(record),
        "prediction": forecast or missing_prediction(whole, it["gamma"]),
        "speed": speed(it, "speedup"),
        "best_speed": speed(it, "best_speedup"),
        "one_length": number_or_blank(whole.get("best_speedup_same_length")),
        "off": "" if off is None else f"{100 * off:+.1f} %",
        "chosen": f"{others} others" if others else "the same texts",
        "repeats": "" if repeats is None else f"{100 * repeats:.0f} %",
        "elsewhere": ""
        if fresh is None
        else number_with_error(fresh, it["alpha_fresh_se"]),
        "verdict": "gains" if low > 1 else "loses" if high < 1 else UNSURE,
        "at_gammas": dict(zip(whole["gamma"], whole["speedup"], strict=True)),
    }


def best_numbers(record: dict) -> dict:
    it = record["measured"]
    return numbers_at(record, it["gamma"].index(it["best_gamma"]))


def speed(it: Item, name: str) -> str:
    """Returns a measured speed; an interval that cannot be computed again from the
    record is marked.
    """
    shown = interval(it[name], it[f"{name}_ci"])
    return shown + ("" if "chosen_on" in it else f" {RECORDED}")


def paper_tables(records: Records) -> list[Grid]:
    """Returns the tables that explain Table 4: the parts of each prediction, the pairs
    that were measured with several batches, and a line for each pair with all gammas.
    """
    rows = {
        x["row"]: best_numbers(x)
        for name in FOLDERS
        for x in order_records(name, records)
    }
    pairs: dict[tuple, list[dict]] = {}
    for row, it in rows.items():
        if not row.endswith(XLA):
            pairs.setdefault((it["pair"], it["temperature"]), []).append(it)
    batches = [
        it
        for each in pairs.values()
        if len({it["batch"] for it in each}) > 1
        for it in sorted(each, key=lambda it: it["batch"])
    ]
    return [
        *grid("best", rows.values()),
        *grid("by_batch", batches),
        *gamma_table("speeds_by_gamma", records),
        *gamma_table("costs_by_gamma", records),
    ]


def gamma_table(name: str, records: Records) -> list[Grid]:
    """Returns the numbers of a pair at each gamma on one line; the title names the
    numbers.
    """
    it, items = read_columns()[name], []
    for record in (x for folder in FOLDERS for x in order_records(folder, records)):
        numbers = [numbers_at(record, i) for i in range(len(record["measured"]["c"]))]
        cells = {
            x["gamma"]: " / ".join(short(x[key]) for key in it["numbers"])
            for x in numbers
            if x["gamma"]
        }
        items.append(best_numbers(record) | {"gammas": cells})
    columns = read_template(name)
    for gamma in sorted({key for each in items for key in each["gammas"]}):
        columns |= {f"gamma {gamma}": f"{{gamma {gamma}}}"}
        for each in items:
            each[f"gamma {gamma}"] = each["gammas"].get(gamma, "")
    return table(it["title"], columns, items, keys=it["keys"])


def short(x: float | None) -> str:
    """Returns a number with three digits, because a cell holds several."""
    return NONE if x is None else f"{x:.3g}"


def long_tables(records: Records) -> dict[str, Grid]:
    """Returns the costs and speeds at every gamma with their intervals, for files that
    have a line for each.
    """
    costs, speeds = every_gamma(*FOLDERS, records=records) or (None, None)
    return {"costs": costs, "speeds": speeds} if costs and speeds else {}


def order_records(folder: str, records: Records) -> list[dict]:
    """Returns the records of a folder in the order of the catalogue, other records
    last."""
    known = list(names.timed_names())
    rows = records.get(folder, {}).values()
    return sorted(rows, key=lambda it: place(known, folder, it["row"]))


def place(known: list[tuple[str, str]], folder: str, row: str) -> int:
    return known.index((folder, row)) if (folder, row) in known else len(known)


def every_gamma(*folders: str, records: Records) -> list[Grid]:
    """Returns the costs and the speeds of every pair at each of its gammas."""
    items = [
        numbers_at(record, i)
        for name in folders
        for record in order_records(name, records)
        for i in range(len(record["measured"]["c"]))
    ]
    drafted = [it for it in items if it["gamma"]]
    return [*grid("gamma_costs", items), *grid("gamma_speeds", drafted)]


def pair_lines(folder: str, records: Records) -> list[Grid]:
    """Returns the speeds of a pair at each gamma, on one line."""
    items = []
    for record in order_records(folder, records):
        it = best_numbers(record)
        items.append(it | {f"gamma {g}": number(x) for g, x in it["at_gammas"].items()})
    gammas = sorted({g for it in items for g in it["at_gammas"] if g})
    blank = dict.fromkeys((f"gamma {g}" for g in gammas), "")
    columns = read_template("by_pair")
    columns |= {f"gamma = {g}": f"{{gamma {g}}}" for g in gammas}
    return table("Speed at each gamma", columns, [blank | it for it in items], keys=4)


def current_pairs(records: Records) -> list[Grid]:
    """Returns every gamma of the current pairs."""
    folder = "today_paper"
    return [*pair_lines(folder, records), *every_gamma(folder, records=records)]
