"""T5X's checkpoints, native and Orbax, read without T5X into arrays by our names.

Opening one reads its description and no element. Only its parameters are opened, as
"decoder/layers_0/mlp/wi_0/kernel"; step and optimizer are left where they are.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tensorstore as ts

from specjax.checkpoints import t5x_scanned
from specjax.checkpoints.archive import Archive, Index
from specjax.checkpoints.t5x import native, orbax, store
from specjax.checkpoints.t5x.native import save

__all__ = ["is_t5x", "open", "save"]

# A checkpoint's folder has one of these files, Orbax's in an inner folder.
TREE, METADATA = "checkpoint", "_METADATA"
FILES = (TREE, METADATA, f"state/{TREE}", f"state/{METADATA}")
# Where the parameters are in a tree, by the age of T5X.
ROOTS = ("optimizer/target/", "_optimizer/target/", "target/", "params/")


class Place(NamedTuple):
    """The place of a checkpoint: its folder, the file of its tree, whether it is
    complete."""

    folder: ts.KvStore
    file: str
    complete: bool = True


def open(path: str | Path) -> Archive:
    """Opens the parameters of one checkpoint, as they are stored.

    path: a `checkpoint_<step>` folder, a run's folder with several (the last complete
    one counts), or a single file; or a gs:// URL of any of them. Layers that are
    stacked (`scalable_t5`) become one array each. Raises ValueError for a checkpoint
    that is missing, damaged or incomplete.
    """
    where = str(path)
    store.check_reachable(where)
    place = _find(where)
    if place is None:
        raise ValueError(f"{where} holds no complete T5X checkpoint: check the path")
    if not place.complete:
        raise ValueError(
            f"{where} was never finished, it has no {orbax.COMMIT}: take an earlier"
            " step, or copy it again"
        )
    data = store.content(place.folder, place.file)
    parse = (orbax if place.file == METADATA else native).parse
    leaves = _parameters(parse(data, f"{where}: {place.file}"), where)
    beside = orbax.arrays_folder(place.folder)
    stored = {
        name: native.source(leaf, beside, f"{where}: {name}")
        for name, leaf in leaves.items()
    }
    outside = {n: s for n, s in stored.items() if isinstance(s, store.Zarr)}
    arrays: dict[str, Any] = stored | store.open_arrays(outside, where)
    read_chunks = store.reader(arrays, where)

    def read(name: str, index: Index) -> np.ndarray:
        if name in outside:
            return read_chunks(name, index)
        return arrays[name][index]

    shapes = {
        name: jax.ShapeDtypeStruct(
            array.shape, getattr(array.dtype, "numpy_dtype", array.dtype)
        )
        for name, array in arrays.items()
    }
    return t5x_scanned.unstack_layers(Archive(shapes, read, where))


def is_t5x(path: Path) -> bool:
    """Returns whether `open` reads a path, whole or damaged: a folder is known by the
    names in it, a file by its first bytes."""
    if path.is_dir():
        return _find(str(path)) is not None
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return native.looks_like(file.read(128))


def _find(path: str) -> Place | None:
    parent, _, name = path.rstrip("/").rpartition("/")
    above = store.folder(parent or ("/" if path.startswith("/") else "."))
    if name and store.exists(above, name):
        return Place(above, name)
    return _checkpoint(path) or _last(path)


def _checkpoint(path: str) -> Place | None:
    """Returns the checkpoint in a folder; None if there is none."""
    folder = store.folder(path)
    file = next((file for file in FILES if store.exists(folder, file)), None)
    if file is None:
        return None
    inner, _, name = file.rpartition("/")
    place = Place(folder / f"{inner}/" if inner else folder, name)
    if file == TREE:
        return place
    renamed = store.base(path)["driver"] == "file"
    return place._replace(complete=orbax.is_committed(folder, renamed))


def _last(path: str) -> Place | None:
    """Returns the last complete checkpoint of a run; if none is complete, the last
    one."""
    files = store.keys(store.folder(path), "checkpoint_")
    matches = (re.match(r"checkpoint_(\d+)/", file) for file in files)
    steps = {int(match[1]): match[0] for match in matches if match}
    tried = [
        f"{path.rstrip('/')}/{steps[step]}" for step in sorted(steps, reverse=True)
    ]
    places = [place for place in map(_checkpoint, tried) if place is not None]
    return next((p for p in places if p.complete), places[0] if places else None)


def _parameters(tree: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns the leaves that are parameters, by our names."""
    root = next((r for r in ROOTS if any(n.startswith(r) for n in tree)), None)
    if root is None:
        some = store.first_names(tree) or "nothing"
        raise ValueError(f"{where} has no parameters under target: found {some}")
    return {
        name.removeprefix(root).removeprefix("params/"): leaf
        for name, leaf in sorted(tree.items())
        if name.startswith(root) and leaf is not None
    }
