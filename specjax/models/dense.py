"""Products with learned matrices, of which several may multiply one text.

Axes: K features in, N features out.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from specjax import quantized
from specjax.models import lowering


class Dense(nn.Module):
    """x [..., K] W + b -> [..., N]: `flax.linen.Dense`, but that its parameters are
    there before x is.

    shape: (K, N). use_bias: add b. kernel_init, bias_init: of W and b.
    """

    shape: tuple[int, int]
    dtype: jnp.dtype = jnp.float32
    use_bias: bool = False
    kernel_init: Callable = nn.initializers.normal(0.02)
    bias_init: Callable = nn.initializers.zeros

    def setup(self):
        self.kernel = self.param("kernel", self.kernel_init, self.shape)
        self.bias = None
        if self.use_bias:
            self.bias = self.param("bias", self.bias_init, self.shape[1:])

    def __call__(self, x: Array) -> Array:
        return multiply(x, self)[0]


def multiply(
    x: Array, *by: Dense, joined: bool = False, factor: Array | None = None
) -> list[Array]:
    """What each of `by` gives of x.

    joined: see `gpu.products`. factor: of the products, [..., 1] in float32, before
    they are rounded; or None.
    """
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
