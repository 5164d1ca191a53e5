"""Rules that keep a prefix of a draft; one file each, of `specjax.types.Verifier`.

A file that has a `verifier` is a rule that its name stands for in configurations.
"""

import importlib
import pkgutil

from specjax.types import Verifier


def named(name: str) -> Verifier:
    """The verifier of a file of this folder: "token", "block", ...

    Raises ValueError for a name that stands for none.
    """
    known = names()
    if name not in known:
        raise ValueError(f"no rule {name!r}: choose one of {', '.join(known)}")
    return _module(name).verifier


def names() -> list[str]:
    """Of all of them, in the order of the alphabet."""
    files = [file.name for file in pkgutil.iter_modules(__path__)]
    return [name for name in files if hasattr(_module(name), "verifier")]


def _module(name: str):
    return importlib.import_module(f"{__name__}.{name}")
