"""The predictions of the chip's rows beside the measurements, and the decisions that
follow.

    python -m experiments.report.predicted [FOLDER]

Predictions are those of `experiments/gpu/predictions.json`, written before the rows
ran.
"""

import argparse
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from experiments import catalogue
from experiments.records import markup, records
from experiments.records.table import Records
from experiments.report.columns import Grid, grid
from specjax.measure import jsonl

FILE = catalogue.HERE / "gpu" / "predictions.json"
NOT_RUN, TRIAL = "not run", "a trial on a CPU"
NAME = "predicted"  # of the table in columns.json


@cache
def expectations() -> dict:
    """Returns the predictions of the file."""
    return json.loads(FILE.read_text("utf-8"))


def details(records: Records) -> list[Grid]:
    """Returns the table of every prediction beside the measurement."""
    told = expectations()
    return grid(NAME, items(records), date=told["date"], of=told["of"])


def items(records: Records) -> Iterator[dict]:
    """Yields every prediction, with `measured` and `verdict`."""
    for it in expectations()["numbers"]:
        value = measured_value(records, it)
        yield it | {
            "expected": f"{it['value']:g} ({it['low']:g} to {it['high']:g})",
            "measured": markup.number(value),
            "verdict": unjudged_reason(records, it) or verdict(it, value),
        }


def unjudged_reason(records: Records, it: dict) -> str | None:
    """Returns why a number is not judged: its row ran on a CPU, or on another card than
    it depends on. None where it is judged."""
    record = records.get(it["table"], {}).get(it["row"])
    if record is None:
        return None
    device = record["provenance"]["device"]
    if device["platform"] == "cpu":
        return TRIAL
    same = device["kind"] == expectations()["device"] or "of" in it or "count" in it
    return None if same else f"on one {device['kind']}"


def measured_value(records: Records, it: dict) -> float | str:
    """Returns the number that a prediction is about, or why there is none."""
    value = number(records, it["table"], it["row"], it["quantity"])
    if "of" not in it or isinstance(value, str):
        return value
    other = number(records, it["table"], it["of"], it["quantity"])
    return other if isinstance(other, str) else value / other


def number(records: Records, table: str, row: str, quantity: str) -> float | str:
    """Returns the number that a row measured since the predictions, or the words that
    replace it.
    """
    record = records.get(table, {}).get(row)
    if record is None or record["provenance"]["date"] < expectations()["date"]:
        return NOT_RUN
    measured = record["measured"]
    if quantity == "step_ms" and "decoded" in measured:
        decoded = {each["gamma"]: each for each in measured["decoded"]}
        measured = decoded[measured["gamma"]]
    return measured.get(quantity, NOT_RUN)


def verdict(it: dict, value: float | str) -> str:
    """Returns whether a number is where it was expected."""
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
    tables = {it["table"] for it in expectations()["numbers"]}
    found = {
        name: records.latest(jsonl.read(folder / f"{name}.jsonl")) for name in tables
    }
    print(f"Predictions of {expectations()['date']}, of {expectations()['of']}:")
    for _, head, rows in details(found):
        print(markup.text_table(head, rows), end="")
    print_failures(found)


def print_failures(found: Records) -> None:
    """Prints the error of every row that failed under its flags."""
    for rows in found.values():
        for row, record in rows.items():
            if error := record["measured"].get("error"):
                print(f"{row} failed: {error}")


if __name__ == "__main__":
    main()
