"""Measures rows of gin files that have no valid record yet, and writes their
records."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from specjax import configs, native
from specjax.configs import BuiltRow, ConfigError, RowFile
from specjax.measure import baseline, jsonl, provenance
from specjax.measure.row import versions
from specjax.runtime import console, hosts, mesh

OUT = Path("runs/results")
KINDS = ("law", "count", "time")


class RowError(Exception):
    """A row that could not be built or measured; the message names its file."""


# (table, row) -> the published numbers by quantity, or None.
Published = Callable[[str, str], dict | None]


def run(
    files: Iterable[RowFile],
    out: Path,
    again: bool = False,
    published: Published = lambda table, row: None,
) -> Iterator[dict]:
    """Yields the record of every row in the files, after measuring those without
    one."""
    kept: dict[str, Any] = {}
    try:
        rows = configs.all_rows(files)
    except ConfigError as error:
        raise RowError(str(error)) from error
    for number, file in enumerate(rows, 1):
        label = f"[{number}/{len(rows)}] {file.table}/{file.row}"
        console.begin_line(label)
        start = time.monotonic()
        try:
            built = configs.build(file)
            record, new = measure(
                built, out, kept=kept, again=again, published=published
            )
        except Exception as error:
            raise RowError(f"{file}: {error}") from error
        took = f"measured in {time.monotonic() - start:.0f} s"
        console.end_line(label, took if new else "kept")
        yield record


def measure(
    built: BuiltRow, out: Path, *, kept: dict, again: bool, published: Published
) -> tuple[dict, bool]:
    """Returns the record of a row, and whether it is new; a new one has been
    written."""
    check(built)
    path, measurement = out / f"{built.table}.jsonl", built.row.measurement
    old = None
    if hosts.is_first():
        jsonl.prepare(path)
        old = None if again else find_record(path, built)
    if old := hosts.broadcast(old):
        return old, False
    provenance.check_clean(out)
    inputs = provenance.inputs(measurement.inputs)  # before the files are read
    hosts.check_agreement(lambda: inputs, f"{built.table}/{built.name}")
    start = time.monotonic()
    with native.products(built.row.products), mesh.using(built.row.mesh):
        measured = measurement.run(**({"kept": kept} if measurement.shares else {}))
        seconds = time.monotonic() - start
        origin = provenance.describe(
            measurement, built.config, seconds, built.bindings, digests=inputs
        )
    if (alone := baseline.token_ms(measured)) is not None:
        origin["baseline_token_ms"] = alone
    record = {
        "row": built.name,
        "table": built.table,
        "scale": built.row.scale,
        "kind": built.row.kind,
        "measured": measured,
        "published": published(built.table, built.name),
        "provenance": origin,
    }
    if hosts.is_first():
        jsonl.put(path, record)
    return record, True


def find_record(path: Path, built: BuiltRow) -> dict | None:
    """Returns the last record of a row that is still valid, or None."""
    for record in reversed(jsonl.read(path)):
        if record.get("row") == built.name and is_valid(record, built):
            return record
    return None


@contextlib.contextmanager
def join(
    parser: console.Parser, text: str | None, files: Iterable[RowFile]
) -> Iterator[None]:
    """Joins the processes of a job (`hosts.join`) that agree on versions and rows.

    A disagreement ends the command with one line."""
    with contextlib.ExitStack() as stack:
        with parser.report_errors(ConfigError):
            stack.enter_context(hosts.join(text))
        with parser.report_errors(ConfigError):
            hosts.check_agreement(lambda: shared_settings(files))
        yield


def shared_settings(files: Iterable[RowFile]) -> dict[str, str | None]:
    """Returns the versions, the commit and the settings of all rows."""
    values = {**versions(), "commit": provenance.commit()["commit"]}
    for row in configs.all_rows(files):
        settings = provenance.settings(configs.read(row)[0])
        values |= {f"{name} of {row.row}": value for name, value in settings.items()}
    return values


def check(built: BuiltRow) -> None:
    """Raises ValueError for a value of `products` or `kind` that does not exist."""
    for field, known in (("products", native.CHOICES), ("kind", KINDS)):
        value = getattr(built.row, field)
        if value not in known:
            raise ValueError(f"no {field} {value!r}: choose one of {', '.join(known)}")


def is_valid(record: dict, built: BuiltRow) -> bool:
    """Returns whether a record has the settings and inputs that the row has now."""
    origin = record.get("provenance")
    if not isinstance(origin, dict) or "inputs" not in origin:
        return False
    config, inputs = origin["config"], provenance.inputs(built.row.measurement.inputs)
    changed = provenance.changed_settings(config, built.config, built.own)
    return not changed and origin["inputs"] == inputs


@contextlib.contextmanager
def handle_stops() -> Iterator[None]:
    """Prints errors that a person can fix in one line; Ctrl-C prints how to
    continue."""
    try:
        with console.handle_stops(lambda: "start the same command again to continue"):
            yield
    except RowError as error:
        if reason := console.explain_memory(error.__cause__):
            sys.exit(f"error: {str(error).partition(': ')[0]}: {reason}")
        known = ValueError | OSError | FloatingPointError
        if not isinstance(error.__cause__, known):
            raise
        sys.exit(f"error: {error}")
