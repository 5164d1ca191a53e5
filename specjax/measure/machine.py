"""Where a number was measured: the device, the versions, who multiplies few rows."""

import os
import platform
from importlib import metadata

import jax

from specjax import native

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "specjax")


def machine() -> dict:
    """`device`, `versions` and `products` of a record's provenance."""
    devices = jax.devices()
    device = {"platform": devices[0].platform, "kind": devices[0].device_kind}
    device |= {"count": len(devices), "host_cores": os.cpu_count()}
    return {"versions": versions(), "device": device, "products": native.in_use()}


def versions() -> dict[str, str | None]:
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # used from its sources
            installed[name] = None
    return installed
