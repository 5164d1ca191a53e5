"""The details of the table of kernels: predictions, measurements, and the goals that
were met or missed.

Predictions and goals are those of `experiments/gpu/kernels/predictions.json`, written
before anything ran on a GPU. A number without a record is called unmeasured.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache

from experiments import catalogue
from experiments.records import kernel_times
from experiments.records.kernel_times import WARM
from experiments.records.markup import number, number_or_blank
from experiments.records.table import Line, Records, published_values
from experiments.records.words import FAILED, ratio
from experiments.report.columns import grid
from experiments.report.typeset import Grid

FILE = catalogue.HERE / "gpu" / "kernels" / "predictions.json"
UNMEASURED, TRIAL = "unmeasured", "unmeasured: the record is of a trial on a CPU"
BLANK = "acceptance", "cache", "predicted", "us", "around", "share", "chain", "device"
Rows = Mapping[str, dict]  # the records of folder kernels


@cache
def expectations() -> dict:
    return json.loads(FILE.read_text("utf-8"))


def lines() -> list[Line]:
    return catalogue.find_table("kernels").lines


def shapes() -> dict[str, str]:
    """Returns the words for each row of a shape, (B, gamma, V) and its dtype; PyTorch's
    rows are last.
    """
    named = {line.row: line.what.partition(": ")[0] for line in lines()}
    return {row: name for row, name in named.items() if "(" in name}


def details(records: Records) -> list[Grid]:
    rows, date = records.get("kernels", {}), expectations()["date"]
    found = [
        {"what": f"{row}: {name}", "found": value}
        for row in ("sanitizer", "capture")
        for name, value in rows.get(row, {}).get("measured", {}).items()
    ]
    return [
        *grid("gpu_goals", goals(rows), date=date),
        *grid("gpu_times", times(rows)),
        *grid("gpu_peers", published_peers()),
        *grid("gpu_found", found),
    ]


def goals(rows: Rows) -> Iterator[dict]:
    for goal in expectations()["goals"]:
        value = goal_value(goal, rows)
        own = len(goal.get("of", ())) == 1 and "under" not in goal
        yield goal | {
            "predicted": prediction(*goal["of"][0]) if own else "",
            "measured": number(value),
            "verdict": verdict(goal, value) + verdict_note(goal, rows, value),
        }


def goal_value(goal: dict, rows: Rows) -> float | str:
    """Returns the number that a goal is about, or the reason why there is none."""
    if "every" in goal:
        ours = [row for row, name in shapes().items() if "PyTorch" not in name]
        values = [measured_number(rows, row, goal["every"]) for row in ours]
        missing = [value for value in values if isinstance(value, str)]
        if FAILED in missing:
            return FAILED
        return missing[0] if missing else min(values)
    if not goal["of"]:
        return "not implemented"
    value = measured_number(rows, *goal["of"][0])
    if "under" not in goal:
        return value
    unmeasured = isinstance(value, str) and value.startswith(UNMEASURED)
    return ratio(value, measured_number(rows, *goal["under"][0]), peer=not unmeasured)


def measured_number(rows: Rows, row: str, quantity: str) -> float | str:
    if row not in rows:
        return UNMEASURED
    it = rows[row]["measured"]
    return TRIAL if it.get("dry") else it[quantity]


def verdict(goal: dict, value: float | str) -> str:
    """Returns "met", "missed", or the reason why neither can be said; a program of ours
    that failed counts as missed.
    """
    if value == FAILED:
        return "missed: it failed"
    if isinstance(value, str):
        return value if value.startswith(UNMEASURED) else f"{UNMEASURED}: {value}"
    ahead = value >= goal["bound"] if goal["sense"] == ">=" else value <= goal["bound"]
    return "met" if ahead else "missed"


def verdict_note(goal: dict, rows: Rows, value: float | str) -> str:
    """Returns the note that a verdict on a number needs."""
    if isinstance(value, str):
        return ""
    named = {row for row, _ in [*goal.get("of", ()), *goal.get("under", ())]}
    if "every" in goal:
        named = rows.keys() & shapes().keys()
    less = any("host_us" in rows[row]["measured"] for row in named)
    return ", less the host's time" if less else ""


def prediction(row: str, quantity: str) -> str:
    for guess in expectations()["predictions"]:
        if (guess["row"], guess["quantity"]) == (row, quantity):
            return f"{guess['low']} to {guess['high']}"
    return ""


def times(rows: Rows) -> Iterator[dict]:
    """Yields every program that was timed, those that failed, and those that were only
    predicted.
    """
    for row, shape in shapes().items():
        blank = dict.fromkeys(BLANK, "")
        record = rows.get(row)
        if record is None or record["measured"].get("dry"):
            known = predicted_programs(row, TRIAL if record else UNMEASURED)
        else:
            known = timed_programs(row, record["measured"])
        yield from (blank | {"shape": shape} | it for it in known)


def predicted_programs(row: str, state: str) -> Iterator[dict]:
    names = {line.quantity: line.what.partition(": ")[2] for line in lines()}
    for guess in expectations()["predictions"]:
        if guess["row"] == row:
            name = names[guess["quantity"]].removesuffix(", us")
            predicted = prediction(row, guess["quantity"])
            yield {"name": name, "predicted": predicted, "state": state}


def timed_programs(row: str, it: dict) -> Iterator[dict]:
    alone = it.get("latency", {})
    for line in it.get("programs", it.get("lines", [])):
        cache = line.get("cache", "")
        own = alone.get(kernel_times.group(line["name"]), {}) if cache == WARM else {}
        yield {
            "name": line["name"],
            "acceptance": line.get("acceptance", "0.7"),
            "cache": cache,
            "predicted": prediction(row, program_quantity(line["name"])),
            "us": number(line["us"]),
            "around": f"{number(line['p10'])} to {number(line['p90'])}",
            "share": percent(line.get("share", "")),
            "chain": number_or_blank(line.get("chain_us")),
            "device": number_or_blank(own.get("device_us", own.get("device"))),
            "state": "; ".join(["ok", *kernel_times.notes(it)]),
        }
    for failure in it.get("failed", []):
        yield {"name": failure["name"], "state": failure["error"]}
    for name, why in it.get("skipped", {}).items():
        yield {"name": name, "state": why}


def percent(share: float | str) -> str:
    return share if isinstance(share, str) else f"{100 * share:.0f} %"


def program_quantity(name: str) -> str:
    """Returns the quantity that the time of a program belongs to."""
    kind, _, carried = name.partition("/")
    kind = "fused" if kind == "mosaic_gpu" else kind
    return f"{kind}_us" if carried.split("/")[0] in ("", "none") else ""


def published_peers() -> list[dict]:
    table = published_values()["wagner2024"]["table3_bandwidth_gb_s"]["rows"]
    every = [value for row in table for value in row[2:]]
    wagner = {"who": "Wagner et al. (2024)", "machine": "their GPUs"}
    wagner |= {"what": "speed of the memory reached, GB/s, all models and methods"}
    wagner |= {"value": f"{min(every):.0f} to {max(every):.0f}", "source": "Table 3"}
    wagner |= {"work": "their profiled verification, softmax included"}
    return [*expectations()["published_elsewhere"], wagner]
