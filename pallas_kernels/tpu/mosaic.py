"""Verification on TPUs: Pallas, Mosaic TPU, one launch.

Each logit is read from HBM into VMEM once; see `block` and `decision`. Axes: B rows, G
= gamma, S texts of a block, V vocabulary.
"""

import functools

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.laws import Decision
from pallas_kernels.plan import NONE, Plan, results
from pallas_kernels.tpu.block import Block, block_place
from pallas_kernels.tpu.decision import choose, decide
from specjax.types import BLOCK


def body(plan: Plan, names: list[str], *refs) -> None:
    place = block_place(plan)
    refs = dict(zip(names, refs, strict=True))
    block = Block(plan, place, refs, pl.program_id(0) * place.texts)
    outcome = decide(block)
    extra = choose(block, outcome)
    texts = lax.broadcasted_iota(jnp.int32, extra.shape, place.s)
    for row in range(place.texts):

        @pl.when(block.first + row < plan.batch)
        def _(row=row):
            b = block.first + row
            n, token = (
                jnp.sum(jnp.where(texts == row, x, 0)) for x in (outcome.n, extra)
            )
            refs["num_accepted"][b] = n
            for k in range(plan.gamma + 1):
                value = jnp.where(n == k, token, 0)
                if k < plan.gamma:
                    value = jnp.where(k < n, refs["tokens"][b, k], value)
                refs["verdict"][b, k] = value
            put_chances(block, outcome, row)
            if plan.draft == NONE:
                for name, x in outcome.p._asdict().items():
                    refs[name][b] = jnp.sum(jnp.where(texts == row, x, 0))


def put_chances(block: Block, outcome: Decision, row: int) -> None:
    if outcome.chance is None:
        return
    t, s = (
        lax.broadcasted_iota(jnp.int32, outcome.chance.shape, axis)
        for axis in block.place[1:]
    )
    for k in range(block.plan.gamma):
        value = jnp.sum(jnp.where((t == k) & (s == row), outcome.chance, 0.0))
        block.refs["accept_prob"][block.first + row, k] = value


def verdict(
    plan: Plan, operands: dict[str, Array], interpret=False, vmem: int | None = None
) -> dict[str, Array]:
    """Launches a verification; see `gpu.launches.verdict`.

    vmem: bytes that the kernel may use, None for the compiler's own limit.
    """
    place, operands = block_place(plan), dict(operands)
    lanes, groups = plan.count * BLOCK, -(-plan.batch // place.texts)
    small = pl.BlockSpec(memory_space=pltpu.SMEM)
    specs = []
    for name in operands:
        if name in plan.sides:
            sizes = place.size(plan.rows(name), lanes)
            where = (lambda i: (0, i, 0)) if place.s == 1 else (lambda i: (i, 0, 0))
            mode = pl.Buffered(1) if groups == 1 else None
            specs.append(pl.BlockSpec(sizes, where, pipeline_mode=mode))
        else:
            specs.append(small)
    if place.s == 1:
        operands |= {side: operands[side].swapaxes(0, 1) for side in plan.sides}
    out = results(plan)
    options = dict(dimension_semantics=("arbitrary",), vmem_limit_bytes=vmem)
    call = pl.pallas_call(
        functools.partial(body, plan, [*operands, *out]),
        grid=(groups,),
        in_specs=specs,
        out_specs=[small] * len(out),
        out_shape=[*out.values()],
        interpret=interpret,
        name="specjax_verify",
        compiler_params=pltpu.CompilerParams(**options),
    )
    return dict(zip(out, call(*operands.values()), strict=True))
