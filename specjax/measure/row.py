"""What a gin file describes: one row of a table, built but not yet measured."""

import datetime
import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax

from specjax import native
from specjax.runtime import jax_flags, processor
from specjax.runtime.mesh import layout
from specjax.runtime.plugins import file_of, is_own

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "specjax")


def machine() -> dict:
    """`device`, `versions`, `products` and `xla_flags` of a record's provenance, and
    `mesh` where there was one."""
    devices = jax.devices()
    device = {"platform": devices[0].platform, "kind": devices[0].device_kind}
    device |= {"count": len(devices), "host_cores": os.cpu_count()}
    device |= {"processor": processor.describe()}
    told = {"versions": versions(), "device": device, "products": native.in_use()}
    told["xla_flags"] = jax_flags.xla()
    return told if layout.value is None else told | {"mesh": layout.value._asdict()}


def versions() -> dict[str, str | None]:
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # used from its sources
            installed[name] = None
    return installed


class Measurement(NamedTuple):
    """Something to measure, and everything that its result depends on. run: () -> plain
    numbers by name. module: who measures, as it is imported. inputs: the files that it
    reads, weights and prompts. dtype, seed: of the arithmetic and of the randomness; no
    seed, no randomness. shares: `run` takes what rows of one run have kept for each
    other, a dictionary `kept`."""

    run: Callable[..., dict]
    module: str
    inputs: tuple[Path, ...] = ()
    dtype: str = "float64"
    seed: int | None = None
    shares: bool = False


class TableRow(NamedTuple):
    """`scale`: "closed form", "compiled" (nothing ran), "laptop", "paper" or "chip".
    products: "thin" or "xla", see `specjax.native`. kind: what keeps its numbers valid.
    A "law" is computed whenever it is shown; a "count" is the same on every machine
    until a golden test moves; a "time" is a dated snapshot. mesh: devices to decode on,
    as `specjax.runtime.mesh.parse` reads it; "" is one."""

    measurement: Measurement
    scale: str
    products: str = native.THIN
    kind: str = "count"
    mesh: str = ""


def conditions(dtype: str, seed: int | None, seconds: float) -> dict:
    """Under what a number was measured: versions, device, arithmetic, and when."""
    return {
        **machine(),
        "dtype": dtype,
        "seed": seed,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
    }


def own_files(*names: str) -> tuple[Path, ...]:
    """The sources of rules and policies that are named as "module:name": inputs of what
    is measured by them, so that a change of theirs is seen."""
    return tuple(file_of(name) for name in names if is_own(name))
