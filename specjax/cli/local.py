"""A launcher of processes on this machine; `python -m specjax.cli.local TASK` is one.

A worker and its child processes form a process group. Ctrl-C in a terminal therefore
reaches their parent alone, which then ends the group: no worker is left, and none
prints."""

import contextlib
import glob
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
        numbers = ",".join(map(str, devices))
        visible = {"CUDA_VISIBLE_DEVICES": numbers} if devices else {}
        with task.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=os.environ | visible,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        job = Job(process, task, time.monotonic() + 60 * self.minutes, devices)
        self.running.append(job)
        return job

    def devices(self) -> list[int]:
        """Returns the numbers of the GPUs that the next worker gets."""
        busy = {n for job in self.running if not job.done() for n in job.devices}
        every = range(len(glob.glob(DEVICES)))
        return sorted(every, key=lambda number: number in busy)[: self.gpus or 0]


class Job(NamedTuple):
    """A worker. until: its deadline by `time.monotonic`. devices: its GPUs."""

    process: subprocess.Popen
    task: Path
    until: float
    devices: list[int]

    def done(self) -> bool:
        if self.process.poll() is None and time.monotonic() > self.until:
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
