"""What a worker must have as its parent has: where it stands, and whence it imports.

A worker begins in a folder of its launcher's choice, in which another `specjax` may
lie, and knows nothing of a module beside the prompts. It imports the `specjax` of its
parent, whose place `variables` name, and `within` gives it the rest.
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


class World(NamedTuple):
    """Where a process stands. folder: the current one. path: `sys.path`, absolute."""

    folder: str
    path: tuple[str, ...]


def here() -> World:
    """Returns where this process stands."""
    return World(os.getcwd(), tuple(dict.fromkeys(map(os.path.abspath, sys.path))))


def within(world: World, function: Callable, *arguments: Any) -> Any:
    """Returns what a function gives where another process stands, as far as this
    machine has its folders."""
    with contextlib.suppress(OSError):
        os.chdir(world.folder)
    sys.path[:] = dict.fromkeys([*world.path, *sys.path])
    return function(*arguments)


def variables() -> dict[str, str]:
    """Returns the variables by which a process imports what this one does, wherever it
    begins: nothing from its own folder."""
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [os.path.abspath(place) for place in own if place]
    if str(HOME) not in installed:
        places.insert(0, str(HOME))
    named = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(places))} if places else {}
    return {"PYTHONSAFEPATH": "1", **named}


def settings() -> dict[str, str]:
    """Returns the variables of this process that change what is computed, and
    `variables`, for a worker that does not inherit them."""
    own = {k: v for k, v in os.environ.items() if k.startswith(INHERITED)}
    return own | variables()
