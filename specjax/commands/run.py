"""Measures what gin files describe, a row each: `specjax run FILE.gin ...`.

A file includes one of gin_configs/runs/, such as alpha.gin, walltime.gin or audit.gin,
and who takes part. Each finished row is appended to OUT/<folder of the file>.jsonl; one
that is there already, of the same operative config and inputs, is kept. Stopped at any
moment, the same command goes on.
"""

import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from specjax import console, native
from specjax.bench import jsonl
from specjax.bench.machine import versions
from specjax.bench.row import Measurement, conditions
from specjax.commands import configs
from specjax.commands.configs import Built, RowFile, flags

OUT = Path("runs/results")


class RowError(Exception):
    """A row that could not be built or measured; the message names its file."""


class Origin(NamedTuple):
    """What a record says of where its numbers come from.

    sources: (Measurement, config) -> what a number depends on. keys: of them, those in
    which a kept record must agree. commit: () -> the commit of a checkout. published:
    (table, row) -> the published numbers by quantity, or None.
    """

    sources: Callable[[Measurement, str], dict]
    keys: tuple[str, ...]
    commit: Callable[[], dict]
    published: Callable[[str, str], dict | None]


def sources(measurement: Measurement, config: str) -> dict:
    """What a number depends on, beside this package: settings and files."""
    return {
        "config": config,
        "module": measurement.module,
        "reaches": list(measurement.reaches),
        "inputs": {path.name: digest(path) for path in measurement.inputs},
        "versions": versions(),
    }


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


KEYS = ("config", "inputs", "versions")
INSTALLED = Origin(sources, KEYS, lambda: {"commit": None}, lambda table, row: None)


def run(
    files: Iterable[RowFile], out: Path, origin: Origin = INSTALLED
) -> Iterator[dict]:
    """Measures every row that has no record yet, and yields each one's record.

    Raises RowError at the first failure.
    """
    files, kept = list(files), {}
    for number, file in enumerate(files, 1):
        path = file.path.resolve()
        label = f"[{number}/{len(files)}] {path.parent.name}/{path.stem}"
        console.begin(label)
        begun = time.monotonic()
        try:
            record, new = measure(configs.build(file), out, origin, kept)
        except Exception as error:
            raise RowError(f"{file.path}: {error}") from error
        took = f"measured in {time.monotonic() - begun:.0f} s"
        console.end(label, took if new else "kept")
        yield record


def measure(built: Built, out: Path, origin: Origin, kept: dict) -> tuple[dict, bool]:
    """The record of a row, and whether it is new: then it was appended.

    kept: what rows before it have kept for those that share.
    """
    if built.row.products not in native.CHOICES:
        known = ", ".join(native.CHOICES)
        raise ValueError(f"no products {built.row.products!r}: choose one of {known}")
    path, measurement = out / f"{built.table}.jsonl", built.row.measurement
    jsonl.prepare(path)
    sources = origin.sources(measurement, built.config)
    for record in reversed(jsonl.read(path)):
        there = record.get("provenance")
        known = isinstance(there, dict) and record.get("row") == built.name
        if known and all(there.get(key) == sources[key] for key in origin.keys):
            return record, False
    begun = time.monotonic()
    with native.products(built.row.products):
        measured = measurement.run(**({"kept": kept} if measurement.shares else {}))
        under = conditions(measurement, time.monotonic() - begun)
    record = {
        "row": built.name,
        "table": built.table,
        "scale": built.row.scale,
        "measured": measured,
        "published": origin.published(built.table, built.name),
        "provenance": {**origin.commit(), **under, **sources},
    }
    jsonl.append(path, record)
    return record, True


@contextlib.contextmanager
def stopped_politely() -> Iterator[None]:
    """What a person can mend is said in one line; Ctrl-C says how to go on."""
    try:
        with console.stops(lambda: "the same command goes on from here"):
            yield
    except RowError as error:
        if lacks := console.exhausted(error.__cause__):
            sys.exit(f"error: {str(error).partition(': ')[0]}: {lacks}")
        if not isinstance(error.__cause__, ValueError | OSError):
            raise
        sys.exit(f"error: {error}")


def plain(measured: dict) -> str:
    """The numbers of a row that are not lists, a line each."""
    single = {k: v for k, v in measured.items() if isinstance(v, str | int | float)}
    wide = max(map(len, single), default=0)
    shown = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in single.items()}
    return "".join(f"  {name:{wide}}  {value}\n" for name, value in shown.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints; returns 0."""
    about = "Measures what gin files describe, a row each."
    parser = console.Parser(prog="specjax run", description=about)
    flags.add(parser)
    of_out = "folder of the records; default %(default)s"
    parser.add_argument("--out", type=Path, default=OUT, help=of_out)
    chosen, rows = flags.parse(parser, sys.argv[1:] if argv is None else argv)
    with stopped_politely():
        for record in run(rows, chosen.out):
            print(plain(record["measured"]), end="")
    print(f"records: {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(console.command(main))
