"""Measures rows of gin files that have no record yet, and keeps a record of each."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from specjax import configs, native
from specjax.configs import Built, ConfigError, RowFile
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
    """Measures every row of files that has no record yet, and yields each's record."""
    try:
        rows, kept = configs.every(files), {}
    except ConfigError as error:
        raise RowError(str(error)) from error
    for number, file in enumerate(rows, 1):
        label = f"[{number}/{len(rows)}] {file.table}/{file.row}"
        console.begin(label)
        begun = time.monotonic()
        try:
            built = configs.build(file)
            record, new = measure(built, out, kept, again, published)
        except Exception as error:
            raise RowError(f"{file}: {error}") from error
        took = f"measured in {time.monotonic() - begun:.0f} s"
        console.end(label, took if new else "kept")
        yield record


def measure(
    built: Built, out: Path, kept: dict, again: bool, published: Published
) -> tuple[dict, bool]:
    """The record of a row, and whether it is new: then it was written."""
    check(built)
    path, measurement = out / f"{built.table}.jsonl", built.row.measurement
    old = None
    if hosts.first():
        jsonl.prepare(path)
        old = None if again else kept_record(path, built)
    if old := hosts.of_first(old):
        return old, False
    provenance.check_clean(out)
    inputs = provenance.inputs(measurement.inputs)  # as they are read, not afterwards
    hosts.agree(lambda: inputs, f"{built.table}/{built.name}")
    begun = time.monotonic()
    with native.products(built.row.products), mesh.using(built.row.mesh):
        measured = measurement.run(**({"kept": kept} if measurement.shares else {}))
        seconds = time.monotonic() - begun
        origin = provenance.of(
            measurement, built.config, seconds, built.typed, digests=inputs
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
    if hosts.first():
        jsonl.put(path, record)
    return record, True


def kept_record(path: Path, built: Built) -> dict | None:
    """The last record of a row that is still valid."""
    for record in reversed(jsonl.read(path)):
        if record.get("row") == built.name and valid(record, built):
            return record
    return None


@contextlib.contextmanager
def joined(
    parser: console.Parser, text: str | None, files: Iterable[RowFile]
) -> Iterator[None]:
    """`hosts.joined` by processes that agree on versions and on what rows are; refused
    in one line where they do not."""
    with contextlib.ExitStack() as stack:
        with parser.refusing(ConfigError):
            stack.enter_context(hosts.joined(text))
        with parser.refusing(ConfigError):
            hosts.agree(lambda: agreed(files))
        yield


def agreed(files: Iterable[RowFile]) -> dict[str, str | None]:
    said = {**versions(), "commit": provenance.commit()["commit"]}
    for row in configs.every(files):
        settings = provenance.settings(configs.read(row)[0])
        said |= {f"{name} of {row.row}": value for name, value in settings.items()}
    return said


def check(built: Built) -> None:
    """Raises ValueError for a word that no row may have."""
    words = ("products", native.CHOICES), ("kind", KINDS)
    for field, known in words:
        value = getattr(built.row, field)
        if value not in known:
            raise ValueError(f"no {field} {value!r}: choose one of {', '.join(known)}")


def valid(record: dict, built: Built) -> bool:
    """Whether a record is of the row as it is set up now, with the same inputs."""
    origin = record.get("provenance")
    if not isinstance(origin, dict) or "inputs" not in origin:
        return False
    config, inputs = origin["config"], provenance.inputs(built.row.measurement.inputs)
    changed = provenance.changed_settings(config, built.config, built.own)
    return not changed and origin["inputs"] == inputs


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
