"""The drafters, which propose tokens: one file each, with a `build` that makes one.

A module is imported when it is first named: those with layers of their own need more
than the others.
"""

import importlib
import pkgutil
from types import ModuleType

NAMES = frozenset(found.name for found in pkgutil.iter_modules(__path__))


def __getattr__(name: str) -> ModuleType:
    if name in NAMES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
