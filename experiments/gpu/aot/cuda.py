"""Compiles for NVIDIA GPUs on a machine that has none, by XLA's own compiler.

The wheels of JAX's CUDA plugin hold the compiler; a file of `targets` says what it
must know of a device. Pallas kernels compile too.
"""

import functools
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import jax
from jax.experimental import topologies

from experiments.gpu.aot import record
from experiments.gpu.aot.record import Compiled

TARGETS = Path(__file__).with_name("targets")
WHEELS = ("jax-cuda13-pjrt", "jax-cuda13-plugin", "absl-py")
INSTALL = "pip install --editable '.[aot]'"


def available() -> str | None:
    """Why nothing can be compiled for a GPU here, or None if it can."""
    for wheel in WHEELS:
        try:
            version = metadata.version(wheel)
        except metadata.PackageNotFoundError:
            return f"{wheel} is not installed: {INSTALL}"
        if wheel != "absl-py" and version != jax.__version__:
            return f"{wheel} is {version} and jax {jax.__version__}: {INSTALL}"
    return None


def compile(
    function: Callable,
    arguments: tuple,
    device: str = "h200",
    donate: tuple[int, ...] = (),
) -> Compiled:
    """function(*arguments) for "h200", "a100" or "t4".

    arguments: a tuple of pytrees of ShapeDtypeStructs or arrays. donate: the indices of
    those that may be written over. Raises ValueError for a device that is not known, or
    where a wheel is missing, with the command that installs it.
    """
    placed, kind = _device(device)
    return record.compile(function, arguments, placed, kind, donate)


@functools.cache
def _device(device: str) -> tuple:
    if reason := available():
        raise ValueError(f"cannot compile for {device}: {reason}")
    known = sorted(path.stem for path in TARGETS.glob("*.txtpb"))
    if device not in known:
        raise ValueError(f"unknown device {device!r}: name one of {known}")
    # The plugin must not look for a driver.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    text = (TARGETS / f"{device}.txtpb").read_text("utf-8")
    options = dict(target_config=text, topology="1x1x1")
    topology = topologies.get_topology_desc(platform="cuda", **options)
    mesh = topologies.make_mesh(topology, (1,), ("x",))
    placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return placed, (topology.devices[0].device_kind, None, "gpu")
