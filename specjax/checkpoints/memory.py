"""A check that weights fit into memory, made before any of them is read."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.checkpoints import archive as archives
from specjax.checkpoints.archive import Archive, Place, Source

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
ITEMS = {"float32": 4, "bfloat16": 2, "int8": 1}  # bytes of a weight, as it may be kept
GB = 1e9


def check(
    name: str,
    archive: Archive,
    sources: dict[str, Source],
    shapes: Any,
    *,
    dtype: Any,
    sharding: Any = None,
) -> None:
    """Raises ValueError, in one line, for weights that do not fit."""
    places = archives.places(shapes, sharding)
    reading = largest_read(archive, sources, places, dtype=dtype)
    held = shapes_by_device(places)
    for device, shards in held.items():
        free, where = available(device)
        need = weight_bytes(shards, dtype) + (reading if where == "memory" else 0)
        if free is not None and need > free:
            each = f" on each of {len(held)} devices" if len(held) > 1 else ""
            less = suggest_dtypes(shards, dtype)
            raise ValueError(
                f"{name} needs {need / GB:.1f} GB of {where} in {dtype}{each} and"
                f" {free / GB:.1f} GB are free: take {less}, a smaller"
                f" model, or more {'devices' if each else 'memory'}"
            )


def suggest_dtypes(shards: list[tuple[int, ...]], dtype: Any) -> str:
    """Returns the dtypes in which the weights need less memory, and how much each
    needs, in the words of a message."""
    less = [
        f"{weight_bytes(shards, other) / GB:.1f} GB by --dtype {other}"
        for other, item in ITEMS.items()
        if item < itemsize(dtype)
    ]
    return " or ".join(less) if less else "fewer other programs"


def shapes_by_device(
    places: dict[str, Place],
) -> dict[jax.Device, list[tuple[int, ...]]]:
    """Returns the shapes of the parameters on each of this process's devices; those of
    a CPU share one memory."""
    default: Any = jax.local_devices()[0]
    held: dict[Any, list[tuple[int, ...]]] = {}
    for shape, by in places.values():
        devices: Any = [default] if by is None else by.addressable_devices
        for device in devices:
            memory = default if device.platform == "cpu" else device
            held.setdefault(memory, []).append(shard_shape(shape, by))
    return held


def shard_shape(
    shape: tuple[int, ...], by: jax.sharding.Sharding | None
) -> tuple[int, ...]:
    """Returns the shape of each device's part of an array."""
    return shape if by is None else by.shard_shape(shape)


def itemsize(dtype: Any) -> int:
    """Returns the bytes of a number in a matrix of weights."""
    if in_eight_bits(dtype):
        return 1
    return ITEMS.get(str(dtype)) or np.dtype(dtype).itemsize


def in_eight_bits(dtype: Any) -> bool:
    """Returns whether matrices are kept in eight bits."""
    return str(dtype).startswith("int8")


def weight_bytes(shapes: list[tuple[int, ...]], dtype: Any) -> int:
    """Returns the bytes of all parameters; vectors are never kept in eight bits."""
    item = itemsize(dtype)
    vector = 4 if in_eight_bits(dtype) else item
    return sum(math.prod(s) * (item if len(s) > 1 else vector) for s in shapes)


def largest_read(
    archive: Archive,
    sources: dict[str, Source],
    places: dict[str, Place],
    *,
    dtype: Any,
) -> int:
    """Returns the bytes that the largest shard needs while it is read: as it is stored,
    and in the dtype that it is converted to."""
    to = 4 if in_eight_bits(dtype) else itemsize(dtype)
    return max(
        math.prod(shard_shape(shape, by))
        * (archive.arrays[sources[name].name].dtype.itemsize + to)
        for name, (shape, by) in places.items()
    )


def available(device: jax.Device) -> tuple[int | None, str]:
    """Returns the free bytes of the memory that holds a device's arrays, None if
    unknown, and what that memory is."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0), device.device_kind
    if device.platform != "cpu":
        return None, device.device_kind
    limits = machine_memory(), container_memory()
    return min((free for free in limits if free is not None), default=None), "memory"


def machine_memory(file: Path = MEMINFO) -> int | None:
    """Returns the bytes that programs may still take, as the system reports them; None
    if it reports none."""
    lines = _read(file).splitlines()
    fields = next((x.split() for x in lines if x.startswith("MemAvailable:")), [])
    return int(fields[1]) * 1024 if len(fields) == 3 and fields[1].isdecimal() else None


def container_memory(folder: Path = CGROUP) -> int | None:
    """Returns the bytes that are left of a container's limit (cgroup, version 2 or 1),
    with those of cached files, which can be dropped; None without a limit."""
    for place, limit, usage, cached in (
        (folder, "memory.max", "memory.current", "inactive_file"),
        (
            folder / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        most, used = (_read(place / name).strip() for name in (limit, usage))
        if not (most.isdecimal() and used.isdecimal()):
            continue  # "max" is not a limit
        stat = dict(x.split()[:2] for x in _read(place / "memory.stat").splitlines())
        return int(most) - int(used) + int(stat.get(cached, 0))
    return None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
