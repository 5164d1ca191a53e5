"""Expensive results that are computed once and then read; their files are complete or
absent."""

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
    *,
    about: Mapping[str, Any],
    save: Callable = np.savez,
) -> Arrays:
    """Returns arrays by name, which are computed once and then read from `path`.

    Args:
        about: the inputs of the arrays; files of older versions do not have it.

    Raises:
        ValueError: the stored arrays have other inputs.
    """
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
