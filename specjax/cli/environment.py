"""The folder, import path and variables that a worker needs from its parent process.

A worker starts in a folder of its launcher's choice, in which another `specjax` may
lie, and cannot import a module that lies beside the prompts. `import_variables` make it
import the `specjax` of its parent, and `run_in_environment` gives it the parent's
folder and path.
"""

import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HOME = Path(__file__).absolute().parents[2]  # the folder that `specjax` lies in
INHERITED = "JAX_", "XLA_", "SPECJAX_", "HF_"  # begin the names of what settings are in


class Environment(NamedTuple):
    """The environment of a process. folder: the current one. path: `sys.path`,
    absolute."""

    folder: str
    path: tuple[str, ...]


def current() -> Environment:
    """Returns the environment of this process."""
    return Environment(
        os.getcwd(), tuple(dict.fromkeys(map(os.path.abspath, sys.path)))
    )


def run_in_environment(world: Environment, function: Callable, *arguments: Any) -> Any:
    """Calls a function in the environment of another process, and returns its value.

    The folders are used as far as this machine has them."""
    with contextlib.suppress(OSError):
        os.chdir(world.folder)
    sys.path[:] = dict.fromkeys([*world.path, *sys.path])
    return function(*arguments)


def import_variables() -> dict[str, str]:
    """Returns the variables with which any process can import the modules that this one
    does.

    Such a process imports nothing from its own folder."""
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [os.path.abspath(place) for place in own if place]
    if str(HOME) not in installed:
        places.insert(0, str(HOME))
    named = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(places))} if places else {}
    return {"PYTHONSAFEPATH": "1", **named}


def worker_variables() -> dict[str, str]:
    """Returns `import_variables`, and the variables that change what is computed.

    They are for a worker that does not inherit its environment."""
    own = {k: v for k, v in os.environ.items() if k.startswith(INHERITED)}
    return own | import_variables()
