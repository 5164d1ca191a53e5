"""The stored results of comparing kernels with the reference on their first use.

A JSON file in the user's cache folder holds, by kind of device, versions and shape,
whether the kernels gave the reference's tokens or what was wrong. Where the file cannot
be written, nothing is stored and every run compares again.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from specjax.runtime.cache_folder import cache_folder

SAME = "same"
UNFINISHED = "an earlier comparison did not finish; to compare again, remove "


def file_path() -> Path:
    """Returns the path of the stored results."""
    return cache_folder() / "kernels.json"


def find_problem(key: str, compare: Callable[[], str | None]) -> str | None:
    """Returns the stored problem of `key`, or that of `compare`; None if there is none.

    A comparison that raises is stored as a problem with its error. One that ended the
    process, as a compiler may, is a problem the next time.
    """
    stored = read().get(key)
    if stored is not None:
        return None if stored == SAME else stored
    store(key, f"{UNFINISHED}{file_path()}")
    try:
        problem = compare()
    except Exception as error:  # whatever a compiler or a driver raises
        first = next(iter(str(error).strip().splitlines()), "")
        problem = f"{type(error).__name__}: {first[:200]}"
    except BaseException:  # interrupted: the result is not known
        store(key, None)
        raise
    store(key, SAME if problem is None else problem)
    return problem


def read() -> dict[str, str]:
    """Returns everything that is stored; nothing if the file is absent or damaged."""
    try:
        stored = json.loads(file_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def store(key: str, value: str | None) -> None:
    """Writes one entry, or removes it if `value` is None.

    Does nothing if the folder cannot be written.
    """
    stored = read() | {key: value}
    stored = {name: entry for name, entry in stored.items() if entry is not None}
    text = json.dumps(stored, indent=1, sort_keys=True) + "\n"
    file = file_path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        temporary.write_text(text, "utf-8")
        temporary.replace(file)
    except OSError:
        return
