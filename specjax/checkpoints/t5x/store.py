"""Folders and zarr arrays through tensorstore: on a disk, in a bucket or in memory."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorstore as ts

# One context for all: an array in memory is found again only in its own context.
CONTEXT = ts.Context()
SHOWN = 5  # names in one message
KEPT = 2**28  # bytes of chunks that wait for the next device
# Of the first request to a bucket; later ones may take as long as they need.
PATIENCE = {"max_retries": 3, "initial_delay": "500ms", "max_delay": "2s"}
SECONDS = 30


class Zarr(NamedTuple):
    """A stored array. folder: its own. metadata, dtype: as in a zarr spec, used where
    the folder has no `.zarray`; None if only that file has them."""

    folder: ts.KvStore
    metadata: dict[str, Any] | None = None
    dtype: str | None = None


def base(path: str | Path) -> dict[str, Any]:
    """Returns the tensorstore spec of a folder: a local path, or a gs://, file:// or
    memory:// URL. Raises ValueError for any other URL."""
    text = str(path)
    if "://" not in text:
        local = str(Path(text).expanduser().absolute()).rstrip("/")  # "" is the root
        return {"driver": "file", "path": f"{local}/"}
    try:
        return ts.KvStore.Spec(text if text.endswith("/") else f"{text}/").to_json()
    except ValueError as error:
        raise ValueError(
            f"{text} cannot hold a checkpoint, give a local path or a"
            f" gs://bucket/folder: {error}"
        ) from None


def folder(path: str | Path) -> ts.KvStore:
    """Returns the folder at `base(path)`, which need not exist."""
    return ts.KvStore.open(base(path), context=CONTEXT).result()


def check_reachable(path: str) -> None:
    """Raises ValueError for a gs:// URL that does not answer within half a minute, or
    may not be read: tensorstore lists nothing in such a bucket, without an error."""
    if not path.startswith("gs://"):
        return
    context = ts.Context({"gcs_request_retries": PATIENCE})
    try:
        store = ts.KvStore.open(base(path), context=context).result(timeout=SECONDS)
        store.read(".zarray").result(timeout=SECONDS)  # small, if there is one
    except (ValueError, TimeoutError) as error:
        cause = str(error).split(" [")[0] or f"no answer in {SECONDS} seconds"
        raise ValueError(
            f"{path} cannot be read: {cause}; check the network, set"
            " GOOGLE_APPLICATION_CREDENTIALS to a key file if the bucket is private, or"
            " copy the folder to a disk (gcloud storage cp -r) and name that"
        ) from None


def content(store: ts.KvStore, key: str) -> bytes | None:
    """Returns the bytes of a file, None if it does not exist."""
    stored = store.read(key).result()
    return stored.value if stored.state == "value" else None


def exists(store: ts.KvStore, key: str) -> bool:
    """Returns whether a file exists, without reading it."""
    return bool(store.list(ts.KvStore.KeyRange(key, f"{key}\0")).result())


def keys(store: ts.KvStore, prefix: str) -> frozenset[str]:
    """Returns the files whose paths in the folder begin with `prefix`."""
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return _text(store.list(ts.KvStore.KeyRange(prefix, after)).result())


def open_arrays(stored: dict[str, Zarr], where: str) -> dict[str, ts.TensorStore]:
    """Opens arrays by name, all at once, and reads none of their elements. Raises
    ValueError for arrays that lack a description or chunks."""
    with explain_damage(where):
        listings = {name: zarr.folder.list() for name, zarr in stored.items()}
        files = {name: _text(listing.result()) for name, listing in listings.items()}
    described = {name for name in stored if ".zarray" in files[name]}
    bare = [n for n in stored.keys() - described if stored[n].metadata is None]
    if bare:
        raise ValueError(
            f"{where} has no description (.zarray) of {first_names(bare)}: copy it"
            " again whole, with its hidden files"
        )
    with explain_damage(where):
        opening = {}
        for name, zarr in stored.items():
            known = name in described
            stated = {} if known else {"metadata": zarr.metadata, "dtype": zarr.dtype}
            opening[name] = ts.open(
                {"driver": "zarr"} | stated,
                open=True,
                kvstore=zarr.folder,
                context=CONTEXT,
                assume_metadata=not known,
            )
        arrays = {name: array.result() for name, array in opening.items()}
    broken = [name for name in arrays if not _chunks(arrays[name]) <= files[name]]
    if broken:
        raise ValueError(
            f"{where} lacks chunk files of {first_names(broken)}: it was cut short,"
            " copy it again"
        )
    return arrays


def reader(
    arrays: Mapping[str, Any], where: str
) -> Callable[[str, tuple[slice, ...]], np.ndarray]:
    """Returns a function (name, index) -> that part of an array, which reads only the
    chunks that it needs. It keeps them until others are read: where several devices
    need parts of one chunk, the chunk is decoded once."""
    kept: dict[tuple, np.ndarray] = {}

    def read(name: str, index: tuple[slice, ...]) -> np.ndarray:
        array = arrays[name]
        part = [s.indices(n)[:2] for s, n in zip(index, array.shape, strict=True)]
        grid = zip(part, array.chunk_layout.read_chunk.shape, array.shape, strict=True)
        chunks = tuple(
            (start // chunk * chunk, min(-(-stop // chunk) * chunk, size))
            for (start, stop), chunk, size in grid
        )
        count = math.prod(stop - start for start, stop in chunks)
        few = count * array.dtype.numpy_dtype.itemsize <= KEPT
        key = name, (chunks if few else tuple(part))
        if key not in kept:
            kept.clear()
            with explain_damage(f"{where}: {name}"):
                kept[key] = array[tuple(starmap(slice, key[1]))].read().result()
        firsts = [first for first, _ in key[1]]
        within = [(a - at, b - at) for (a, b), at in zip(part, firsts, strict=True)]
        return kept[key][tuple(starmap(slice, within))]

    return read


@contextmanager
def explain_damage(where: str) -> Iterator[None]:
    """Adds to an error of tensorstore the checkpoint that it is about, and what to
    do."""
    try:
        yield
    except ValueError as error:
        cause = str(error).split(" [")[0]
        raise ValueError(
            f"{where} is damaged or was cut short, copy it again: {cause}"
        ) from None


def first_names(names: Iterable[str]) -> str:
    """Returns the first few names, and how many more there are."""
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def _chunks(array: ts.TensorStore) -> frozenset[str]:
    """Returns the files that hold an array's elements."""
    metadata = array.spec().to_json()["metadata"]
    sizes = zip(metadata["shape"], metadata["chunks"], strict=True)
    join = metadata["dimension_separator"].join
    grid = np.ndindex(*(-(-size // chunk) for size, chunk in sizes))
    return frozenset(join(map(str, place)) or "0" for place in grid)


def _text(listing: Iterable[bytes]) -> frozenset[str]:
    return frozenset(key.decode(errors="replace") for key in listing)
