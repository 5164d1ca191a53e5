"""Records of what commands measure, and where they go: whole ones and others."""

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
    """A row as `specjax compare` and the experiments read it. name: of the row, where
    --name gives none. dtype: None is that of --dtype. inputs: digests of the files that
    were measured (`provenance.inputs`)."""
    told = vars(flags)
    made = conditions(dtype or flags.dtype, told.get("seed"), seconds)
    config = "".join(f"{k} = {v!r}\n" for k, v in sorted(told.items()))
    if (alone := baseline.token_ms(row)) is not None:
        made["baseline_token_ms"] = alone
    return {
        "row": told.get("name") or name,
        "table": table,
        "scale": "measured",
        "measured": row,
        "published": None,
        "provenance": {
            "commit": None,
            **made,
            "config": config,
            "inputs": dict(inputs),
        },
    }


def tell(flags: argparse.Namespace, line: str) -> None:
    """Beside what is read by programs where --json asks for that."""
    print(line, file=sys.stderr if flags.json else sys.stdout)


class Saving:
    """A file to append to, and one beside it for what is not whole yet. path: None
    saves nothing. inputs: digests of the files that are measured, for `record`."""

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)
        self.kept = False
        self.inputs = {}

    @property
    def partial(self) -> Path:
        """Of this process alone, so that no run replaces what another left."""
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")

    def prepare(self) -> None:
        """Raises ValueError, before any compute, for a path that cannot be written."""
        if self.path is not None:
            jsonl.prepare(self.path)

    def keep(self, record: dict) -> None:
        """Puts what is measured so far beside the file, in the place of what this
        process put there."""
        if self.path is None:
            return
        fresh = self.partial.with_name(f"{self.partial.name}.new")
        try:
            fresh.unlink(missing_ok=True)
            jsonl.append(fresh, record)
            fresh.replace(self.partial)
            self.kept = True
        except (OSError, ValueError) as error:
            reason = f"{console.shortened(str(self.partial), 80)}: {error}"
            print(f"could not keep the rounds so far in {reason}", file=sys.stderr)

    def append(self, record: dict) -> bool:
        """Appends a whole record, or prints it where that fails and returns False."""
        if self.path is None:
            return True
        try:
            jsonl.append(self.path, record)
        except (OSError, ValueError) as error:
            print(json.dumps(record, sort_keys=True), flush=True)
            shown = console.shortened(str(self.path), 80)
            print(f"could not write {shown} ({error}): the record", file=sys.stderr)
            print("is printed above; save that line", file=sys.stderr)
            return False
        if self.kept:
            self.partial.unlink(missing_ok=True)
        return True

    def append_all(self, flags: argparse.Namespace, records: Iterable[dict]) -> bool:
        """Whether all are appended; where one is printed in place of that, it is no
        part of the document of --json."""
        with console.aside(flags.json):
            return all([self.append(record) for record in records])

    def tell_where(self, flags: argparse.Namespace, saved: bool) -> None:
        if saved and self.path is not None:
            tell(flags, f"\nappended to {ascii(flags.out)[1:-1]}")

    def left(self) -> str:
        """Where that is what was measured, for who stops it."""
        if self.path is None:
            return "nothing was saved, as no file was named with --out"
        if self.kept:
            return f"what was measured is in {self.partial}"
        return "no round was done, so that there is nothing to save"
