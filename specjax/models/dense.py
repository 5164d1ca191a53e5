"""Products with learned matrices, of which several may multiply one text.

Axes: K features in, N features out.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from specjax import quantized
from specjax.models import lowering
from specjax.models.parameters import NORMAL


class Dense(nn.Module):
    """x [..., K] W + b -> [..., N]: `flax.linen.Dense`, but that its parameters are
    there before x is. shape: (K, N). dtype: of the product. use_bias: add b. axes:
    names of K and N. init: of W."""

    shape: tuple[int, int]
    dtype: jnp.dtype = jnp.float32
    use_bias: bool = False
    axes: tuple[str, str] = ("embed", "mlp")
    init: Callable = NORMAL

    def setup(self):
        init = nn.with_logical_partitioning(self.init, self.axes)
        self.kernel = self.param("kernel", init, self.shape)
        self.bias = None
        if self.use_bias:
            zeros = nn.with_logical_partitioning(nn.initializers.zeros, self.axes[1:])
            self.bias = self.param("bias", zeros, self.shape[1:])

    def __call__(self, x: Array) -> Array:
        return multiply(x, self)[0]


def multiply(
    x: Array, *by: Dense, joined: bool = False, factor: Array | None = None
) -> list[Array]:
    """What each of `by` gives of x. joined: see `lowering.products`. factor: of the
    products, [..., 1] in float32, before they are rounded; or None."""
    x = x.astype(by[0].dtype)
    kernels = [dense.kernel.astype(x.dtype) for dense in by]
    if joined:
        products = lowering.products(x, kernels)
    else:
        products = [quantized.dot(x, kernel) for kernel in kernels]
    if factor is not None:
        products = [y * factor for y in products]
    rounded = [y.astype(x.dtype) for y in products]
    return [
        y if dense.bias is None else y + dense.bias.astype(x.dtype)
        for y, dense in zip(rounded, by, strict=True)
    ]


def readout(features: Array, table: Array, tied: bool, dtype: jnp.dtype) -> Array:
    """features [..., E] -> logits [..., V] float32. table: the embedding [V, E], if
    `tied`, else a readout's own [E, V]."""
    return quantized.dot(features, table.astype(dtype), transposed=tied)
