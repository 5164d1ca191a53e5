"""Records of what commands measure, and the files that they are written to."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from specjax.measure import baseline, jsonl
from specjax.measure.row import conditions
from specjax.runtime import console


def record(
    flags: argparse.Namespace,
    name: str,
    row: dict,
    seconds: float,
    table: str = "measure",
    dtype: str | None = None,
    *,
    inputs: Mapping[str, str],
) -> dict:
    """Returns a record of a row, in the form that `specjax compare` and the experiments
    read.

    Args:
      flags: those of the command.
      name: the name of the row, where --name gives none.
      row: its measured values.
      seconds: how long the measurement took.
      table: the name of its table.
      dtype: None for that of --dtype.
      inputs: digests of the files that were measured (`provenance.inputs`).
    """
    values = vars(flags)
    provenance = conditions(dtype or flags.dtype, values.get("seed"), seconds)
    config = "".join(f"{k} = {v!r}\n" for k, v in sorted(values.items()))
    if (alone := baseline.token_ms(row)) is not None:
        provenance["baseline_token_ms"] = alone
    return {
        "row": values.get("name") or name,
        "table": table,
        "scale": "measured",
        "measured": row,
        "published": None,
        "provenance": {
            "commit": None,
            **provenance,
            "config": config,
            "inputs": dict(inputs),
        },
    }


def print_line(flags: argparse.Namespace, line: str) -> None:
    """Prints a line on stdout, or on stderr where stdout is for --json."""
    print(line, file=sys.stderr if flags.json else sys.stdout)


class Saving:
    """A file to append records to, and a file beside it for unfinished measurements.

    path: None saves nothing. inputs: digests of the measured files, for `record`."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self.kept = False
        self.inputs: Mapping[str, str] = {}

    @property
    def partial(self) -> Path:
        """Returns the partial file of this process, so that no run replaces
        another's."""
        assert self.path is not None
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")

    def prepare(self) -> None:
        """Raises ValueError, before any computation, for a path that cannot be
        written."""
        if self.path is not None:
            jsonl.prepare(self.path)

    def keep(self, record: dict) -> None:
        """Writes the measurement so far to the partial file, in place of the earlier
        one."""
        if self.path is None:
            return
        fresh = self.partial.with_name(f"{self.partial.name}.new")
        try:
            fresh.unlink(missing_ok=True)
            jsonl.append(fresh, record)
            fresh.replace(self.partial)
            self.kept = True
        except (OSError, ValueError) as error:
            reason = f"{console.shorten(str(self.partial), 80)}: {error}"
            print(f"could not save the rounds so far in {reason}", file=sys.stderr)

    def append(self, record: dict) -> bool:
        """Appends a finished record; where that fails, prints it and returns False."""
        if self.path is None:
            return True
        try:
            jsonl.append(self.path, record)
        except (OSError, ValueError) as error:
            print(json.dumps(record, sort_keys=True), flush=True)
            shown = console.shorten(str(self.path), 80)
            print(f"could not write {shown} ({error}): the record", file=sys.stderr)
            print("is printed above; save that line", file=sys.stderr)
            return False
        if self.kept:
            self.partial.unlink(missing_ok=True)
        return True

    def append_all(self, flags: argparse.Namespace, records: Iterable[dict]) -> bool:
        """Appends records, and returns whether all were.

        One that cannot be appended is printed; with --json, on stderr."""
        with console.redirect_output(flags.json):
            return all([self.append(record) for record in records])

    def tell_where(self, flags: argparse.Namespace, saved: bool) -> None:
        if saved and self.path is not None:
            print_line(flags, f"\nappended to {ascii(flags.out)[1:-1]}")

    def left(self) -> str:
        """Returns a line that says where the measurements are, for a command that is
        stopped."""
        if self.path is None:
            return "nothing was saved, because no --out was given"
        if self.kept:
            return f"what was measured is in {self.partial}"
        return "no round was finished, so there is nothing to save"
