"""Files that a kill leaves whole: what took long to make is made once, then read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specjax.runtime import writing

Arrays = Mapping[str, np.ndarray]
replace, unwritten = writing.write_whole, writing.write_error


def write_json(path: Path, content: Any) -> None:
    replace(path, (json.dumps(content, indent=1) + "\n").encode())


def keep(
    path: Path,
    make: Callable[[], Arrays],
    about: Mapping[str, Any],
    save: Callable = np.savez,
) -> Arrays:
    """Arrays by name; made once, then read from `path`. about: what they are made of,
    which files of older versions say nothing of. Raises ValueError for arrays that were
    made of something else."""
    settings = json.dumps(about, sort_keys=True)
    if not path.exists():
        arrays = {**make(), "about": settings}
        writing.write_with(path, lambda file: save(file, **arrays))
    read = np.load(path)
    if str(read.get("about")) not in (settings, "{}"):
        raise ValueError(
            f"{path} was written by another target or other settings: delete it"
        )
    return read
