"""Parameters, how models declare them, and products with the matrices among them.

Axes: K features in, N features out.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax import quantized
from specjax.keys import root_key
from specjax.models import lowering

NORMAL = nn.initializers.normal(0.02)


def parameters(init_params: Callable) -> tuple[Callable, Callable, Callable]:
    """Of `init_params(key, config)`, without making any: the tree's shapes and dtypes,
    unboxed, kept and never to be changed; its axes as PartitionSpecs; its size."""

    def boxed(config):
        return jax.eval_shape(lambda: init_params(root_key(0), config))

    @functools.cache
    def abstract_params(config):
        with nn.logical_axis_rules(()):  # shapes lie nowhere, whatever mesh is in use
            return nn.meta.unbox(boxed(config))

    def partition_specs(config):
        return nn.get_partition_spec(boxed(config))

    def num_params(config) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))

    return abstract_params, partition_specs, num_params


def table(
    module: nn.Module,
    name: str,
    axes: tuple[str, str],
    init: Callable = NORMAL,
    **sizes,
) -> Array:
    """A vector of features for each id or position, a parameter of `module`. sizes: of
    each of `axes`, by name."""
    init = nn.with_logical_partitioning(init, axes)
    return module.param(name, init, tuple(sizes[axis] for axis in axes))


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
