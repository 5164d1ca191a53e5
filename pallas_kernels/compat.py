"""The JAX functions that differ between the releases that specjax supports.

Each function says from which release its fallback can be removed.
"""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.pallas import mosaic_gpu as plgpu

# Before JAX 0.11 `plgpu.load` takes the index as an argument of its own.
_INDEX = inspect.signature(plgpu.load).parameters.get("idx")
_APART = _INDEX is not None and _INDEX.default is inspect.Parameter.empty


class Vectors(NamedTuple):
    """Vector operations of Mosaic GPU.

    load: (reference, index, layout) -> a vector of a reference in GPU memory.
    iota: (layout, size) -> 0 .. size - 1.
    """

    load: Callable
    iota: Callable


def vectors(interpret) -> Vectors:
    """Returns the vector operations of the installed JAX release.

    interpret: `interpret_params()`, or None to compile.
    """
    if _APART and interpret is not None:  # the interpreter has neither function
        return Vectors(
            lambda ref, index, layout: ref[index],
            lambda layout, size: lax.broadcasted_iota(jnp.int32, (size,), 0),
        )
    if _APART:
        return Vectors(
            lambda ref, index, layout: plgpu.load(ref, index, layout=layout), _iota
        )
    return Vectors(
        lambda ref, index, layout: plgpu.load(ref.at[index], layout=layout), _iota
    )


def _iota(layout, size: int) -> Array:
    return plgpu.broadcasted_iota(jnp.int32, (size,), 0, layout=layout)


def interpret_params(races: bool = False):
    """Returns the parameters that make `plgpu.kernel` run on a CPU.

    races: look for data races too.
    """
    params = getattr(plgpu, "InterpretGPUParams", None)
    if params is None:  # public from JAX 0.11 on
        from jax._src.pallas.mosaic_gpu.interpret import params as private

        params = private.InterpretGPUParams
    return params(detect_races=races)
