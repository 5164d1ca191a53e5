"""Files that a kill leaves whole: what took long to make is made once, then read."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


def replace(path: Path, content: bytes) -> None:
    """Writes a file so that a kill, or a disk that is full, leaves the old one or the
    new one, whole. Raises OSError, in one line, for such a disk."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise unwritten(path, error) from None
    os.replace(partial, path)


def unwritten(path: Path, error: Exception) -> OSError:
    """What is said of a disk that takes no more."""
    reason = str(error).split(" [os_error")[0].rpartition(": ")[2]
    reason = getattr(error, "strerror", None) or reason
    return OSError(
        f"{path} cannot be written ({reason}): free some space there, and go on; what"
        " was kept before is whole"
    )


def write_json(path: Path, content: Any) -> None:
    replace(path, (json.dumps(content, indent=1) + "\n").encode())


def keep(
    path: Path,
    make: Callable[[], Arrays],
    about: Mapping[str, Any],
    save: Callable = np.savez,
) -> Arrays:
    """Arrays by name; once, then from `path`."""
    settings = json.dumps(about, sort_keys=True)
    if not path.exists():
        arrays = {**make(), "about": settings}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            save(file, **arrays)
        os.replace(partial, path)
    read = np.load(path)
    if str(read.get("about")) != settings:
        raise ValueError(
            f"{path} was written by another target or other settings: delete it"
        )
    return read
