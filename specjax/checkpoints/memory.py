"""Whether weights fit into memory, before any of them is read."""

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
    dtype,
    sharding: Any = None,
):
    """Raises ValueError, in one line, for weights that do not fit."""
    places = archives.places(shapes, sharding)
    reading, held = largest(archive, sources, places, dtype), placed(places)
    for device, shards in held.items():
        free, where = available(device)
        need = weights(shards, dtype) + (reading if where == "memory" else 0)
        if free is not None and need > free:
            each = f" on each of {len(held)} devices" if len(held) > 1 else ""
            raise ValueError(
                f"{name} needs {need / GB:.1f} GB of {where} in {dtype}{each} and"
                f" {free / GB:.1f} GB are free: take {fix(shards, dtype)}, a smaller"
                f" model, or more {'devices' if each else 'memory'}"
            )


def fix(shards: list[tuple[int, ...]], dtype) -> str:
    less = [
        f"{weights(shards, other) / GB:.1f} GB by --dtype {other}"
        for other, item in ITEMS.items()
        if item < itemsize(dtype)
    ]
    return " or ".join(less) if less else "fewer other programs"


def placed(places: dict[str, Place]) -> dict[jax.Device, list[tuple[int, ...]]]:
    """The shapes of what lies on each of this process's devices, or in the one memory
    that all of a CPU's have."""
    default, held = jax.local_devices()[0], {}
    for shape, by in places.values():
        devices = [default] if by is None else by.addressable_devices
        for device in devices:
            memory = default if device.platform == "cpu" else device
            held.setdefault(memory, []).append(shard_of(shape, by))
    return held


def shard_of(shape: tuple[int, ...], by: jax.sharding.Sharding | None):
    return shape if by is None else by.shard_shape(shape)


def itemsize(dtype) -> int:
    return 1 if eight(dtype) else ITEMS.get(str(dtype)) or np.dtype(dtype).itemsize


def eight(dtype) -> bool:
    """Whether matrices are kept in eight bits."""
    return str(dtype).startswith("int8")


def weights(shapes: list[tuple[int, ...]], dtype) -> int:
    """Bytes of all parameters; vectors are never kept in eight bits."""
    item = itemsize(dtype)
    vector = 4 if eight(dtype) else item
    return sum(math.prod(s) * (item if len(s) > 1 else vector) for s in shapes)


def largest(
    archive: Archive, sources: dict[str, Source], places: dict[str, Place], dtype
) -> int:
    """Bytes that the largest shard needs while it is read: as it is stored, and in the
    dtype that it is brought to."""
    to = 4 if eight(dtype) else itemsize(dtype)
    return max(
        math.prod(shard_of(*place))
        * (archive.arrays[sources[name].name].dtype.itemsize + to)
        for name, place in places.items()
    )


def available(device: jax.Device) -> tuple[int | None, str]:
    """Free bytes where a device has its arrays, and what that memory is; None if
    unknown."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0), device.device_kind
    if device.platform != "cpu":
        return None, device.device_kind
    told = [free for free in (of_machine(), of_group()) if free is not None]
    return min(told, default=None), "memory"


def of_machine(file: Path = MEMINFO) -> int | None:
    """What the system says that programs may still take."""
    lines = _read(file).splitlines()
    fields = next((x.split() for x in lines if x.startswith("MemAvailable:")), [])
    return int(fields[1]) * 1024 if len(fields) == 3 and fields[1].isdecimal() else None


def of_group(folder: Path = CGROUP) -> int | None:
    """What is left of a container's limit (cgroup, version 2 or 1); what it holds of
    files can be dropped."""
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
            continue  # "max" is no limit
        stat = dict(x.split()[:2] for x in _read(place / "memory.stat").splitlines())
        return int(most) - int(used) + int(stat.get(cached, 0))
    return None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
