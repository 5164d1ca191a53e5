"""Compiles for GPUs and TPUs on a machine that has none, with the vendors' compilers.

JAX's CUDA plugin and `libtpu` contain the compilers; a file of `targets` has the
description of a GPU that XLA needs. Pallas kernels compile too.
"""

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax
from jax.experimental import topologies

from experiments.gpu.aot import graphs, hlo
from pallas_kernels.dispatch import Device

TARGETS = Path(__file__).with_name("targets")
WHEELS = {"gpu": ("jax-cuda13-pjrt", "jax-cuda13-plugin", "absl-py")}
WHEELS |= {"tpu": ("libtpu",)}
CACHED = "jax_persistent_cache_min_compile_time_secs"
INSTALL = "pip install --editable '.[aot]'"
DEVICES = {
    "h100": Device("gpu", "NVIDIA H100 80GB HBM3", (9, 0)),
    "h200": Device("gpu", "NVIDIA H200", (9, 0)),
    "a100": Device("gpu", "NVIDIA A100-SXM4-80GB", (8, 0)),
    "t4": Device("gpu", "Tesla T4", (7, 5)),
    "v4": Device("tpu", "TPU v4"),
    "v5e": Device("tpu", "TPU v5 lite"),
    "v5p": Device("tpu", "TPU v5"),
    "v6e": Device("tpu", "TPU v6 lite"),
}
# The smallest machine of each kind of TPU; programs are compiled for one chip of it.
TOPOLOGIES = {"v4": "2x2x1", "v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2"}


class Compiled(NamedTuple):
    """A compiled program.

    Attributes:
        text: the optimized HLO.
        program: its launches.
        thunks: the form of its launches, on a GPU.
        argument_bytes, output_bytes, temp_bytes, code_bytes: bytes of arguments,
            results, further allocations and machine code (0 where none is reported).
        seconds: the time of lowering and compiling.
    """

    text: str
    program: hlo.Sequence
    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    code_bytes: int
    seconds: float
    thunks: tuple[graphs.Thunk, ...] = ()


def missing_reason(platform: str) -> str | None:
    """Returns why nothing can be compiled for "gpu" or "tpu" here; None if it can."""
    for wheel in WHEELS[platform]:
        try:
            version = metadata.version(wheel)
        except metadata.PackageNotFoundError:
            return f"{wheel} is not installed: {INSTALL}"
        if wheel.startswith("jax-") and version != jax.__version__:
            return f"{wheel} is {version} and jax {jax.__version__}: {INSTALL}"
    return None


def check(device: str) -> None:
    """Raises ValueError for a device that is not in DEVICES, or whose wheel is missing;
    the message has the command that installs it.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: name one of {sorted(DEVICES)}")
    if reason := missing_reason(DEVICES[device].platform):
        raise ValueError(f"cannot compile for {device}: {reason}")


def compile(
    function: Callable,
    arguments: tuple,
    *,
    device: str = "h200",
    donate: tuple[int, ...] = (),
    dump_folder: Path | None = None,
) -> Compiled:
    """Compiles function(*arguments) for one of DEVICES; nothing is executed.

    Args:
        arguments: a tuple of pytrees of ShapeDtypeStructs or arrays.
        donate: the indices of those that may be overwritten.
        dump_folder: a folder that this process dumps all it compiles into (`dumping`).

    Raises:
        ValueError: as `check`.
    """
    placed, abstract = _placement(device)
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed), arguments
    )
    begun = time.perf_counter()
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=abstract)
    jitted, thunks = jax.jit(function, donate_argnums=donate), ()
    with without_cache(), jax.sharding.use_abstract_mesh(mesh):
        if DEVICES[device].platform == "gpu":
            with tempfile.TemporaryDirectory() as folder:
                written = {"xla_dump_to": folder, "xla_dump_emitter_re": "thunk.*"}
                options = written if dump_folder is None else {}
                compiled = jitted.lower(*shapes).compile(compiler_options=options)
                program = (
                    f"jit_{getattr(function, '__name__', '')}" if dump_folder else ""
                )
                thunks = graphs.read(thunk_list(dump_folder or Path(folder), program))
        else:
            compiled = jitted.lower(*shapes).compile()
    seconds, text = time.perf_counter() - begun, compiled.as_text()
    sizes = compiled.memory_analysis()
    return Compiled(
        text,
        hlo.read(text),
        sizes.argument_size_in_bytes,
        sizes.output_size_in_bytes,
        sizes.temp_size_in_bytes,
        sizes.generated_code_size_in_bytes,
        seconds,
        thunks,
    )


def dump_flags(folder: Path) -> str:
    """Returns XLA's flags for a process that dumps the programs that it compiles."""
    return f"--xla_dump_to={folder} --xla_dump_emitter_re=.*"


def thunk_list(folder: Path, program: str = "") -> str:
    """Returns XLA's dump of a program's thunks, after some were merged into graphs.

    Raises:
        RuntimeError: XLA did not dump it.
    """
    for kind in ("thunk_sequence_after*", "thunk_sequence"):
        dumped = sorted(folder.glob(f"*{kind}.txt"))
        files = [file for file in dumped if program in file.name]
        if files:
            return files[-1].read_text("utf-8")
    raise RuntimeError("XLA dumped no list of thunks")


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Disables the compilation cache, which cannot read programs for a device that is
    not present.
    """
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update(CACHED, float("inf"))
    try:
        yield
    finally:
        jax.config.update(CACHED, least)


def topology(device: str, shape: str = "") -> list[jax.Device]:
    """Returns several of one of DEVICES, connected as `shape` says.

    "2x4" is a shape of a TPU; for GPUs the last number counts those of a host. "" is
    one GPU, or the smallest TPU topology.

    Raises:
        ValueError: as `check`.
    """
    check(device)
    if DEVICES[device].platform == "gpu":
        # The plugin must not look for a driver.
        os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
        target = (TARGETS / f"{device}.txtpb").read_text("utf-8")
        options = {"platform": "cuda", "target_config": target}
        options["topology"] = shape or "1x1x1"
        return topologies.get_topology_desc(**options).devices
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # there is no machine to ask
    name = f"{device}:{shape or TOPOLOGIES[device]}"
    return topologies.get_topology_desc(name, "tpu").devices


@functools.cache
def _placement(device: str) -> tuple:
    """Returns the placement of arguments, and the abstract device that code gets when
    it asks for the default device.
    """
    one, platform = topology(device)[0], DEVICES[device].platform
    if platform == "gpu":
        mesh = jax.sharding.Mesh([one], ("x",))
        placed, cores = jax.sharding.NamedSharding(mesh, jax.P()), None
    else:
        placed, cores = jax.sharding.SingleDeviceSharding(one), one.num_cores
    return placed, jax.sharding.AbstractDevice(one.device_kind, cores, platform)
