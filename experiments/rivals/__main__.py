"""Measures specjax beside others: `python -m experiments.rivals [--rows NAME ...]`

Each finished row is appended to OUT/bench.jsonl; one that is there already, with the
same settings and the same sources, is kept unless `--again`. All engines run in this
process, on the same few cores.
"""

import argparse
import os
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from experiments.records import compilation, markup, records
from experiments.report import details
from experiments.rivals import place, rows, t5x
from specjax import native
from specjax.measure import jsonl, provenance
from specjax.measure.row import Measurement

ROOT = Path(__file__).resolve().parents[2]
EXTRA = ("torch", "transformers", "ctranslate2")


def main(arguments: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog="python -m experiments.rivals")
    flags.add_argument("--out", type=Path, default=ROOT / "results")
    flags.add_argument("--rows", nargs="*", metavar="NAME", help="all by default")
    flags.add_argument("--again", action="store_true", help="measure what is there too")
    usual = place.EngineSetting()._asdict()
    for name, value in usual.items():
        flags.add_argument(f"--{name}", type=type(value), default=value)
    chosen = flags.parse_args(arguments)
    setting = place.EngineSetting(*(getattr(chosen, name) for name in usual))
    hold(setting.threads)
    compilation.keep()
    try:
        run(setting, chosen.out, chosen.rows, chosen.again)
    except ValueError as error:
        sys.exit(f"error: {error}")
    except ImportError as error:
        if error.name not in EXTRA:
            raise
        sys.exit(f"error: {error}: pip install '.[engines]'")


def hold(threads: int) -> None:
    """Keeps this process and XLA to so many cores; called before anything runs."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        cores = sorted(os.sched_getaffinity(0))
        if threads < len(cores):
            os.sched_setaffinity(0, cores[:threads])


def run(
    setting: place.EngineSetting, out: Path, wanted: list[str] | None, again: bool
) -> None:
    """Measures the rows that are wanted, None is all, and prints the goals. Raises
    ValueError for a row of no such name, and where engines disagree."""
    with tempfile.TemporaryDirectory() as folder:
        known = rows.rows(place.place(setting, Path(folder)))
        unknown = set(wanted or ()) - known.keys()
        if unknown:
            raise ValueError(
                f"no row {', '.join(sorted(unknown))}; known are {', '.join(known)}"
                f" (those of T5X need {t5x.NEEDS})"
            )
        for name in wanted or known:
            row = f"{setting.size}_{name}"
            done = measure(row, known[name], setting, out, again)
            print(f"bench/{row}: {'measured' if done else 'kept'}", flush=True)
    if not t5x.importable():
        print(f"bench/{setting.size}_t5x: not measured, it needs {t5x.NEEDS}")
    latest = records.latest(jsonl.read(out / "bench.jsonl"))
    for title, head, lines in details.bench({"bench": latest}):
        print(f"\n{title}\n{markup.plain(head, lines)}", end="")


def measure(
    row: str,
    measurement: Measurement,
    setting: place.EngineSetting,
    out: Path,
    again: bool,
) -> bool:
    """Appends the record of a row; False if it was there already."""
    path = out / "bench.jsonl"
    config = "".join(f"{name} = {x!r}\n" for name, x in setting._asdict().items())
    there = records.latest(jsonl.read(path)).get(row)
    if there and not again and there["provenance"]["config"] == config:
        return False
    begun = time.monotonic()
    with native.products(native.XLA if row.endswith("_xla") else native.THIN):
        measured = measurement.run()
        seconds = time.monotonic() - begun
        origin = provenance.of(measurement, config, seconds)
    origin["versions"] |= versions()
    record = {"row": row, "table": "bench", "scale": "laptop", "kind": "time"}
    record |= {"measured": measured, "published": None, "provenance": origin}
    jsonl.put(path, record)
    return True


def versions() -> dict[str, str | None]:
    """Of those that are compared with; None for what is not here."""
    known = {}
    for name in EXTRA:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = None
    return known | {"t5x": t5x.version() if t5x.importable() else None}


if __name__ == "__main__":
    main()
