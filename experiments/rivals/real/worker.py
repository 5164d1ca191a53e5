"""A child that one engine runs in: `python -m experiments.rivals.real.worker MODULE`

It imports nothing but that module, so that no two engines share a process. The first
line of stdin holds the options of the module's `load`, which gives programs by name;
every other one is [name, arguments]. Each is answered by one line of stdout: what the
program returned and the seconds that it took, or why there is nothing.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable


def main(module: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print what they like

    def tell(**what) -> None:
        print(json.dumps(what), file=answers, flush=True)

    options = json.loads(sys.stdin.readline())
    try:
        programs = importlib.import_module(module).load(**options)
    except Exception as error:
        tell(refused=reason(error))
        return
    tell(programs=list(programs))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            tell(**timed(programs[name], arguments))
        except Exception as error:
            tell(refused=reason(error))


def timed(program: Callable, arguments: list) -> dict:
    begun = time.perf_counter()
    value = program(*arguments)
    return {"seconds": time.perf_counter() - begun, "value": value}


def reason(error: Exception) -> str:
    """One line of what an engine said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and isinstance(error, ValueError | RuntimeError | ImportError):
        return lines[-1]
    return ": ".join([type(error).__name__, *lines[-1:]])


if __name__ == "__main__":
    main(sys.argv[1])
