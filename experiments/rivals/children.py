"""Engines in separate processes, each a `worker`, which answer in turns.

Axes: R rounds, G groups of prompts, each a batch.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.runtime import progress


class Refused(Exception):
    """An engine cannot do something; the message is its own."""


class Child(NamedTuple):
    """A loaded engine.

    Attributes:
        programs: the names of its programs.
    """

    process: subprocess.Popen
    programs: tuple[str, ...]

    def ask(self, name: str, *arguments: Any) -> tuple[float, Any]:
        """Returns the seconds that a program took, and its result. Raises `Refused`."""
        answer = exchange(self.process, [name, arguments])
        return answer["seconds"], answer["value"]

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended by itself
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def start(loader: str, options: dict[str, Any], threads: int) -> Child:
    """Loads an engine, which uses the same cores as this process.

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


Requests = Mapping[
    str, tuple[Child, str]
]  # by the name in a record: whom, and for what


class Answers(NamedTuple):
    """The answers of all engines.

    Attributes:
        seconds: [R, G] of each.
        values: the results of the first round, G of them.
        refusals: the reasons why other engines gave nothing.
    """

    seconds: dict[str, np.ndarray]
    values: dict[str, list]
    refusals: dict[str, str]


def collect(
    asked: Requests,
    groups: Sequence[Sequence],
    warm: Sequence[Sequence],
    *,
    rounds: int,
    pause: float,
    label: str,
) -> Answers:
    """Collects every engine's answers to `groups`, round after round.

    Args:
        groups: the arguments of a program for each group.
        warm: arguments of a first call, which is not timed.
        pause: seconds of idling before each call, because idle threads of the last
            program keep the cores busy for a while.
    """
    taken = Answers({}, {}, {})
    left = dict(asked)

    def answers(name: str, groups: Sequence[Sequence]) -> list[tuple[float, Any]]:
        child, program = asked[name]
        try:
            return [child.ask(program, *arguments) for arguments in groups]
        except Refused as error:
            taken.refusals[name] = str(error)
            for kept in (left, taken.seconds, taken.values):
                kept.pop(name, None)
            return []

    for name in progress.track([*left], f"{label}: warm"):
        answers(name, warm)
    for turn in progress.track(range(rounds), f"{label}: rounds"):
        for name in [*left]:
            time.sleep(pause)
            if found := answers(name, groups):
                seconds = taken.seconds.setdefault(
                    name, np.zeros((rounds, len(groups)))
                )
                seconds[turn] = [each for each, _ in found]
                taken.values.setdefault(name, [value for _, value in found])
    return taken
