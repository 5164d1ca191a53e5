"""Measures rows on many machines: `specjax sweep FOLDER ... --on local | slurm`.

A row is a task of its own, `specjax run FILE.gin:ROW` on a machine that the launcher
(submitit) finds for it, into a folder of its own below OUT/sweep. This process alone
writes the records, each with the machine that measured it. A worker that dies is begun
again; a row that cannot be measured is told, and the others go on. Stopped at any
moment, the same command goes on: what is measured is kept.
"""

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import configs, console
from specjax.configs import ConfigError, RowFile, flags
from specjax.configs.run import OUT
from specjax.measure import jsonl

LAUNCHERS = ("local", "slurm")
KILLED = (137, 143)  # what a shell makes of SIGKILL and SIGTERM
POLL = 0.2  # seconds
FOLDER = "sweep"  # in OUT: what workers write until all rows have records


class Ended(NamedTuple):
    """How a task ended. died: its worker was lost, by no fault of the row."""

    died: bool
    said: str = ""
    host: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures; 1 if a row has no record."""
    parser = console.Parser(prog="specjax sweep", description=__doc__.split("\n")[0])
    flags.add(parser)
    flags.add_out(parser, OUT)
    parser.add_argument(
        "--on", choices=LAUNCHERS, default="local", help="who starts them"
    )
    whole = console.whole(1, 10**6)
    of_workers = "rows that are measured at once; default %(default)s"
    parser.add_argument("--workers", type=whole, default=1, help=of_workers)
    of_attempts = "times that a row is begun whose worker dies; default %(default)s"
    parser.add_argument("--attempts", type=whole, default=3, help=of_attempts)
    of_minutes = "after which a worker is lost; default %(default)s"
    parser.add_argument("--minutes", type=whole, default=60, help=of_minutes)
    for resource in ("gpus", "cpus"):
        parser.add_argument(f"--{resource}", type=whole, help="of a worker")
    parser.add_argument("--partition", help="of Slurm")
    chosen, rows = flags.parse(parser, sys.argv[1:] if argv is None else argv)
    with parser.refusing(ConfigError):
        every = configs.every(within(rows))
        launcher = launched(chosen)
    failed = []
    with console.stops(lambda: "the same command goes on from here"):
        tasks = Tasks(launcher, chosen.out, chosen.attempts, chosen.again)
        for label, said, good in measured(tasks, every, chosen.workers):
            print(f"{label}: {said}", flush=True)
            failed += [] if good else [label]
    print(f"records: {chosen.out}")
    if not failed:
        shutil.rmtree(chosen.out / FOLDER)
    else:
        print(f"without a record: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def within(rows: Sequence[RowFile]) -> Iterator[RowFile]:
    """Rows of the files in a folder, where one was named. Raises ValueError for a
    folder without any."""
    for row in rows:
        if not row.path.is_dir():
            yield row
            continue
        files = sorted(row.path.glob("*.gin"))
        if not files:
            raise ValueError(f"{row.path} has no .gin files: name a folder with rows")
        yield from (row._replace(path=path) for path in files)


def launched(chosen: argparse.Namespace) -> Any:
    """submitit's executor. Raises ValueError where it cannot be had."""
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # it would take our streams
    try:
        import submitit
    except ImportError:
        wanted = "it needs submitit: pip install 'specjax[sweep]'"
        raise ValueError(wanted) from None
    if chosen.on == "slurm" and shutil.which("sbatch") is None:
        raise ValueError("there is no sbatch here: name --on local, or start it on a"
                         " machine that submits to Slurm")  # fmt: skip
    executor = submitit.AutoExecutor(chosen.out / FOLDER / "workers", cluster=chosen.on)
    wanted = {"timeout_min": chosen.minutes, "gpus_per_node": chosen.gpus}
    wanted |= {"cpus_per_task": chosen.cpus, "slurm_partition": chosen.partition}
    executor.update_parameters(**{k: v for k, v in wanted.items() if v is not None})
    return executor


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
        with safe_path():
            return self.launcher.submit(work, command(row, part.parent))

    def keep(self, row: RowFile, host: str) -> str:
        """Takes a record over from a worker, and says whether it is new."""
        part, path = self.part(row), self.out / f"{row.table}.jsonl"
        record, old = record_of(part, row), record_of(path, row)
        if record != old:
            record["provenance"]["host"] = host
            jsonl.put(path, record)
        shutil.rmtree(part.parent)
        return "kept" if record == old else f"measured on {host}"


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """For processes that are begun meanwhile: where they begin, another `specjax` may
    lie, such as the folder of a checkout, and is not to be imported."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines() or [""]
    return done.returncode, last[-1], socket.gethostname()


def ended(job: Any) -> Ended:
    try:
        code, said, host = job.result()
    except Exception as error:  # whatever a launcher says of a worker that is lost
        return Ended(True, " ".join(str(error).split())[:200])
    if code < 0 or code in KILLED:
        return Ended(
            True, f"killed by signal {-code if code < 0 else code - 128}", host
        )
    return Ended(False, said if code else "", host)


def measured(
    tasks: Tasks, rows: Sequence[RowFile], workers: int
) -> Iterator[tuple[str, str, bool]]:
    """(row, what became of it, whether it has a record now) of each, as they end."""
    waiting, running = deque((row, 1) for row in rows), []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                row, attempt = waiting.popleft()
                running.append((tasks.begin(row), row, attempt))
            for entry in [entry for entry in running if entry[0].done()]:
                running.remove(entry)
                job, row, attempt = entry
                label, how = f"{row.table}/{row.row}", ended(job)
                if how.died and attempt < tasks.attempts:
                    print(f"{label}: its worker died ({how.said}); again", flush=True)
                    waiting.append((row, attempt + 1))
                elif how.died:
                    yield label, f"given up after {attempt} workers died", False
                elif how.said or record_of(tasks.part(row), row) is None:
                    yield label, how.said or "its worker left no record", False
                else:
                    yield label, tasks.keep(row, how.host), True
            time.sleep(POLL if running else 0)
    finally:
        for job, *_ in running:
            job.cancel(check=False)


def record_of(path: Path, row: RowFile) -> dict | None:
    of_row = [each for each in jsonl.read(path) if each.get("row") == row.row]
    return of_row[-1] if of_row else None
