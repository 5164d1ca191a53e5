"""A program compiled for a machine that is not there, as CUDA and TPU share it."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from experiments.gpu.aot import hlo


class Compiled(NamedTuple):
    """text: the optimized HLO; program: what it launches. Sizes in bytes: arguments,
    results, what is allocated besides, machine code (0 where it is not told). seconds:
    that lowering and compiling took."""

    text: str
    program: hlo.Sequence
    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    code_bytes: int
    seconds: float


def compile(
    function: Callable, arguments: tuple, placed: Any, kind: tuple, donate: tuple = ()
) -> Compiled:
    """Compiles function(*arguments) for the devices of a sharding.

    arguments: pytrees of arrays or ShapeDtypeStructs; nothing is run. kind: of device
    and platform, for code that asks. donate: arguments that may be written over.
    """
    name, cores, platform = kind
    abstract = jax.sharding.AbstractDevice(name, cores, platform)
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed), arguments
    )
    begun = time.perf_counter()
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=abstract)
    with jax.sharding.use_abstract_mesh(mesh), _unkept():
        jitted = jax.jit(function, donate_argnums=donate)
        compiled = jitted.lower(*shapes).compile()
    seconds, sizes, text = (
        time.perf_counter() - begun,
        compiled.memory_analysis(),
        compiled.as_text(),
    )
    return Compiled(
        text,
        hlo.read(text),
        sizes.argument_size_in_bytes,
        sizes.output_size_in_bytes,
        sizes.temp_size_in_bytes,
        sizes.generated_code_size_in_bytes,
        seconds,
    )


@contextlib.contextmanager
def _unkept():
    """Nothing is kept for another run: what is for a device that is not here cannot be
    read again."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        jax.config.update(name, before)
