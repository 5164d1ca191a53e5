"""Whole checkpoints of every kind by name, and ways to break one of them."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from specjax import zoo
from specjax.models import gpt
from tests.support import t5x_files, tiny_llama
from tests.support.checkpoint_folders import (
    CONFIGS,
    nudged,
    params_of,
    reconfigure,
    rewrite,
    written,
)
from tests.support.t5x_files import arrays, write_tree

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
STEP, TREE = "checkpoint_7", "checkpoint"
CODE = gpt.Config(13, 8, 16, 1, 2)
Break = Callable[[Path], Path | None]  # what it returns is to be read instead


def bundled(folder: Path, config=CODE) -> Path:
    zoo.save(folder / "mine.safetensors", config, params_of(config))
    return folder / "mine.safetensors"


WHOLE: dict[str, Callable[[Path], Path]] = {
    **{name: lambda folder, name=name: written(folder, name) for name in CONFIGS},
    "shards": lambda folder: written(folder, most=3000),
    "bundled": bundled,
    "bundled t5": lambda folder: bundled(folder, t5x_files.CONFIG),
    "bundled llama": lambda folder: bundled(folder, tiny_llama.GEMMA3),
    "nothing": lambda folder: folder,
    **{
        layout.__name__: lambda folder, layout=layout: layout(folder / STEP, arrays())
        for layout in t5x_files.LAYOUTS
    },
}
LAYOUTS = {layout.__name__ for layout in t5x_files.LAYOUTS}


# Ways to break one.


def says(**fields) -> Break:
    """config.json has these fields; `...` is none."""
    return lambda folder: reconfigure(folder, **fields)


def holds(file: str, content: bytes | str) -> Break:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data) and None


def short(pattern: str, end: int) -> Break:
    """The last file that is called so ends too early."""

    def cut(folder: Path) -> None:
        file = sorted(folder.rglob(pattern))[-1]
        file.write_bytes(file.read_bytes()[:end])

    return cut


def lacks(*patterns: str) -> Break:
    def remove(folder: Path) -> None:
        for path in [path for name in patterns for path in folder.rglob(name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def lists(name: str, file: str = "model-00001-of-00019.safetensors") -> Break:
    """The index says that an array is in this file."""

    def reindex(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        index["weight_map"][name] = file
        (folder / INDEX).write_text(json.dumps(index))

    return reindex


def stores(change: Callable) -> Break:
    return lambda folder: rewrite(folder, change)


def tells(**metadata) -> Break:
    """A bundled file's metadata; a dict changes sizes, `...` takes one away."""

    def write(file: Path) -> None:
        with safe_open(file, "np") as opened:
            had = opened.metadata()
        for name, value in metadata.items():
            if isinstance(value, dict):
                sizes = json.loads(had[name]) | value
                value = json.dumps({n: v for n, v in sizes.items() if v is not ...})
            had[name] = value
        save_file(load_file(file), file, had)

    return write


def tree(**target) -> Break:
    """A T5X checkpoint in one file holds these parameters instead."""
    return lambda folder: write_tree(folder / TREE, target)


def shaped(name: str, *shape: int) -> Break:
    flat = arrays() | {name: np.zeros(shape, np.float32)}
    return lambda folder: write_tree(folder / TREE, t5x_files.nested(flat))


def named(path: str | Path) -> Break:
    return lambda folder: folder / path


def unlike(name: str, of: str) -> Break:
    return stores(lambda stored: stored | {name: nudged(stored[of])})


def narrower(stored: dict) -> dict:
    name = "transformer.h.0.attn.c_attn.weight"
    return stored | {name: np.pad(stored[name], ((0, 0), (0, 3)))}


def without_readout(stored: dict) -> dict:
    return {name: array for name, array in stored.items() if "lm_" not in name}


def twice(folder: Path) -> None:
    first, second = sorted(folder.glob("model-*.safetensors"))[:2]
    save_file(load_file(first) | load_file(second), second)


def as_integers(file: Path) -> None:
    stored = {name: array.astype(np.int8) for name, array in load_file(file).items()}
    save_file(stored | {"more": np.zeros(2)}, file, safe_open(file, "np").metadata())


def of_no_dtype() -> bytes:
    """One array of a kind of float that numpy has not."""
    header = {"a": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0\0"


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def two_files(folder: Path) -> None:
    for name in ("a", "b"):
        save_file({"x": np.ones(1)}, folder / f"{name}.safetensors")


def zarr3(folder: Path) -> None:
    file = folder / "state" / "_METADATA"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"use_zarr3": True}))
