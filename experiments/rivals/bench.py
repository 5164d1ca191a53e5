"""The bench's file of records: its rows, additions to it, and the tables made from
it."""

import argparse
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.records import compilation, markup, records
from experiments.report import details
from specjax.measure import jsonl, provenance
from specjax.measure.row import Measurement

ROOT = Path(__file__).resolve().parents[2]


def flags(prog: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {prog}")
    made.add_argument("--out", type=Path, default=ROOT / "results")
    made.add_argument("--again", action="store_true", help="measure what is there too")
    made.add_argument(
        "--quick", action="store_true", help="in four minutes, into results/quick"
    )
    return made


def parse(
    made: argparse.ArgumentParser, arguments: list[str] | None, quick: Mapping[str, Any]
) -> argparse.Namespace:
    """Returns the flags; `quick` has the defaults of a quick run, whose records go to a
    folder of its own.
    """
    chosen = made.parse_args(arguments)
    if chosen.quick:
        made.set_defaults(**quick, out=ROOT / "results/quick")
        chosen = made.parse_args(arguments)
    return chosen


def describe_kept_calls() -> str:
    """Returns a sentence about what a stopped command has kept."""
    return "every finished call is kept, and the same command continues"


def begin(threads: int) -> None:
    """Restricts this process and XLA to `threads` cores, and stores compiled programs
    on disk. It must be called before anything runs.
    """
    if hasattr(os, "sched_setaffinity"):  # Linux
        cores = sorted(os.sched_getaffinity(0))
        if threads < len(cores):
            os.sched_setaffinity(0, cores[:threads])
    compilation.keep()


def config(setting: Any) -> str:
    return "".join(f"{name} = {x!r}\n" for name, x in setting._asdict().items())


def read_rows(out: Path) -> dict[str, dict]:
    """Returns the records by row."""
    return records.latest_records(jsonl.read(out / "bench.jsonl"))


def is_recorded(
    out: Path, rows: Sequence[str], *, setting: Any, measurement: Measurement
) -> bool:
    """Returns whether all of these rows are recorded, with this setting and the same
    contents of the measured files.
    """
    known, digests = read_rows(out), provenance.inputs(measurement.inputs)
    wanted = {"config": config(setting), "inputs": digests}
    origins = [known[row]["provenance"] for row in rows if row in known]
    return len(origins) == len(rows) and all(
        {name: origin.get(name) for name in wanted} == wanted for origin in origins
    )


def add_record(
    out: Path,
    row: str,
    measured: dict,
    *,
    origin: tuple[Measurement, Any, float],
    versions: dict[str, str | None],
) -> None:
    """Adds a record.

    Args:
        origin: the measurement, the setting, and the seconds that it took.
        versions: the versions of the engines that are compared.
    """
    measurement, setting, seconds = origin
    about = provenance.describe(measurement, config(setting), seconds)
    about["versions"] |= versions
    record = {"row": row, "table": "bench", "scale": "laptop", "kind": "time"}
    record |= {"measured": measured, "published": None, "provenance": about}
    jsonl.put(out / "bench.jsonl", record)


def package_versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Returns the versions of packages; None for one that is not installed."""
    known = {}
    for name in packages:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = None
    return known


def show(out: Path) -> None:
    for each in details.bench({"bench": read_rows(out)}):
        print(f"\n{each.title}\n{markup.text_table(each.head, each.rows)}", end="")
