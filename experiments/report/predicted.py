"""The predictions for the chip's rows beside the measurements, and the decisions that
follow.

    python -m experiments.report.predicted [FOLDER]

Predictions are those of `experiments/gpu/predictions.json`, a set for each card,
written before the rows ran.
"""

import argparse
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from experiments import catalogue
from experiments.records import markup, records
from experiments.records.table import Records
from experiments.report.columns import grid
from experiments.report.typeset import Grid
from specjax.measure import jsonl

FILE = catalogue.HERE / "gpu" / "predictions.json"
NOT_RUN, TRIAL = "not run", "a trial on a CPU"
NAME = "predicted"  # of the table in columns.json


@cache
def expectations() -> list[dict]:
    """Returns the sets of predictions in the file, the latest last."""
    return json.loads(FILE.read_text("utf-8"))


def details(records: Records) -> list[Grid]:
    """Returns a table for each set of predictions, each prediction beside its
    measurement."""
    return [
        table
        for each in reversed(expectations())
        for table in grid(NAME, items(records, each), date=each["date"], of=each["of"])
    ]


def items(records: Records, predictions: dict) -> Iterator[dict]:
    """Yields every prediction of a set, with `measured` and `verdict`."""
    device, date = predictions["device"], predictions["date"]
    for it in predictions["numbers"]:
        value = measured_value(records, it, date)
        yield it | {
            "expected": f"{it['value']:g} ({it['low']:g} to {it['high']:g})",
            "measured": markup.number(value),
            "verdict": unjudged_reason(records, it, device) or verdict(it, value),
        }


def unjudged_reason(records: Records, it: dict, card: str) -> str | None:
    """Returns why a prediction is not judged: its row ran on a CPU, or on another card
    than it is made for. None if it is judged."""
    record = records.get(it["table"], {}).get(it["row"])
    if record is None:
        return None
    device = record["provenance"]["device"]
    if device["platform"] == "cpu":
        return TRIAL
    same = device["kind"] == card or "of" in it or "count" in it
    return None if same else f"on one {device['kind']}"


def measured_value(records: Records, it: dict, since: str) -> float | str:
    """Returns the number that a prediction is about, or why there is none."""
    rows = {
        row: record
        for row, record in records.get(it["table"], {}).items()
        if record["provenance"]["date"] >= since
    }
    value = number(rows.get(it["row"]), it["quantity"])
    if "of" not in it or isinstance(value, str):
        return value
    other = number(rows.get(it["of"]), it["quantity"])
    return other if isinstance(other, str) else value / other


def number(record: dict | None, quantity: str) -> float | str:
    """Returns the number that a row measured, or the words that take its place."""
    if record is None:
        return NOT_RUN
    measured = record["measured"]
    if quantity == "step_ms" and "decoded" in measured:
        decoded = {each["gamma"]: each for each in measured["decoded"]}
        measured = decoded[measured["gamma"]]
    return measured.get(quantity, NOT_RUN)


def verdict(it: dict, value: float | str) -> str:
    """Returns in words whether a number is in its predicted range."""
    if isinstance(value, str):
        return value
    if it["low"] <= value <= it["high"]:
        return "as predicted"
    return "below" if value < it["low"] else "above"


def main(arguments: list[str] | None = None) -> None:
    """Prints the table of a folder's records."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report.predicted")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    folder = parser.parse_args(arguments).folder
    tables = {it["table"] for each in expectations() for it in each["numbers"]}
    found = {
        name: records.latest_records(jsonl.read(folder / f"{name}.jsonl"))
        for name in tables
    }
    for each in details(found):
        print(f"{each.title}:")
        print(markup.text_table(each.head, each.rows), end="")
    print_failures(found)


def print_failures(found: Records) -> None:
    """Prints the error of every row that failed under its flags."""
    for rows in found.values():
        for row, record in rows.items():
            if error := record["measured"].get("error"):
                print(f"{row} failed: {error}")


if __name__ == "__main__":
    main()
