"""The parent's end of `worker`: an engine in a process of its own."""

import contextlib
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple


class Refused(Exception):
    """What an engine cannot do, in its own words."""


class Child(NamedTuple):
    """An engine that was loaded. programs: what it can be asked for."""

    process: subprocess.Popen
    programs: tuple[str, ...]

    def ask(self, name: str, *arguments: Any) -> tuple[float, Any]:
        """The seconds that a program took, and what it gave. Raises `Refused`."""
        answer = exchange(self.process, [name, arguments])
        return answer["seconds"], answer["value"]

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended by itself
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def start(module: str, options: dict[str, Any], threads: int) -> Child:
    """Loads an engine; it keeps to the cores of this process. Raises `Refused`."""
    command = [sys.executable, "-m", f"{__package__}.worker", module]
    count = str(threads)
    ours = {"OMP_NUM_THREADS": count, "TOKENIZERS_PARALLELISM": "false"}
    pipe, silent = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=silent,
        text=True,
        env=os.environ | ours,
    )
    child = Child(process, ())
    try:
        answer = exchange(process, options)
    except Refused:
        child.close()
        raise
    return child._replace(programs=tuple(answer["programs"]))


def exchange(process: subprocess.Popen, what: Any) -> dict[str, Any]:
    try:
        print(json.dumps(what), file=process.stdin, flush=True)
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        raise Refused(f"its process ended with code {process.wait()}")
    answer = json.loads(line)
    if "refused" in answer:
        raise Refused(answer["refused"])
    return answer
