"""The result of reading a gin file: one row of a table, built but not yet measured."""

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
from specjax.runtime.plugins import is_custom, module_file

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "specjax")


def machine() -> dict:
    """Returns the fields of a record's provenance that describe the machine.

    They are `device`, `versions`, `products` and `xla_flags`, and `mesh` on a mesh.
    """
    devices = jax.devices()
    device = {"platform": devices[0].platform, "kind": devices[0].device_kind}
    device |= {"count": len(devices), "host_cores": os.cpu_count()}
    device |= {"processor": processor.describe()}
    fields = {"versions": versions(), "device": device, "products": native.in_use()}
    fields["xla_flags"] = jax_flags.xla_flags()
    return fields if layout.value is None else fields | {"mesh": layout.value._asdict()}


def versions() -> dict[str, str | None]:
    """Returns the versions of Python and of the packages that a number depends on."""
    installed: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # used from its sources
            installed[name] = None
    return installed


class Measurement(NamedTuple):
    """A measurement to run, and everything that its result depends on.

    run: () -> plain numbers by name.
    module: the module that measures, as it is imported.
    inputs: the files that it reads, weights and prompts.
    dtype: the dtype of the arithmetic.
    seed: the seed of the random numbers; None if there are none.
    shares: whether `run` takes `kept`, a dictionary by which rows of one run share
      results.
    """

    run: Callable[..., dict]
    module: str
    inputs: tuple[Path, ...] = ()
    dtype: str = "float64"
    seed: int | None = None
    shares: bool = False


class TableRow(NamedTuple):
    """A row of a table.

    measurement: what fills it.
    scale: "closed form", "compiled" (nothing ran), "laptop", "paper" or "chip".
    products: "thin" or "xla", see `specjax.native`.
    kind: what keeps its numbers valid. A "law" is computed whenever it is shown; a
      "count" is the same on every machine until a golden test moves; a "time" is a
      dated snapshot.
    mesh: the devices to decode on, see `specjax.runtime.mesh.parse`; "" is one device.
    """

    measurement: Measurement
    scale: str
    products: str = native.THIN
    kind: str = "count"
    mesh: str = ""


def conditions(dtype: str, seed: int | None, seconds: float) -> dict:
    """Returns the conditions that a number was measured under: versions, device,
    arithmetic, and date."""
    return {
        **machine(),
        "dtype": dtype,
        "seed": seed,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
    }


def own_files(*names: str) -> tuple[Path, ...]:
    """Returns the source files of rules and policies named "module:name".

    They are inputs of what is measured with them, so that a change of theirs is
    detected.
    """
    return tuple(module_file(name) for name in names if is_custom(name))
