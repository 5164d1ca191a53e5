"""T5X's own format: one msgpack file of the tree, and zarr arrays that it points to.

The file `checkpoint` has at each leaf the array itself, or the tensorstore spec of one
in a folder beside it. Early checkpoints are such a file alone, with every array in it.
"""

import reprlib
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from flax import serialization
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.checkpoints.t5x import store as t5x_store
from specjax.runtime import writing

VERSION = 3  # of the format, since June 2021
WHOLE = 2**20  # bytes of an array that is one chunk
PARTS = 8  # of the first and last axis of a larger one
SPEC = {"driver", "kvstore", "metadata"}
# The mark of an array in Orbax's `checkpoint` that lies in a folder of this name.
PLACEHOLDER = "PLACEHOLDER://"


def looks_like(head: bytes) -> bool:
    """Returns whether a file that begins so may be a checkpoint: a msgpack map of its
    keys."""
    is_map = head[:1] in (b"\xde", b"\xdf") or 0x80 <= (head[:1] or b"\0")[0] < 0x90
    return is_map and any(key in head for key in (b"optimizer", b"state", b"target"))


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Returns the leaves of a `checkpoint` file by their paths, joined by slashes:
    arrays, specs of arrays, or Orbax's placeholders. Raises ValueError for anything
    else."""
    try:
        tree = serialization.msgpack_restore(data)
        return flatten_dict(tree, sep="/", is_leaf=lambda _, node: node.keys() >= SPEC)
    except Exception as error:  # msgpack has a dozen kinds
        raise ValueError(
            f"{where} is not a whole checkpoint file, copy it again: {error!r}"
        ) from None


def source(leaf: Any, folder: ts.KvStore, where: str) -> np.ndarray | t5x_store.Zarr:
    """Returns the array of a leaf: the leaf itself, or a stored array in a folder
    beside the file. Raises ValueError for a leaf of another kind."""
    if isinstance(leaf, str) and leaf.startswith(PLACEHOLDER):
        return t5x_store.Zarr(folder / f"{leaf.removeprefix(PLACEHOLDER)}/")
    if isinstance(leaf, dict):
        store = leaf["kvstore"] if isinstance(leaf["kvstore"], dict) else {}
        path = store.get("path") or leaf.get("path")
        if leaf["driver"] != "zarr" or not isinstance(path, str) or not path:
            raise ValueError(
                f"{where} is not a zarr array with a path: {reprlib.repr(leaf)}"
            )
        inner = folder / f"{path.strip('/')}/"
        return t5x_store.Zarr(inner, leaf["metadata"], leaf.get("dtype"))
    if not isinstance(leaf, np.ndarray | np.generic):
        raise ValueError(f"{where} is {type(leaf).__name__}, not an array")
    if leaf.dtype == np.uint16:
        raise ValueError(
            f"{where} is bfloat16 written as uint16, by T5X before June 2021: load and"
            " save it with a later T5X"
        )
    return np.asarray(leaf)


def save(folder: str | Path, step: int, params: Any) -> Path:
    """Writes `folder/checkpoint_<step>`, which T5X loads: parameters and step alone.
    Raises ValueError for a folder that exists or is not a local one, and OSError, in
    one line, where a disk is full."""
    final = Path(folder) / f"checkpoint_{step}"
    if "://" in str(folder):
        raise ValueError(f"{folder}: save to a disk, then copy the folder there")
    if step < 0:
        raise ValueError(f"step must be 0 or more; got {step}")
    if final.exists():
        raise ValueError(f"{final} is there already: remove it, or give another step")
    flat = flatten_dict(params, sep="/")
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f"{final.name}.tmp-{time.time_ns()}")
    partial.mkdir()
    try:
        specs = {name: _write(partial, name, leaf) for name, leaf in flat.items()}
        # No empty `param_states`: T5X's load_t5x_checkpoint takes it for an array.
        state = {"step": np.int32(step)}
        optimizer = {"target": unflatten_dict(specs, sep="/"), "state": state}
        tree = {"version": VERSION, "optimizer": optimizer}
        (partial / "checkpoint").write_bytes(serialization.msgpack_serialize(tree))
        partial.rename(final)
    except BaseException as error:
        shutil.rmtree(partial)
        if not isinstance(error, OSError | ValueError):  # tensorstore's
            raise
        raise writing.write_error(final, error) from None
    return final


def _write(root: Path, name: str, leaf: Any) -> dict[str, Any]:
    """Writes one array. A large one is cut along both ends, so that a device of a mesh
    reads no more than its own rows or columns."""
    array, path = np.asarray(leaf), f"target.{name.replace('/', '.')}/"
    chunks = list(array.shape)
    if array.nbytes > WHOLE:
        for axis in {0, array.ndim - 1}:
            chunks[axis] = -(-chunks[axis] // PARTS)
    gzip = {"id": "gzip", "level": 1}
    metadata = {"chunks": chunks, "compressor": gzip, "shape": list(array.shape)}
    spec = {"driver": "zarr", "dtype": array.dtype.name, "metadata": metadata}
    store = t5x_store.folder(root) / path
    opening = ts.open(spec, kvstore=store, create=True, context=t5x_store.CONTEXT)
    opening.result().write(array).result()
    return spec | {"kvstore": {"driver": "file", "path": path}}
