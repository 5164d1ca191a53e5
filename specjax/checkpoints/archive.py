"""Arrays in files, read one at a time into the parameters of a model.

Each format has its names, orientation and fusions; a table of `Source`s, one for each
parameter, says where the parameter comes from. Nothing is read before all was found to
fit.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError, safe_open

from specjax.quantized import rounding

Index = tuple[slice, ...]
Place = tuple[tuple[int, ...], jax.sharding.Sharding | None]  # a shape, where it lies
USABLE = ("float16", "bfloat16", "float32", "float64")
# The dtypes of safetensors, by their codes; others have no numpy dtype.
STORED = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
SHOWN = 20  # names of a kind in one message
COMPARED = 2**22  # elements of a copy at a time
PORTION = 2**17  # elements, about, that are read, cast and checked within a cache
FEWEST = 64  # rows: fewer are slow to turn into columns
THREADS = 8  # at most, that read portions of one array
ALIGNED = 64  # bytes: JAX keeps an array of a CPU that begins so without a copy


class Archive(NamedTuple):
    """The arrays of a checkpoint, by name.

    Attributes:
      arrays: shapes and dtypes as stored.
      read: (name, index into the stored array) -> that part of it, in the stored dtype.
      where: the place of the checkpoint, for messages.
      unscaled: the archive before `multiply_scales`; None where nothing was multiplied.
      by_rows: whether a few rows at a time, read by several threads, cost no more than
        all at once.
    """

    arrays: dict[str, jax.ShapeDtypeStruct]
    read: Callable[[str, Index], np.ndarray]
    where: str
    unscaled: "Archive | None" = None
    by_rows: bool = False


class Part(NamedTuple):
    """The part `number` of `parts` equal parts along `axis` of a stored array."""

    axis: int
    number: int
    parts: int


class Source(NamedTuple):
    """The stored array that holds a parameter: as it is, as a part, or transposed."""

    name: str
    transpose: bool = False
    part: Part | None = None


class Names(NamedTuple):
    """The names of a model's parameters in a format.

    Attributes:
      sources: the sources of each parameter, whose name is joined by slashes.
      copies: stored names that repeat another stored name.
      unread: patterns of stored names that hold no parameter.
    """

    sources: dict[str, Source]
    copies: dict[str, str] = {}  # noqa: RUF012 (never changed)
    unread: tuple[str, ...] = ()

    @property
    def harmless(self) -> tuple[str, ...]:
        """The patterns of stored names that need not be read."""
        return (*self.copies, *self.unread)


# The ways that formats store a part: our leaf, theirs, and the rest of a `Source`.
SCALE, BIAS = ("scale", ".weight", False), ("bias", ".bias", False)
KERNEL, AS_OURS = ("kernel", ".weight", True), ("kernel", ".weight", False)
NORM, PRODUCT, UNBIASED = (SCALE, BIAS), (KERNEL, BIAS), (KERNEL,)
Row = tuple[str, str, tuple]  # a part as we call it, as they do, and how it is stored


def sources(
    rows: Iterable[Row], our_prefix: str = "", stored_prefix: str = ""
) -> dict[str, Source]:
    """Returns the sources of a table of parts. our_prefix, stored_prefix: the
    beginnings of our names and of the stored ones."""
    return {
        f"{our_prefix}{ours}/{leaf}": Source(f"{stored_prefix}{theirs}{stored}", *how)
        for ours, theirs, kind in rows
        for leaf, stored, *how in kind
    }


def same_names(shapes: Any) -> Names:
    """Returns the names of parameters in an archive that calls and shapes each one as
    the model does."""
    return Names({name: Source(name) for name in flatten_dict(shapes, sep="/")})


def embedding_names(
    table: str, readout: str, tied: bool, stored: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Returns the name that an embedding is stored under, and `Names.copies`: where the
    readout is `tied`, it repeats the embedding or is its only copy in the file."""
    if not tied or readout not in stored:
        return table, {}
    return (table, {readout: table}) if table in stored else (readout, {})


def open_safetensors(files: Sequence[Path], where: str) -> Archive:
    """Opens the arrays of one or more safetensors files. Raises ValueError for a
    damaged file, and for arrays that cannot be read."""
    arrays: dict[str, jax.ShapeDtypeStruct] = {}
    holders: dict[str, Any] = {}
    for file in files:
        try:
            opened = safe_open(file, "np")
        except SafetensorError as error:
            raise ValueError(
                f"{file} is not a whole safetensors file ({error}): copy or download it"
                " again"
            ) from None
        for name in opened.keys():
            if name in arrays:
                raise ValueError(f"{where}: {name} is in two files, {file.name} is one")
            part = opened.get_slice(name)
            code, shape = part.get_dtype(), tuple(part.get_shape())
            if code not in STORED:
                raise ValueError(
                    f"{file}: {name} is stored as {code}: convert it to float32"
                )
            arrays[name] = jax.ShapeDtypeStruct(shape, STORED[code])
            holders[name] = opened

    def read(name: str, index: Index) -> np.ndarray:
        return holders[name].get_slice(name)[index]

    return Archive(arrays, read, where)


def multiply_scales(archive: Archive) -> Archive:
    """Returns the same archive, in which each array that has a scale is multiplied by
    it, in float32."""
    scales = {
        name: _scale(archive, name)
        for name in archive.arrays
        if name + rounding.SCALE in archive.arrays
    }
    arrays = {
        name: jax.ShapeDtypeStruct(of.shape, np.float32) if name in scales else of
        for name, of in archive.arrays.items()
        if name.removesuffix(rounding.SCALE) not in scales or name in scales
    }

    def read(name: str, index: Index) -> np.ndarray:
        values = archive.read(name, index)
        if name not in scales:
            return values
        return values * np.broadcast_to(scales[name], arrays[name].shape)[index]

    return archive._replace(arrays=arrays, read=read, unscaled=archive)


def _scale(archive: Archive, name: str) -> np.ndarray:
    shape, scale = (archive.arrays[n].shape for n in (name, name + rounding.SCALE))
    allowed = zip(scale, shape, strict=False)
    if len(scale) != len(shape) or any(s not in (1, n) for s, n in allowed):
        raise ValueError(f"{archive.where}: {name} is {shape}, its scale {scale}")
    return archive.read(name + rounding.SCALE, full_index(scale)).astype(np.float32)


def full_index(shape: tuple[int, ...]) -> Index:
    """Returns the index of all elements."""
    return tuple(slice(0, size) for size in shape)


def metadata(file: Path) -> dict[str, str]:
    """Returns the metadata of a safetensors file."""
    with safe_open(file, "np") as opened:
        return opened.metadata() or {}


def float_dtype(dtype: Any) -> np.dtype:
    """Returns a dtype that parameters may have. Raises ValueError for any other."""
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        parsed = None
    if parsed is None or str(parsed) not in USABLE:
        usual = ", ".join(USABLE)
        raise ValueError(f"dtype is one of {usual}, or int8 of weights; got {dtype!r}")
    return parsed


def fill(
    archive: Archive,
    sources: dict[str, Source],
    shapes: Any,
    *,
    dtype: str,
    sharding: Any = None,
) -> Any:
    """Returns the parameter tree of `shapes`, from an archive that was checked. Arrays
    are read one by one, the largest first: while it is read, one is in memory twice."""
    flat, where = {}, places(shapes, sharding)
    for name in sorted(where, key=lambda name: -math.prod(where[name][0])):
        shape, place = where[name]
        read = reader(archive, sources[name], shape=shape, dtype=float_dtype(dtype))
        flat[name] = _read_onto_devices(read, shape, place)
    return unflatten_dict(flat, sep="/")


def places(shapes: Any, sharding: Any) -> dict[str, Place]:
    """Returns the shape of each parameter and where it lies. Raises ValueError for
    shardings of another model."""
    wanted = flatten_dict(shapes, sep="/")
    if sharding is None or isinstance(sharding, jax.sharding.Sharding):
        return {name: (leaf.shape, sharding) for name, leaf in wanted.items()}
    place = flatten_dict(sharding, sep="/")
    if place.keys() != wanted.keys():
        unlike = ", ".join(sorted(place.keys() ^ wanted.keys())[:SHOWN])
        raise ValueError(f"the shardings are those of another model: {unlike}")
    return {name: (leaf.shape, place[name]) for name, leaf in wanted.items()}


def reader(
    archive: Archive, source: Source, *, shape: tuple[int, ...], dtype: np.dtype
) -> Callable[[Index], np.ndarray]:
    """Returns the function that reads any part of one parameter: (index) -> array."""

    def read(index: Index) -> np.ndarray:
        stored = [slice(*s.indices(n)[:2]) for s, n in zip(index, shape, strict=True)]
        stored = stored[::-1] if source.transpose else stored
        if source.part is not None:
            axis, number, parts = source.part
            first = number * (archive.arrays[source.name].shape[axis] // parts)
            old = stored[axis]
            stored[axis] = slice(old.start + first, old.stop + first)
        sizes = tuple(part.stop - part.start for part in stored)
        cast = _empty_aligned(sizes[::-1] if source.transpose else sizes, dtype)
        rows = cast.T if source.transpose else cast  # as they are stored

        def copy(some: Iterable[slice]) -> None:
            for portion in some:
                first, last = portion.indices(sizes[0])[:2]
                first, last = first + stored[0].start, last + stored[0].start
                part = slice(first, last), *stored[1:]
                rows[portion] = _cast(archive, source.name, part, dtype)

        if not sizes:
            cast[...] = _cast(archive, source.name, (), dtype)
        elif not archive.by_rows:
            copy([slice(None)])
        else:
            _run_in_threads(copy, _portions(sizes))
        return cast

    return read


def _portions(sizes: tuple[int, ...]) -> list[slice]:
    """Returns the portions of rows that are read together."""
    step = max(FEWEST, PORTION // max(1, math.prod(sizes[1:])))
    return [slice(i, min(i + step, sizes[0])) for i in range(0, sizes[0], step)]


def _run_in_threads(do: Callable[[list[slice]], None], portions: list[slice]) -> None:
    """Calls `do` in several threads, each time with some of the portions."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    shares = min(cores, THREADS, len(portions))
    if shares < 2:
        do(portions)
        return
    with ThreadPoolExecutor(shares - 1) as pool:
        others = [pool.submit(do, portions[i::shares]) for i in range(1, shares)]
        do(portions[::shares])
        for other in others:
            other.result()


def _cast(archive: Archive, name: str, index: Index, dtype: np.dtype) -> np.ndarray:
    """Returns a part of a stored array in `dtype`. Raises ValueError for numbers that
    are not finite."""
    values = archive.read(name, index)
    with np.errstate(over="ignore"):  # found below
        cast = np.asarray(values, dtype)
    if not np.isfinite(cast).all():
        fix = f"{dtype} cannot hold them, name a wider dtype"
        if not np.isfinite(values).all():
            fix = "it was damaged or its training diverged, take another copy"
        raise ValueError(
            f"{archive.where}: {name} has numbers that are not finite: {fix}"
        )
    return cast


def _empty_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an aligned array with arbitrary contents, see `ALIGNED`."""
    size = math.prod(shape) * dtype.itemsize
    held = np.empty(size + ALIGNED, np.uint8)
    first = -held.ctypes.data % ALIGNED
    return held[first : first + size].view(dtype).reshape(shape)


def _read_onto_devices(
    read: Callable[[Index], np.ndarray],
    shape: tuple[int, ...],
    sharding: jax.sharding.Sharding | None,
) -> jax.Array:
    """Puts a parameter on its devices before the next is read: one shard waits in
    memory at a time, and devices that hold the same one read it once."""
    if sharding is None:
        return jax.block_until_ready(jax.device_put(read(full_index(shape))))
    holders: dict[tuple[tuple[int, int], ...], list[jax.Device]] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None  # of devices that have a part
        part = tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))
        holders.setdefault(part, []).append(device)
    shards = []
    for part, devices in holders.items():
        values = read(tuple(slice(*ends) for ends in part))
        copies = [jax.device_put(values, device) for device in devices]
        shards += jax.block_until_ready(copies)
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def check(
    archive: Archive,
    sources: dict[str, Source],
    shapes: Any,
    *,
    harmless: Iterable[str] = (),
) -> None:
    """Raises one ValueError that lists every array that is missing, surplus, of another
    shape, or of a dtype that is not a float."""
    arrays, wanted = archive.arrays, flatten_dict(shapes, sep="/")
    need = {}
    for name, leaf in wanted.items():
        need[sources[name].name] = stored_shape(sources[name], leaf.shape)
    known = need.keys() & arrays.keys()
    patterns = tuple(harmless)
    problems = {
        "missing": need.keys() - arrays.keys(),
        "surplus": {
            name
            for name in arrays.keys() - need.keys()
            if not any(fnmatchcase(name, pattern) for pattern in patterns)
        },
        "of another shape": {
            f"{name}: {arrays[name].shape}, not {need[name]}"
            for name in known
            if arrays[name].shape != need[name]
        },
        "of an unusable dtype": {
            f"{name}: {arrays[name].dtype}, not {' or '.join(USABLE)}"
            for name in known
            if str(arrays[name].dtype) not in USABLE
        },
    }
    lines = [
        f"{kind}:\n{_list_names(names)}" for kind, names in problems.items() if names
    ]
    if lines:
        raise ValueError(
            f"{archive.where} does not hold the model that its sizes describe; "
            + "\n".join(lines)
        )


def check_depths(archive: Archive, config: Any, stacks: Mapping[str, str]) -> None:
    """Raises ValueError, at once, where the stored names have another number of layers
    than the sizes say: to describe a very deep model may take minutes. stacks: a
    pattern of a layer's names for each field of `config` that counts layers."""
    for field, pattern in stacks.items():
        says, has = getattr(config, field), count_layers(archive.arrays, pattern)
        if says != has:
            raise ValueError(
                f"{archive.where}: its sizes say {says} {field.replace('_', ' ')} and"
                f" its arrays are of {has}: take both from one checkpoint"
            )


def count_layers(names: Iterable[str], pattern: str) -> int:
    """Returns how many layers there are, by the names that match `pattern`."""
    matches = (re.match(pattern, name) for name in names)
    return len({match[1] for match in matches if match})


def _list_names(names: set[str]) -> str:
    lines = [f"  {name}" for name in sorted(names)]
    more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join(lines[:SHOWN] + more)


def stored_shape(source: Source, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the stored array whose part or transpose has `shape`."""
    stored = list(shape[::-1] if source.transpose else shape)
    if source.part is not None:
        stored[source.part.axis] *= source.part.parts
    return tuple(stored)


def equal(archive: Archive, name: str, other: str) -> bool:
    """Returns whether two stored arrays hold the same numbers, read some rows at a
    time."""
    shape = archive.arrays[name].shape
    if shape != archive.arrays[other].shape:
        return False
    if not shape:
        return bool(archive.read(name, ()) == archive.read(other, ()))
    rows = max(1, COMPARED // max(1, math.prod(shape[1:])))
    for first in range(0, shape[0], rows):
        some = slice(first, min(first + rows, shape[0])), *full_index(shape[1:])
        if not np.array_equal(archive.read(name, some), archive.read(other, some)):
            return False
    return True
