"""Compiles for Cloud TPUs on a machine that has none, by the compiler in `libtpu`."""

import functools
import os
from collections.abc import Callable
from importlib import metadata

import jax
from jax.experimental import topologies

from experiments.gpu.aot import record
from experiments.gpu.aot.record import Compiled

# The smallest machine of each kind; programs are compiled for one chip of it.
TOPOLOGIES = {
    "v4": "v4:2x2x1",
    "v5e": "v5e:2x2",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:2x2",
    "7x": "tpu7x:2x2x1",
}
INSTALL = "pip install --editable '.[aot]'"


def available() -> str | None:
    """Why nothing can be compiled for a TPU here, or None if it can."""
    try:
        metadata.version("libtpu")
    except metadata.PackageNotFoundError:
        return f"libtpu is not installed: {INSTALL}"
    return None


def compile(
    function: Callable,
    arguments: tuple,
    device: str = "v5e",
    donate: tuple[int, ...] = (),
) -> Compiled:
    """function(*arguments) for one chip of "v4", "v5e", "v5p", "v6e" or "7x".

    As `cuda.compile`, and raises as it does.
    """
    placed, kind = _device(device)
    return record.compile(function, arguments, placed, kind, donate)


@functools.cache
def _device(device: str) -> tuple:
    if reason := available():
        raise ValueError(f"cannot compile for {device}: {reason}")
    if device not in TOPOLOGIES:
        raise ValueError(f"unknown device {device!r}: name one of {sorted(TOPOLOGIES)}")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # there is no machine to ask
    topology = topologies.get_topology_desc(TOPOLOGIES[device], "tpu")
    chip = topology.devices[0]
    placed = jax.sharding.SingleDeviceSharding(chip)
    return placed, (chip.device_kind, chip.num_cores, "tpu")
