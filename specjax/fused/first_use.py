"""What came of kernels on their first use, kept for the runs that come after.

A file of JSON in the user's cache folder: by kind of device, versions and shape, that
they gave the reference's tokens, or what was wrong. Where it cannot be written nothing
is kept, and every run compares anew.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from specjax.runtime.cache_folder import cache_folder

SAME = "same"
BEGUN = "an earlier comparison did not come to its end; to compare again, remove "


def path() -> Path:
    return cache_folder() / "kernels.json"


def judged(key: str, compare: Callable[[], str | None]) -> str | None:
    """What is wrong with what `key` names, None if nothing: as kept, or by `compare`. A
    comparison that raises is wrong by its error; one that ended the process, as a
    compiler may, is so too, the next time."""
    known = read().get(key)
    if known is not None:
        return None if known == SAME else known
    keep(key, f"{BEGUN}{path()}")
    try:
        problem = compare()
    except Exception as error:  # whatever a compiler or a driver raises
        first = next(iter(str(error).strip().splitlines()), "")
        problem = f"{type(error).__name__}: {first[:200]}"
    except BaseException:  # stopped by a person: nothing is known
        keep(key, None)
        raise
    keep(key, SAME if problem is None else problem)
    return problem


def read() -> dict[str, str]:
    """Everything that is kept; nothing of a file that is absent or damaged."""
    try:
        kept = json.loads(path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def keep(key: str, value: str | None) -> None:
    """Writes one entry, or removes it, where the folder lets it."""
    kept = read() | {key: value}
    kept = {name: entry for name, entry in kept.items() if entry is not None}
    whole = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        beside.write_text(whole, "utf-8")
        beside.replace(file)
    except OSError:
        return
