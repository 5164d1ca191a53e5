"""Measures rows on many machines: `specjax sweep FOLDER ... --on local | slurm | ray`.

Each row is a task: `specjax run FILE.gin:ROW` on a machine that the launcher (submitit
or Ray) finds for it, with a folder of its own below OUT/sweep. Only this process writes
the records, each with the machine that measured it. A worker that dies is started
again; a row that cannot be measured is reported, and the others continue. A command
that was stopped continues when it is started again, with the rows measured so far."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import configs
from specjax.cli import workers
from specjax.cli.workers import run_tasks
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
        with parser.report_errors(ValueError):
            provenance.check_clean(chosen.out)
            every = configs.all_rows(rows)
            check_records(chosen.out, every)
            launcher = workers.make_launcher(chosen, folder / "workers")
            stack.enter_context(locks.lock_folder(folder))
        tasks = Tasks(launcher, chosen.out, chosen.attempts, chosen.again)
        ends = contextlib.closing(measure_rows(tasks, every, chosen.workers))
        with (
            console.handle_stops(lambda: "start the same command again to continue"),
            ends as each,
        ):
            for name, outcome, good in each:
                print(f"{name}: {outcome}", flush=True)
                failed += [] if good else [name]
        print(f"records: {chosen.out}")
        if not failed:
            shutil.rmtree(folder)
        else:
            print(f"no record of: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def check_records(out: Path, rows: Sequence[RowFile]) -> None:
    """Raises ValueError for a file of records that cannot be read or appended to."""
    for table in dict.fromkeys(row.table for row in rows):
        path = out / f"{table}.jsonl"
        jsonl.prepare(path)
        jsonl.read(path)


class Tasks(NamedTuple):
    """The launcher of rows, the folder of records, and how often a row is tried."""

    launcher: Any
    out: Path
    attempts: int = 3
    again: bool = False

    def part_path(self, row: RowFile) -> Path:
        """Returns the file that a worker writes the record of a row to."""
        return self.out / FOLDER / f"{row.table}.{row.row}" / f"{row.table}.jsonl"

    def begin(self, row: RowFile) -> Any:
        """Starts a row and returns its job.

        An earlier record of the row is copied along, and kept if it is still valid. If
        rows are measured again it is not, and a copy that a stopped command left is
        removed."""
        part, old = (
            self.part_path(row),
            find_record(self.out / f"{row.table}.jsonl", row),
        )
        if self.again and old is not None and find_record(part, row) == old:
            shutil.rmtree(part.parent)
        if old is not None and not part.exists() and not self.again:
            jsonl.append(part, old)
        return workers.submit(self.launcher, work, command(row, part.parent))

    def keep(self, row: RowFile, host: str) -> str:
        """Takes over a record from a worker, and returns in words whether it is new."""
        part, path = self.part_path(row), self.out / f"{row.table}.jsonl"
        record, old = find_record(part, row), find_record(path, row)
        if record is not None and record != old:
            record["provenance"]["host"] = host
            jsonl.put(path, record)
        shutil.rmtree(part.parent)
        return "kept" if record == old else f"measured on {host}"


def command(row: RowFile, out: Path) -> list[str]:
    """Returns the command of a worker; any machine that sees the same files can run
    it."""
    whole = [sys.executable, "-m", "specjax", "run", f"{row.path}:{row.row}"]
    for path in row.over:
        whole += ["--gin_file", path]
    for name, values in (("--set", row.bindings), ("--gin_search_paths", row.search)):
        for value in values:
            whole += [name, value]
    return [*whole, "--out", str(out)]


def work(command: list[str]) -> tuple[int, str, str]:
    """Runs a worker's task: exit code, last line of the error output, machine's
    name."""
    # SPECJAX_PREEMPTED is for this command; in a worker, 0 must mean a measured row.
    own = {key: x for key, x in os.environ.items() if key != console.PREEMPTED}
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    last = done.stderr.strip().splitlines() or [""]
    return done.returncode, last[-1], socket.gethostname()


def measure_rows(
    tasks: Tasks, rows: Sequence[RowFile], workers: int
) -> Generator[tuple[str, str, bool], None, None]:
    """Yields (row, outcome in words, whether it has a record) of each row as it
    ends."""
    ends = run_tasks(
        tasks.begin, rows, workers=workers, attempts=tasks.attempts, label=label
    )
    for row, how in ends:
        if how.error or find_record(tasks.part_path(row), row) is None:
            yield label(row), how.error or "its worker wrote no record", False
        else:
            yield label(row), tasks.keep(row, how.host), True


def label(row: RowFile) -> str:
    return f"{row.table}/{row.row}"


def find_record(path: Path, row: RowFile) -> dict | None:
    of_row = [each for each in jsonl.read(path) if each.get("row") == row.row]
    return of_row[-1] if of_row else None
