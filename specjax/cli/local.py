"""A launcher of processes on this machine; `python -m specjax.cli.local TASK` is one.

A worker and its child processes form a process group. Ctrl-C in a terminal therefore
reaches their parent alone, which then ends the group: no worker is left, and none
prints."""

import contextlib
import glob
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from specjax.runtime import writing

DEVICES = "/dev/nvidia[0-9]*"
VISIBLE = "CUDA_VISIBLE_DEVICES"  # a variable: numbers or names, joined by commas
LATE = "it took longer than --minutes allows"
GRACE = 2.0  # seconds between SIGTERM and SIGKILL


class Local(NamedTuple):
    """A launcher of processes on this machine.

    folder: for tasks, answers and the output of workers. minutes: the time after which
    a worker counts as lost. gpus: GPUs of each worker, the first free ones; None lets
    it see those of its parent. running: the jobs so far."""

    folder: Path
    minutes: int
    gpus: int | None = None
    running: list["Job"] = []  # noqa: RUF012 (each launcher gets its own list)

    def submit(self, function: Callable, *arguments: Any) -> "Job":
        """Starts a worker that calls the function, and returns its job."""
        task = self.folder / f"{uuid.uuid4().hex}.task"
        writing.write_whole(task, pickle.dumps((function, arguments)))
        command = [sys.executable, "-m", "specjax.cli.local", str(task)]
        devices = self.devices()
        visible = {VISIBLE: ",".join(devices)} if devices else {}
        with task.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=os.environ | visible,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        job = Job(process, task, time.monotonic() + 60 * self.minutes, devices, [])
        self.running.append(job)
        return job

    def devices(self) -> list[str]:
        """Returns the numbers or names of the GPUs that the next worker gets."""
        busy = {n for job in self.running if not job.done() for n in job.devices}
        every = visible_gpus()
        if every is None:
            every = [str(number) for number in range(len(glob.glob(DEVICES)))]
        return sorted(every, key=lambda name: name in busy)[: self.gpus or 0]


def visible_gpus() -> list[str] | None:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES names, None where it is not set.

    As for CUDA, a negative number ends the list."""
    if (named := os.environ.get(VISIBLE)) is None:
        return None
    names = filter(None, map(str.strip, named.split(",")))
    return [*itertools.takewhile(lambda name: not name.startswith("-"), names)]


class Job(NamedTuple):
    """A worker. until: its deadline by `time.monotonic`. devices: its GPUs. why: what
    it was ended for, if its launcher ended it."""

    process: subprocess.Popen
    task: Path
    until: float
    devices: list[str]
    why: list[str]

    def done(self) -> bool:
        """Returns whether the worker has ended, as it must by its deadline."""
        if self.process.poll() is None and time.monotonic() > self.until:
            self.why.append(LATE)
            self.cancel(check=False)
        return self.process.poll() is not None

    def result(self) -> Any:
        """Returns the value that the function returned.

        Raises RuntimeError where the worker is lost, with the last line that it
        printed."""
        answer = self.task.with_suffix(".answer")
        if answer.exists():
            return pickle.loads(answer.read_bytes())
        code, log = self.process.wait(), self.task.with_suffix(".log")
        if self.why:
            raise RuntimeError(self.why[0])
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        last_line = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
        raise RuntimeError(": ".join(filter(None, [how, last_line])))

    def cancel(self, check: bool) -> None:
        """Ends the worker and its child processes. check: an argument of other
        launchers, ignored."""
        for number, wait in (signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait)


def main(task: str) -> int:
    """Runs a task and writes its answer beside it."""
    function, arguments = pickle.loads(Path(task).read_bytes())
    try:
        value = function(*arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    writing.write_whole(Path(task).with_suffix(".answer"), pickle.dumps(value))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
