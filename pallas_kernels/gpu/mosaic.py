"""The launches of `launches` by Mosaic GPU, for Hopper and later.

It must not be compiled for earlier GPUs: the compiler ends the process.
"""

from collections.abc import Callable

from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels import compat
from pallas_kernels.gpu.decision import Block
from pallas_kernels.plan import Plan


def launcher(interpret=None) -> Callable:
    """Returns the `launch` of `launches`.

    interpret: `compat.interpret_params`, to run on a CPU.
    """

    def launch(
        body: Callable, name: str, plan: Plan, *, grid: dict, operands: dict, out: dict
    ):
        vectors, names = compat.vectors(interpret), [*operands, *out]

        def load(ref, index: tuple, start, size: int, width: int) -> Array:
            layout = plgpu.Layout.WG_STRIDED((size,), vec_size=width)
            return vectors.load(ref, (*index, pl.ds(start, size)), layout)

        def iota(size: int, width: int) -> Array:
            layout = plgpu.Layout.WG_STRIDED((size,), vec_size=width)
            return vectors.iota(layout, size)

        def kernel(*refs) -> None:
            named = dict(zip(names, refs, strict=True))
            body(Block(plan, named, load, iota, lax.axis_index))

        options = {} if interpret is None else {"interpret": interpret}
        call = plgpu.kernel(
            kernel,
            out_type=[*out.values()],
            grid=tuple(grid.values()),
            grid_names=tuple(grid),
            kernel_name=f"specjax_{name}",
            compiler_params=plgpu.CompilerParams(
                approx_math=True,
                # The default of JAX 0.11 and later lacks broadcasts.
                lowering_semantics=plgpu.LoweringSemantics.Lane,
            ),
            **options,
        )
        return dict(zip(out, call(*operands.values()), strict=True))

    return launch
