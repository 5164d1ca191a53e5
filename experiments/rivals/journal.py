"""A file with the calls of an unfinished row, each written as soon as it was measured,
so that nothing is lost when a run is stopped.

The first line that each run writes says what its calls belong to: settings, weights,
versions, commit and processor. Every other line is a call. Calls that belong to
something else are moved to another file. A line {"recorded": true} says that the row
has its record; the file is deleted once the whole command is done.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.rivals import bench
from specjax.measure import jsonl, provenance
from specjax.measure.row import Measurement
from specjax.runtime import processor


class Place(NamedTuple):
    """The place of a call in a row: the program, its round, and the group of texts."""

    program: str
    round: int
    group: int


class Call(NamedTuple):
    """A measured call of a program.

    Attributes:
        seconds: that it took.
        value: its result, in values of JSON.
        peak_mb: the largest resident memory of the engine's process so far, MiB; None
            where several engines share a process.
    """

    seconds: float
    value: Any = None
    peak_mb: float | None = None

    def describe(self) -> str:
        peak = "" if self.peak_mb is None else f", at most {self.peak_mb:.0f} MiB"
        return f"{self.seconds:.3g} s{peak}"


class Journal(NamedTuple):
    """The measured calls of a row.

    Attributes:
        path: the path of the file; None keeps the calls in memory only.
        calls: by their places.
        sittings: the numbers of the runs of the command that measured them.
        sitting: the number of this run, from 1.
        recorded: whether the row has its record.
    """

    path: Path | None
    calls: dict[Place, Call]
    sittings: set[int]
    sitting: int = 1
    recorded: bool = False

    def add(self, place: Place, call: Call) -> None:
        """Adds a call, which is on the disk once this returns."""
        self.calls[place] = call
        self.sittings.add(self.sitting)
        if self.path is not None:
            jsonl.append(self.path, place._asdict() | call._asdict())

    def mark_recorded(self) -> None:
        if self.path is not None:
            jsonl.append(self.path, {"recorded": True})

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


Journals = Callable[[str], Journal]  # of a row, by its name


def memory_journal(row: str) -> Journal:
    """Returns a journal without a file, which is lost when a run is stopped."""
    return Journal(None, {}, set())


def open_journal(out: Path, row: str, belongs: Mapping[str, Any]) -> Journal:
    """Returns the calls of a row that earlier runs of the command measured, and begins
    another sitting.

    Args:
        out: the folder of the record.
        belongs: what a call belongs to, in values of JSON, see `conditions`.
    """
    path = journal_path(out, row)
    lines = jsonl.read(path)
    if lines and lines[0]["belongs"] != belongs:
        aside = path.with_name(f"{path.name}.replaced")
        path.replace(aside)
        if any("program" in line for line in lines):
            what = "calls of other settings, files or versions, or of another commit"
            print(f"bench/{row}: {what} are set aside in {aside}", flush=True)
        lines = []
    calls, sittings, sitting = {}, set(), 0
    for line in lines:
        sitting = line.get("sitting", sitting)
        if "program" in line:
            calls[Place(*(line[x] for x in Place._fields))] = Call(
                *(line[x] for x in Call._fields)
            )
            sittings.add(sitting)
    recorded = any("recorded" in line for line in lines)
    if not recorded:
        jsonl.append(path, {"belongs": dict(belongs), "sitting": sitting + 1})
    if calls and not recorded:
        print(f"bench/{row}: {len(calls)} calls were measured before", flush=True)
    return Journal(path, calls, sittings, sitting + 1, recorded)


def journal_path(out: Path, row: str) -> Path:
    return out / f"bench.jsonl.{row}"


def conditions(
    measurement: Measurement, setting: Any, versions: Mapping[str, str | None]
) -> dict[str, Any]:
    """Returns what a measured call belongs to: measurement, setting and versions."""
    return {
        "config": bench.config(setting),
        "inputs": provenance.inputs(measurement.inputs),
        "versions": dict(versions),
        "commit": provenance.commit(),
        "processor": processor.describe(),
    }


def remove_all(journals: Sequence[Journal]) -> None:
    """Deletes the files of rows, once all of them have their records."""
    for journal in journals:
        journal.remove()
