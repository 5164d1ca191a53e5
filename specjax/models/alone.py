"""One token of one row: the call that a draft consists of, shaped for a GPU.

Its products are those of a vector with a matrix, which XLA's compiler for GPUs takes
apart: it multiplies in one kernel, into memory, and adds up in another, and a norm is
two more. Two equal rows it multiplies as matrices, in one kernel that reads the weights
once, and normalises in another. The second row is never looked at.
Axes: B rows, T tokens.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array


def build(apply: Callable) -> Callable:
    """`Model.apply` from one that takes `copies`, how often a row of features is to be
    held: 2 for one token of one row on a CUDA device, otherwise 1."""

    def run(params, tokens: Array, start: Array, cache):
        def held(copies: int) -> Callable:
            return lambda *arguments: apply(*arguments, copies)

        arguments = params, tokens, start, cache
        if tokens.size > 1:
            return apply(*arguments, 1)
        return jax.lax.platform_dependent(*arguments, cuda=held(2), default=held(1))

    return run


def reading(readout: Callable) -> Callable:
    """`Model.readout` from a function of (params, features): the same for one row."""

    def two(params, features: Array) -> Array:
        rows = hold(features.reshape(1, -1), 2)
        logits = readout(params, rows)[:1]
        return logits.reshape(*features.shape[:-1], -1)

    def run(params, features: Array) -> Array:
        if features.size > features.shape[-1]:
            return readout(params, features)
        return jax.lax.platform_dependent(params, features, cuda=two, default=readout)

    return run


def hold(x: Array, copies: int) -> Array:
    """[B, ...] -> [copies * B, ...]; one row if there are copies."""
    return x if copies == 1 else jnp.broadcast_to(x, (copies, *x.shape[1:]))


def enter(x: Array, copies: int) -> Array:
    """`hold` of what a stack begins with, in memory: a norm of what is gathered and not
    yet there is two kernels."""
    return x if copies == 1 else jax.lax.optimization_barrier(hold(x, copies))
