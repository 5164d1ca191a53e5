"""The parameters that models declare, and products with the matrices among them.

Axes: K features in, N features out.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike

from specjax import quantized
from specjax.keys import root_key
from specjax.models import lowering

NORMAL = nn.initializers.normal(0.02)


class Parameters(NamedTuple):
    """The functions that describe the parameters of a configuration; none is made.

    Attributes:
      shapes: (config) -> the tree's shapes and dtypes, unboxed; they are kept and never
        to be changed.
      specs: (config) -> the axes of each leaf as a PartitionSpec of logical names.
      count: (config) -> the number of parameters.
    """

    shapes: Callable[[Any], Any]
    specs: Callable[[Any], Any]
    count: Callable[[Any], int]


def describe(init_params: Callable[[Array, Any], Any]) -> Parameters:
    """Returns what describes the parameters of `init_params(key, config)`."""

    def boxed(config: Any) -> Any:
        return jax.eval_shape(lambda: init_params(root_key(0), config))

    @functools.cache
    def abstract_params(config: Any) -> Any:
        with nn.logical_axis_rules(()):  # shapes lie nowhere, whatever mesh is in use
            return nn.meta.unbox(boxed(config))

    def partition_specs(config: Any) -> Any:
        return nn.get_partition_spec(boxed(config))

    def num_params(config: Any) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))

    return Parameters(abstract_params, partition_specs, num_params)


def declare(
    module: nn.Module,
    name: str,
    init: Initializer = NORMAL,
    *,
    axes: Sequence[str],
    shape: tuple[int, ...],
) -> Array:
    """Returns a parameter of `module`. axes: the logical names of its axes."""
    boxed = nn.with_logical_partitioning(init, tuple(axes))
    return cast(Array, module.param(name, boxed, shape))  # flax types it by its box


class Dense(nn.Module):
    """A product x [..., K] W + b -> [..., N]: `flax.linen.Dense`, except that its
    parameters are there before x is.

    Attributes:
      shape: (K, N).
      dtype: of the product.
      use_bias: whether b is added.
      axes: the logical names of K and N.
      kernel_init: of W.
    """

    shape: tuple[int, int]
    dtype: DTypeLike = jnp.float32
    use_bias: bool = False
    axes: tuple[str, str] = ("embed", "mlp")
    kernel_init: Initializer = NORMAL

    def setup(self) -> None:
        shape, axes = self.shape, self.axes
        self.kernel = declare(self, "kernel", self.kernel_init, axes=axes, shape=shape)
        self.bias: Array | None = None
        if self.use_bias:
            zeros = nn.initializers.zeros
            self.bias = declare(self, "bias", zeros, axes=axes[1:], shape=shape[1:])

    def __call__(self, x: Array) -> Array:
        return multiply(x, self)[0]


def multiply(
    x: Array, *by: Dense, joined: bool = False, factor: Array | None = None
) -> list[Array]:
    """Returns the product of x [..., K] with each of `by`.

    Args:
      joined: whether they are one product on a GPU, see `lowering.products`.
      factor: [..., 1] in float32, by which the products are multiplied before they are
        rounded; or None.
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


def readout(features: Array, table: Array, *, tied: bool, dtype: DTypeLike) -> Array:
    """Returns the logits [..., V] float32 of features [..., E].

    table: the embedding [V, E], if `tied`, else a readout's own [E, V].
    """
    return quantized.dot(features, table.astype(dtype), transposed=tied)
