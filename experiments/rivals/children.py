"""Engines in separate processes, each of which is a `worker` that answers requests."""

import contextlib
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from experiments.rivals import worker
from experiments.rivals.journal import Call

PATIENCE = 5  # seconds that a process has to end by itself


class Refused(Exception):
    """The error that an engine cannot do something; the message is its own."""


def refusal(error: Exception) -> str:
    """Returns a line about an engine that cannot be loaded."""
    return str(error) if isinstance(error, Refused) else worker.reason(error)


class Child(NamedTuple):
    """An engine that is loaded in a child process.

    Attributes:
        programs: the names of its programs.
    """

    process: subprocess.Popen
    programs: tuple[str, ...]

    def ask(self, name: str, *arguments: Any) -> Call:
        """Returns a program's result, its seconds and its memory. Raises `Refused`."""
        return Call(**exchange(self.process, [name, arguments]))

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended by itself
            self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # in a call that nobody waits for any more
            self.process.kill()
            self.process.wait()


def start(loader: str, options: dict[str, Any], threads: int) -> Child:
    """Loads an engine in a child process, which uses the same cores as this process.

    Args:
        loader: a module and its function, "module:function".

    Raises:
        Refused: the engine cannot be loaded.
    """
    command = [sys.executable, "-m", f"{__package__}.worker", loader]
    count = str(threads)
    ours = {"OMP_NUM_THREADS": count, "TOKENIZERS_PARALLELISM": "false"}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pipes |= dict(stderr=subprocess.DEVNULL)
    process = subprocess.Popen(command, env=os.environ | ours, **pipes)
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
