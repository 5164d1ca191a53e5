"""Measures rows: `python -m experiments.run [--out DIR] [--set BINDING] FILE.gin ...`

A file is a row of the table that its folder is named after. Each finished row is
appended to DIR/<table>.jsonl; one that is there already, with the same operative config
and the same sources, is kept. Stopped at any moment, the same command goes on.
The only module that imports gin.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import gin
from tqdm import tqdm

from experiments import catalogue, compilation, fingerprint, records
from experiments.row import Row
from specjax.bench import jsonl

ROOT = Path(__file__).resolve().parents[1]


class Built(NamedTuple):
    """A row that is ready to be measured, and its operative config."""

    table: str
    name: str
    row: Row
    config: str


class RowError(Exception):
    """A row that could not be built or measured; the message names its file."""


def run(files: Iterable[Path], out: Path, bindings: Iterable[str] = ()) -> None:
    """Measures every file that has no record yet. Raises RowError at the first failure.

    bindings: gin bindings, applied after each file.
    """
    compilation.keep()
    bar = tqdm(list(files), unit="row", disable=None)  # quiet in a log
    for path in bar:
        bar.set_description(f"{path.parent.name}/{path.stem}")
        try:
            built = build(path, bindings)
            done = measure(built, out)
        except Exception as error:
            raise RowError(f"{path}: {error}") from error
        tqdm.write(f"{built.table}/{built.name}: {'measured' if done else 'kept'}")


def build(path: Path, bindings: Iterable[str] = ()) -> Built:
    """Parses a file and builds what it names: weights are read, nothing is measured.

    Raises what gin raises for a name that is unknown or a choice that was not made.
    """
    gin.clear_config()
    path = Path(path).resolve()
    with contextlib.chdir(ROOT):  # files are named from the root of the repository
        gin.parse_config_files_and_bindings([str(path)], list(bindings))
        row = gin.get_configurable(Row)()
    return Built(path.parent.name, path.stem, row, gin.operative_config_str())


def measure(built: Built, out: Path) -> bool:
    """Appends the record of a row; False if it was there already."""
    path, measurement = out / f"{built.table}.jsonl", built.row.measurement
    inputs = fingerprint.inputs_of(measurement.inputs)
    sources = fingerprint.of(measurement.module, inputs)
    if records.find(jsonl.read(path), built.name, built.config, sources):
        return False
    begun = time.monotonic()
    measured = measurement.run()
    seconds = time.monotonic() - begun
    record = {
        "row": built.name,
        "table": built.table,
        "scale": built.row.scale,
        "measured": measured,
        "published": catalogue.published(built.table, built.name),
        "provenance": records.provenance(measurement, built.config, seconds),
    }
    jsonl.append(path, record)
    return True


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.run")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.gin")
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    parser.add_argument("--set", action="append", default=[], metavar="BINDING")
    chosen = parser.parse_args(arguments)
    with stopped_politely():
        run(chosen.files, chosen.out, chosen.set)


@contextlib.contextmanager
def stopped_politely():
    """What a person can mend is said in one line; Ctrl-C says how to go on."""
    try:
        yield
    except RowError as error:
        if not isinstance(error.__cause__, ValueError | OSError):
            raise
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
