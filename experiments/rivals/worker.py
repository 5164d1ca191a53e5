"""A child process that runs one engine: `python -m experiments.rivals.worker
MODULE:LOADER`

It imports nothing but that module, so that no two engines share a process. The first
line of stdin holds the options of the loader, which returns programs by name; every
other line is [name, arguments]. Each is answered by one line of stdout: the result of
the program, the seconds that it took and the largest resident memory of this process
so far, or the reason why there is none.

`language(path, kind, room, gamma, ends, threads)` of a module returns (prompts,
new_tokens) -> new ids of each prompt, greedy, at most `new_tokens`: `plain` decodes
alone; `lookup` drafts gamma ids that followed an earlier occurrence of the last ones;
`drafted` drafts by a model. kind: the kind of the arithmetic. room: the most new ids.
ends: ids that each end a text. `speech(path, kind, threads, drafts)` returns `plain`:
file -> [text, ids], of English, greedy at one temperature, without timestamps and
without earlier text; drafts: more programs by name, each with the draft of a name.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

STATUS = Path("/proc/self/status")


def main(loader: str) -> None:
    module, _, name = loader.partition(":")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print what they like

    def tell(**what) -> None:
        print(json.dumps(what), file=answers, flush=True)

    options = json.loads(sys.stdin.readline())
    try:
        programs = getattr(importlib.import_module(module), name)(**options)
    except Exception as error:
        tell(refused=reason(error))
        return
    tell(programs=list(programs))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            tell(**time_program(programs[name], arguments))
        except Exception as error:
            tell(refused=reason(error))


def time_program(program: Callable, arguments: list) -> dict:
    begun = time.perf_counter()
    value = program(*arguments)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "value": value, "peak_mb": peak_mb()}


def peak_mb() -> float:
    """Returns the largest resident memory of this process so far, in MiB.

    Linux counts what the parent held into `ru_maxrss` of a process that it starts, so
    that its own line of /proc is read there.
    """
    if STATUS.exists():
        fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 2**10  # of KiB
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)  # of bytes, of KiB


def reason(error: Exception) -> str:
    """Returns an engine's error as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and isinstance(error, ValueError | RuntimeError | ImportError):
        return lines[-1]
    return ": ".join([type(error).__name__, *lines[-1:]])


if __name__ == "__main__":
    main(sys.argv[1])
