"""Measures rows on many machines: `specjax sweep FOLDER ... --on local | slurm | ray`.

A row is a task of its own, `specjax run FILE.gin:ROW` on a machine that the launcher
(submitit or Ray) finds for it, into a folder of its own below OUT/sweep. This process
alone writes the records, each with the machine that measured it. A worker that dies is
begun again; a row that cannot be measured is told, and the others go on. Stopped at any
moment, the same command goes on: what is measured is kept.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import configs
from specjax.cli import workers
from specjax.cli.workers import finished
from specjax.configs import RowFile, flags
from specjax.configs.run import OUT
from specjax.measure import jsonl, provenance
from specjax.runtime import console, locks

FOLDER = "sweep"  # in OUT: what workers write until all rows have records


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures; 1 if a row has no record."""
    parser = console.Parser(prog="specjax sweep", description=__doc__.split("\n")[0])
    flags.add(parser)
    flags.add_out(parser, OUT)
    workers.add(parser, "row")
    chosen, rows = flags.parse(parser, sys.argv[1:] if argv is None else argv)
    failed, folder = [], chosen.out / FOLDER
    with contextlib.ExitStack() as stack:
        with parser.refusing(ValueError):
            provenance.check_clean(chosen.out)
            every = configs.every(rows)
            launcher = workers.launched(chosen, folder / "workers")
            stack.enter_context(locks.alone(folder))
        tasks = Tasks(launcher, chosen.out, chosen.attempts, chosen.again)
        ends = contextlib.closing(measured(tasks, every, chosen.workers))
        with console.stops(lambda: "the same command goes on from here"), ends as each:
            for label, said, good in each:
                print(f"{label}: {said}", flush=True)
                failed += [] if good else [label]
        print(f"records: {chosen.out}")
        if not failed:
            shutil.rmtree(folder)
        else:
            print(f"without a record: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


class Tasks(NamedTuple):
    """Who starts rows, where records go, and how often a row is begun."""

    launcher: Any
    out: Path
    attempts: int = 3
    again: bool = False

    def part(self, row: RowFile) -> Path:
        return self.out / FOLDER / f"{row.table}.{row.row}" / f"{row.table}.jsonl"

    def begin(self, row: RowFile) -> Any:
        """The job of a row; the record that is there goes along, to be kept if it is
        still the row's."""
        part, old = self.part(row), record_of(self.out / f"{row.table}.jsonl", row)
        if old is not None and not part.exists() and not self.again:
            jsonl.append(part, old)
        return workers.submit(self.launcher, work, command(row, part.parent))

    def keep(self, row: RowFile, host: str) -> str:
        """Takes a record over from a worker, and says whether it is new."""
        part, path = self.part(row), self.out / f"{row.table}.jsonl"
        record, old = record_of(part, row), record_of(path, row)
        if record != old:
            record["provenance"]["host"] = host
            jsonl.put(path, record)
        shutil.rmtree(part.parent)
        return "kept" if record == old else f"measured on {host}"


def command(row: RowFile, out: Path) -> list[str]:
    """What a worker runs; any machine that sees the same files can."""
    whole = [sys.executable, "-m", "specjax", "run", f"{row.path}:{row.row}"]
    for path in row.over:
        whole += ["--gin_file", path]
    for name, values in (("--set", row.bindings), ("--gin_search_paths", row.search)):
        for value in values:
            whole += [name, value]
    return [*whole, "--out", str(out)]


def work(command: list[str]) -> tuple[int, str, str]:
    """What a worker does: exit code, the last line of what went wrong, the machine."""
    # By its own code: 0 is a row that is measured, whatever a scheduler asked of us.
    own = {key: x for key, x in os.environ.items() if key != console.PREEMPTED}
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    last = done.stderr.strip().splitlines() or [""]
    return done.returncode, last[-1], socket.gethostname()


def measured(
    tasks: Tasks, rows: Sequence[RowFile], workers: int
) -> Iterator[tuple[str, str, bool]]:
    """(row, what became of it, whether it has a record now) of each, as they end."""
    ends = finished(tasks.begin, rows, workers, tasks.attempts, label)
    for row, how in ends:
        if how.said or record_of(tasks.part(row), row) is None:
            yield label(row), how.said or "its worker left no record", False
        else:
            yield label(row), tasks.keep(row, how.host), True


def label(row: RowFile) -> str:
    return f"{row.table}/{row.row}"


def record_of(path: Path, row: RowFile) -> dict | None:
    of_row = [each for each in jsonl.read(path) if each.get("row") == row.row]
    return of_row[-1] if of_row else None
