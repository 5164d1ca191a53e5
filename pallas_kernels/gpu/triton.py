"""The launches of `launches` by Triton, for GPUs before Hopper.

JAX has deprecated this backend of Pallas and names Mosaic GPU in its place.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from pallas_kernels.gpu.decision import Block
from pallas_kernels.plan import Plan

WARPS = 4


def launcher(interpret=None) -> Callable:
    """Returns the `launch` of `launches`.

    interpret: True to run on a CPU.
    """

    def launch(
        body: Callable, name: str, plan: Plan, *, grid: dict, operands: dict, out: dict
    ):
        names, axes = [*operands, *out], list(grid)

        def load(ref, index: tuple, start, size: int, width: int) -> Array:
            del width
            return ref[(*index, pl.ds(start, size))]

        def iota(size: int, width: int) -> Array:
            del width
            return lax.broadcasted_iota(jnp.int32, (size,), 0)

        def kernel(*refs) -> None:
            named = dict(zip(names, refs, strict=True))
            place = {axis: pl.program_id(i) for i, axis in enumerate(axes)}
            body(Block(plan, named, load, iota, place.__getitem__))

        call = pl.pallas_call(
            kernel,
            out_shape=[*out.values()],
            grid=tuple(grid.values()),
            interpret=interpret or False,
            name=f"specjax_{name}",
            compiler_params=pltriton.CompilerParams(num_warps=WARPS),
        )
        return dict(zip(out, call(*operands.values()), strict=True))

    return launch
