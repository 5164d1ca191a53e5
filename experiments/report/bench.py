"""The bench: its goals and whether they were met, the times of engines, and the
agreement of their texts.
"""

from experiments import catalogue
from experiments.records.markup import interval, number
from experiments.records.table import Line, Records
from experiments.report import rivals
from experiments.report.columns import Item, grid, numbers_by_row
from experiments.report.typeset import Grid

ROWS = {  # what a reader calls the rows of constructed weights
    "small_plain_b1": "greedy, one text at a time",
    "small_plain_b8": "greedy, 8 texts at a time",
    "small_speculative_b1": "speculative, one text at a time",
    "small_speculative_b8": "speculative, 8 texts at a time",
    "small_speculative_b1_xla": "speculative by XLA's products, one text at a time",
    "small_target_call_b1": "calls of the target on 1 and 4 tokens",
    "smollm2_calls": "SmolLM2, calls of the target on 1, 4 and 7 tokens",
}


def outcome(line: Line, record: dict | None) -> dict:
    """Returns whether a goal was met when the record was made, at its commit.

    It is met, or missed, if all of the interval is; changes since that day were not
    measured.
    """
    it = {"what": line.what, "goal": line.goal or "", "ours": "", "was": ""}
    if record is None or line.quantity not in record["measured"]:
        return it | {"when": "never"}
    ours, origin = record["measured"], record["provenance"]
    low, high = ours[f"{line.quantity}_ci"]
    it["ours"] = interval(ours[line.quantity], (low, high))
    both = origin["date"][:10], (origin["commit"] or "")[:7]
    it["when"] = ", ".join(filter(None, both))
    if line.goal:
        _, most, bound = line.goal.split()
        aim = float(bound)
        beyond = {x <= aim if most == "most" else x >= aim for x in (low, high)}
        state = "within the interval" if len(beyond) == 2 else "missed"
        it["was"] = "met" if beyond == {True} else state
    return it


def join_values(it: Item, key: str, digits: str = "") -> str:
    """Returns the value of a number for every engine, as one text."""

    def show_value(x) -> str:
        if digits:
            return format(x, digits)
        return str(x) if isinstance(x, str | int) else number(x)

    return ", ".join(f"{name} {show_value(x)}" for name, x in it.get(key, {}).items())


def same_texts(it: Item) -> str:
    """Returns how many texts of each engine equal ours."""
    same = ""
    if "same_texts" in it:
        same = f"{join_values(it, 'same_texts')} of {it['setting']['texts']}"
    if "int8_same_prefix" in it:
        same += f"; ctranslate2_int8 {100 * it['int8_same_prefix']:.0f} % of tokens"
    return same


def bench(records: Records) -> list[Grid]:
    """Returns the tables of the bench: goals, engines, agreement of texts, real
    weights.
    """
    rows, lines = numbers_by_row(records, "bench"), catalogue.find_table("bench").lines
    if not rows:
        return []
    real = rivals.grids(rows)
    rows = {row: it for row, it in rows.items() if not rivals.is_real(it)}
    shown = any(line.row in rows for line in lines)
    goals = [
        outcome(line, records["bench"].get(line.row)) for line in lines if line.goal
    ]
    engines = [
        {"row": ROWS.get(row, row), "engine": name, "ms": it[f"ms_{name}"]}
        | {"over": it.get(f"over_{name}"), "over_ci": it.get(f"over_{name}_ci")}
        for row, it in rows.items()
        for name in (key.removeprefix("ms_") for key in it if key.startswith("ms_"))
    ]
    named = [
        it
        | {
            "row": ROWS.get(row, row),
            "same": same_texts(it),
            "made": join_values(it, "calls"),
            "nats": join_values(it, "nats_apart", ".1g"),
            "refused": join_values(it, "refusals"),
        }
        for row, it in rows.items()
    ]
    grids = grid("bench_goals", goals if shown else [])
    return [*grids, *grid("engines", engines), *grid("same", named), *real]
