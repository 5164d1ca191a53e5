"""Laws of rows whose ids are split over devices: each device reads its own part once.

A part gives the largest logit of each row, the first id that has it, and a sum of
exponentials, as the blocks of `gpu.launches.statistics` do. Devices exchange these, and
each then knows the law's scalars. Axes: B rows, T tokens, V ids, J blocks of a device.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from pallas_kernels import dispatch, onepass
from pallas_kernels.gpu import launches, triton
from pallas_kernels.gpu import mosaic as mosaic_gpu
from pallas_kernels.laws import Deferred, LawRow, inverse_temperature, law_row, per_row
from pallas_kernels.plan import Tiles, plan
from specjax.types import Draft

Read = Callable[[Array, Array], tuple[Array, Array, Array]]
KERNELS = {dispatch.MOSAIC_GPU: mosaic_gpu, dispatch.TRITON: triton}


def law(axis: str, read: Read) -> Callable[[Array, Array], LawRow]:
    """Returns a function that computes the law of split rows, to be called within
    `jax.shard_map`.

    The function maps (logits [B, T, V / devices], temperature [B]) to the scalars [B,
    T] of the law of all V ids, the same on each device of the mesh's `axis`. read: from
    `reader`.
    """

    def standardize_row(logits: Array, temperature: Array) -> LawRow:
        size, temperature_row = logits.shape[-1], per_row(temperature, logits)
        vocab = size * lax.axis_size(axis)
        top, first, total = read(logits, temperature)
        most = lax.pmax(top, axis)
        fewer = jnp.exp((top - most) * inverse_temperature(temperature_row))
        total = lax.psum(jnp.where(top == most, total, total * fewer), axis)
        first = jnp.where(top == most, first + size * lax.axis_index(axis), vocab - 1)
        first = lax.pmin(first, axis)
        row = law_row(
            temperature_row,
            top=most,
            first=first,
            lse=jnp.log(total),
            cut=None,
            vocab=vocab,
        )
        ids = jnp.broadcast_to(row.tie, most.shape).astype(jnp.int32)
        return row._replace(tie=ids, tau=jnp.broadcast_to(row.tau, most.shape))

    return standardize_row


def reader(name: str, tiles: Tiles | None = None, interpret=None) -> Read:
    """Returns a function that reads a device's part of each row.

    It maps (logits [B, T, V], temperature [B]) to the largest logit of each row, the
    first id that has it (in argmax rows), and the sum of exp(scale (z - top)): [B, T]
    each. name: a kernel with a launch for this; for any other name it is one-pass XLA.
    """
    if name not in KERNELS:

        def read_plainly(z: Array, temperature: Array) -> tuple[Array, Array, Array]:
            scale = inverse_temperature(per_row(temperature, z))
            return onepass.read(z, scale, None)

        return read_plainly

    def read(logits: Array, temperature: Array) -> tuple[Array, Array, Array]:
        deferred, (batch, count) = Deferred(logits, temperature), logits.shape[:2]
        sure = Draft(jnp.zeros((batch, count - 1), jnp.int32), None, None)
        planned = plan(deferred, sure)
        planned = planned._replace(tiles=tiles or planned.tiles)
        arrays = {"p": logits, "p_temperature": temperature}
        launch = KERNELS[name].launcher(interpret)
        saved = launches.read_parts(planned, arrays, launch)
        tops, sums, firsts = (
            saved[f"p_{name}"][..., :count] for name in ("top", "sum", "first")
        )  # [B, J, T]
        top = tops.max(1)
        above = (tops - top[:, None]) * inverse_temperature(temperature)[:, None, None]
        here = tops == top[:, None]
        total = jnp.sum(sums * jnp.where(here, 1.0, jnp.exp(above)), axis=1)
        least = jnp.min(jnp.where(here, firsts, logits.shape[-1] - 1), axis=1)
        return top, least, total

    return read
