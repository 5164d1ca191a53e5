"""Folders of Hugging Face: config.json beside safetensors, whole or in shards."""

import contextlib
import json
import os
import re
import reprlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from safetensors import SafetensorError
from safetensors.numpy import save_file

from specjax import tokenizers
from specjax.checkpoints import archive, name_tables
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import Archive, Source
from specjax.checkpoints.fields import Fields
from specjax.checkpoints.name_tables import BY_MODEL_TYPE, NameTable
from specjax.models import families
from specjax.runtime import writing

CONFIG, WHOLE = "config.json", "model.safetensors"
GENERATION = "generation_config.json"
ADAPTER = "adapter_config.json"  # peft's: changes to the weights of another model
INDEX = "model.safetensors.index.json"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SHARDS = "model-*-of-*.safetensors"
MEDUSA = "medusa_lm_head.safetensors"  # of Medusa's heads
# Weights as safetensors, and the files that are read beside them; never a pickle.
FETCHED = [CONFIG, GENERATION, ADAPTER, WHOLE, INDEX, SHARDS, MEDUSA, *tokenizers.READ]
ENDS = ("bos_token_id", "eos_token_id", "decoder_start_token_id", "pad_token_id")


class Folder(NamedTuple):
    """The contents of a folder. table: the names of its family."""

    table: NameTable
    fields: Fields
    arrays: Archive
    files: tuple[Path, ...]


def open_folder(folder: Path) -> Folder:
    """Opens a folder by the files that describe its weights; none of them is read.
    Raises ValueError for a folder that lacks something, or is of no known model."""
    check_adapter(folder)
    fields = field.read(folder / CONFIG)
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in BY_MODEL_TYPE:
        has, known = reprlib.repr(kind), ", ".join(BY_MODEL_TYPE)
        raise ValueError(f"{folder}: model_type is {has}; known are {known}")
    files, listed = weights(folder)
    arrays = archive.open_safetensors(files, str(folder))
    absent = sorted(listed - arrays.arrays.keys())
    if absent:
        raise ValueError(
            f"{folder / INDEX} lists arrays that no shard holds; copy or download the"
            f" folder again: {', '.join(absent[: archive.SHOWN])}"
        )
    return Folder(BY_MODEL_TYPE[kind], fields, arrays, (folder / CONFIG, *files))


def check_adapter(folder: Path) -> None:
    """Raises ValueError for a folder of peft's that has no model of its own."""
    if not (folder / ADAPTER).is_file():
        return
    if (folder / WHOLE).is_file() or (folder / INDEX).is_file():
        return
    base = field.read(folder / ADAPTER).get("base_model_name_or_path")
    of = f" for {reprlib.repr(base)}" if base else ""
    raise ValueError(
        f"{folder} holds an adapter{of} and no model: merge the two with peft,"
        " merge_and_unload().save_pretrained(new), and name what that wrote"
    )


def generation(folder: Path) -> Fields:
    """Returns the fields of generation_config.json on the ends of a text, which take
    precedence over config.json; empty without one."""
    if not (folder / GENERATION).is_file():
        return {}
    fields = field.read(folder / GENERATION)
    found = {name: fields[name] for name in ENDS if fields.get(name) is not None}
    field.check_ids(folder / GENERATION, found)
    return found


def weights(folder: Path) -> tuple[list[Path], set[str]]:
    """Returns the files of weights, and the names that an index lists. Raises
    ValueError for a folder that has none, or lacks a shard."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE], set()
    if not (folder / INDEX).is_file():
        raise ValueError(_missing_weights(folder))
    listed = field.read(folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not all(
        isinstance(file, str) and Path(file).name == file for file in listed.values()
    ):
        raise ValueError(f"{folder / INDEX} has no weight_map of names to file names")
    files = [folder / name for name in sorted(set(listed.values()))]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise ValueError(
            f"{folder} lacks shards that its {INDEX} names; copy or download them:"
            f" {', '.join(absent)}"
        )
    return files, set(listed)


def _missing_weights(folder: Path) -> str:
    pickled = sorted(path.name for path in folder.glob("*.bin"))
    has = f"has {pickled[0]}" if pickled else "has no weights"
    return (
        f"{folder} {has}, neither {WHOLE} nor {INDEX}: a pickle (.bin) can run any code"
        " and is not fetched or read; where you trust one, convert it with"
        " transformers, from_pretrained(old).save_pretrained(new), which writes"
        f" {WHOLE}"
    )


def download(name: str, *near: str) -> Path:
    """Returns the folder of a hub's model "org/name", fetched or already in the cache.
    near: names that may have been meant. Raises ValueError where the hub has no such
    model."""
    if not HUB_ID.fullmatch(name):
        shown = repr(name if len(name) < 200 else f"{name[:200]}...")
        meant = "".join(f"; {other} has a name like it" for other in near)
        raise ValueError(
            f"no checkpoint at {shown}: it is not a path, a bundled model, or an id of"
            f" the Hugging Face hub, which has the form org/name{meant}"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"{name} is not a path; to fetch it from the Hugging Face hub:"
            " pip install 'specjax[hf]'"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=FETCHED))
    except (OSError, ValueError) as error:  # what the hub's client raises
        if (refusal := _refusal(name, error)) is not None:
            raise ValueError(refusal) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{name} is not a path, is not in the cache of the Hugging Face hub, and"
            f" could not be fetched from it: {reason}"
        ) from error


def _refusal(name: str, error: BaseException) -> str | None:
    """Returns what to do where the hub answers and refuses a model; None where the hub
    was not reached."""
    status, gated = None, False
    cause: BaseException | None = error
    while cause is not None:
        answer = getattr(cause, "response", None)
        status = status or getattr(answer, "status_code", None)
        gated = gated or type(cause).__name__ == "GatedRepoError"
        cause = cause.__cause__ or cause.__context__
    page = f"https://huggingface.co/{name}"
    if gated or status == 403:
        return (
            f"the hub gives {name} only to who has accepted its licence: accept it at"
            f" {page}, then set HF_TOKEN to a token of that account (hf auth login)"
        )
    if status in (401, 404):
        return (
            f"the hub has no {name}, or does not show it without a token: look at"
            f" {page}; if it is there, set HF_TOKEN to a token that may read it (hf"
            " auth login)"
        )
    return None


def save(
    folder: Path,
    config: Any,
    params: Any,
    *,
    start: int | None,
    ends: tuple[int, ...],
    most: int,
) -> None:
    """Writes config.json and the weights as they are.

    All of it appears at once or not at all.

    Args:
      start: the id that a text starts with, None where there is none.
      ends: the ids that each end a text.
      most: bytes of one file; an array is never divided.

    Raises:
      ValueError: the folder exists, the parameters are not those of `config`, or the
        format has no place for it.
      OSError: in one line, where a disk is full.
    """
    if folder.exists():  # before any work
        raise ValueError(f"{folder} exists: name a new folder")
    table = name_tables.of(config)
    fields = table.write_config(config, start, ends)
    flat = flatten_dict(params, sep="/")
    sources = table.names(config, fields).sources
    _check(config, flat)
    dtypes = sorted({str(leaf.dtype) for leaf in flat.values()})
    if len(dtypes) > 1:
        raise ValueError(f"the parameters are {' and '.join(dtypes)}: cast them to one")
    fields["dtype"] = dtypes[0]
    with new_folder(folder) as temporary:
        _write_json(temporary / CONFIG, fields)
        _write_weights(temporary, flat, sources, most)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder to write to, which becomes `folder` once all of it is written.

    Raises:
      ValueError: the folder exists.
      OSError: in one line, where a disk is full.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(folder)
    except BaseException as error:
        shutil.rmtree(temporary)
        if not isinstance(error, SafetensorError | OSError):
            raise
        raise writing.write_error(folder, error) from None


def save_head(
    folder: Path,
    fields: Fields,
    params: Any,
    sources: dict[str, Source],
    *,
    file: str = WHOLE,
    more: dict[str, np.ndarray] | None = None,
) -> None:
    """Writes config.json and the weights of a head, in one file; all of it appears at
    once or not at all.

    Args:
      folder: must not exist.
      fields: the fields of config.json.
      params: the head's own.
      sources: where each parameter lies in the file.
      file: the name of the file.
      more: further arrays by their names.

    Raises:
      ValueError, OSError: as `new_folder`.
    """
    flat = flatten_dict(params, sep="/")
    arrays = {source.name: _join([(source, flat[x])]) for x, source in sources.items()}
    with new_folder(folder) as temporary:
        _write_json(temporary / CONFIG, fields)
        save_file(arrays | (more or {}), temporary / file, {"format": "pt"})


def _check(config: Any, flat: dict[str, jax.Array]) -> None:
    shapes = flatten_dict(families.of(config).abstract_params(config), sep="/")
    has = {name: getattr(leaf, "shape", None) for name, leaf in flat.items()}
    wants = {name: leaf.shape for name, leaf in shapes.items()}
    unlike = sorted({name for name, _ in has.items() ^ wants.items()})
    if unlike:
        raise ValueError(
            f"the parameters are not those of {config} (unbox fresh ones,"
            f" flax.linen.meta.unbox): {', '.join(unlike[: archive.SHOWN])}"
        )


def _write_weights(
    folder: Path, flat: dict[str, jax.Array], sources: dict[str, Source], most: int
) -> None:
    """Writes a shard at a time: at most one is in the host's memory."""
    stored: dict[str, list[tuple[Source, jax.Array]]] = {}
    for name, source in sources.items():
        stored.setdefault(source.name, []).append((source, flat[name]))
    size = {
        name: sum(leaf.size * leaf.dtype.itemsize for _, leaf in parts)
        for name, parts in stored.items()
    }
    shards = list(_portions(size, most))
    files = [WHOLE]
    where: dict[str, str] = {}
    if len(shards) > 1:
        count = len(shards)
        files = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    for file, names in zip(files, shards, strict=True):
        where |= dict.fromkeys(names, file)
        arrays = {name: _join(stored[name]) for name in names}
        save_file(arrays, folder / file, {"format": "pt"})
    if len(shards) > 1:
        total = {"total_size": sum(size.values())}
        _write_json(folder / INDEX, {"metadata": total, "weight_map": where})


def _portions(size: dict[str, int], most: int) -> Iterator[list[str]]:
    """Yields names in order, as many together as fit."""
    held = 0
    names: list[str] = []
    for name, more in size.items():
        if names and held + more > most:
            yield names
            names, held = [], 0
        names, held = [*names, name], held + more
    yield names


def _join(parts: list[tuple[Source, jax.Array]]) -> np.ndarray:
    """Joins parameters to the stored array of which they are the parts."""
    parts = sorted(parts, key=lambda pair: pair[0].part or ())
    arrays = [
        np.asarray(leaf).T if source.transpose else np.asarray(leaf)
        for source, leaf in parts
    ]
    part = parts[0][0].part
    joined = arrays[0] if part is None else np.concatenate(arrays, part.axis)
    return np.ascontiguousarray(joined)


def _write_json(path: Path, fields: Fields) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n")
