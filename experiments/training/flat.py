"""Products of matrices in training, shaped for a CPU.

XLA's compiler for CPUs moves the gradient of a batch of matrices [B, T, E] times a
weight through memory in an order that costs as much again as the products. Of the same
rows as one matrix [B * T, E] it does not. Axes: B rows, T tokens, E features.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import flax.linen as nn
from jax import Array


def products() -> AbstractContextManager:
    """Within, every `nn.Dense` multiplies one matrix. The numbers stay the same."""

    def flattened(call, arguments, options, context):
        if isinstance(context.module, nn.Dense) and context.method_name == "__call__":
            return rows(call, *arguments)
        return call(*arguments, **options)

    return nn.intercept_methods(flattened)


def rows(call: Callable[[Array], Array], x: Array) -> Array:
    """`call` of the rows of x [..., E], as [..., F]."""
    y = call(x.reshape(-1, x.shape[-1]))
    return y.reshape(*x.shape[:-1], y.shape[-1])
