"""A launcher of processes on this machine: `python -m specjax.cli.local TASK` is one.

A worker and all that it starts are a group of their own, so that a terminal's Ctrl-C is
heard by their parent alone, which then ends the group: none is left, and none speaks.
"""

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
GRACE = 2.0  # seconds from the signal to end to the one that ends


class Local(NamedTuple):
    """A launcher. folder: takes tasks, answers and what workers print. minutes: after
    which a worker is lost. gpus: of each worker, the first that no other has; None
    leaves it to see what its parent does. running: its jobs so far."""

    folder: Path
    minutes: int
    gpus: int | None = None
    running: list["Job"] = []  # noqa: RUF012 (each launcher is given its own)

    def submit(self, function: Callable, *arguments: Any) -> "Job":
        task = self.folder / f"{uuid.uuid4().hex}.task"
        writing.whole(task, pickle.dumps((function, arguments)))
        command = [sys.executable, "-m", "specjax.cli.local", str(task)]
        mine = self.devices()
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine))} if mine else {}
        with task.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=os.environ | seen,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        job = Job(process, task, time.monotonic() + 60 * self.minutes, mine)
        self.running.append(job)
        return job

    def devices(self) -> list[int]:
        """Returns the GPUs of the next worker, by their numbers."""
        taken = {n for job in self.running if not job.done() for n in job.devices}
        every = range(len(glob.glob(DEVICES)))
        return sorted(every, key=lambda number: number in taken)[: self.gpus or 0]


class Job(NamedTuple):
    """A worker. until: by `time.monotonic`. devices: its GPUs."""

    process: subprocess.Popen
    task: Path
    until: float
    devices: list[int]

    def done(self) -> bool:
        if self.process.poll() is None and time.monotonic() > self.until:
            self.cancel(check=False)
        return self.process.poll() is not None

    def result(self) -> Any:
        """Returns what the function gave. Raises RuntimeError where the worker is lost,
        with the last line that it printed."""
        answer = self.task.with_suffix(".answer")
        if answer.exists():
            return pickle.loads(answer.read_bytes())
        code, log = self.process.wait(), self.task.with_suffix(".log")
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        said = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
        raise RuntimeError(": ".join(filter(None, [how, said])))

    def cancel(self, check: bool) -> None:
        """Ends the worker, and all that it started. check: is not looked at."""
        for number, wait in (signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait)


def main(task: str) -> int:
    """Runs a task and leaves its answer beside it."""
    function, arguments = pickle.loads(Path(task).read_bytes())
    try:
        value = function(*arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    writing.whole(Path(task).with_suffix(".answer"), pickle.dumps(value))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
