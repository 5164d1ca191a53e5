"""The parameters that models declare, and products with those that are matrices.

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
from specjax.models import few_rows, lowering
from specjax.models.few_rows import Logits, Products, Weights
from specjax.models.norms import Norm
from specjax.native.operation import Operation, run

NORMAL = nn.initializers.normal(0.02)


class Parameters(NamedTuple):
    """Functions that describe the parameters of a configuration without creating them.

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
    """Returns the description of the parameters of `init_params(key, config)`."""

    def init_boxed(config: Any) -> Any:
        return jax.eval_shape(lambda: init_params(root_key(0), config))

    @functools.cache
    def abstract_params(config: Any) -> Any:
        with nn.logical_axis_rules(()):  # shapes lie nowhere, whatever mesh is in use
            return nn.meta.unbox(init_boxed(config))

    def partition_specs(config: Any) -> Any:
        return nn.get_partition_spec(init_boxed(config))

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
    parameters exist before x does.

    Attributes:
      shape: (K, N).
      dtype: the dtype of the product.
      use_bias: whether b is added.
      axes: the logical names of K and N.
      kernel_init: the initializer of W.
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

    def weights(self, dtype: DTypeLike | None = None) -> Weights:
        """Returns the parameters, with the matrix in the dtype of the product."""
        return Weights(self.kernel.astype(dtype or self.dtype), self.bias)


def multiply(
    x: Array,
    *by: Dense,
    joined: bool = False,
    factor: Array | None = None,
    norm: Norm | None = None,
    residual: Array | None = None,
) -> list[Array]:
    """Returns the products of x [..., K] with each of `by`.

    Args:
      joined: whether they are one product on a GPU, see `lowering.products`.
      factor: [..., 1] in float32, by which the products are multiplied before they are
        rounded; or None.
      norm: the norm that is applied to x before it is multiplied; or None.
      residual: [..., N], to which the first product is added; or None.
    """
    dtype = jnp.dtype(by[0].dtype)
    weights = tuple(dense.weights(dtype) for dense in by)
    of = Products(x, weights, norm, residual)
    kernels = [each.kernel for each in weights]
    alike = residual is None or residual.dtype == x.dtype
    few = factor is None and x.dtype == dtype and alike
    if few and few_rows.serves(x, kernels):
        return run(products_operation(joined), of)
    return multiply_plainly(of, dtype, joined=joined, factor=factor)


def multiply_plainly(
    of: Products,
    dtype: DTypeLike | None = None,
    *,
    joined: bool = False,
    factor: Array | None = None,
) -> list[Array]:
    """Returns the products as XLA computes them. dtype: that of products; None means
    that of x. For the other arguments see `multiply`."""
    x = of.x if of.norm is None else of.norm(of.x)
    x = x if dtype is None else x.astype(dtype)
    kernels = [each.kernel for each in of.weights]
    if joined:
        products = lowering.products(x, kernels)
    else:
        products = [quantized.dot(x, kernel) for kernel in kernels]
    if factor is not None:
        products = [y * factor for y in products]
    rounded = [y.astype(x.dtype) for y in products]
    first, *others = [
        y if each.bias is None else y + each.bias.astype(x.dtype)
        for y, each in zip(rounded, of.weights, strict=True)
    ]
    return [first if of.residual is None else of.residual + first, *others]


@functools.cache
def products_operation(joined: bool) -> Operation:
    """Returns the operation that multiplies one input by several matrices.

    joined: whether XLA, where it computes them, does so in one product (`multiply`).
    """
    return Operation(
        "products",
        functools.partial(multiply_plainly, joined=joined),
        few_rows.native_products,
        few_rows.product_shapes,
    )


def readout(features: Array, table: Array, *, tied: bool, dtype: DTypeLike) -> Array:
    """Returns the logits [..., V] float32 of features [..., E].

    table: the embedding [V, E], if `tied`, else a readout's own [E, V].
    """
    of = Logits(features, table.astype(dtype))
    if features.dtype == dtype and few_rows.serves(features, [of.table], tied):
        return run(readout_operation(tied), of)[0]
    return _readout(of, tied)[0]


def _readout(of: Logits, tied: bool) -> list[Array]:
    return [quantized.dot(of.x, of.table, transposed=tied)]


@functools.cache
def readout_operation(tied: bool) -> Operation:
    """Returns the operation for a product with an embedding, if `tied`, or with a
    readout's table."""
    return Operation(
        "readout",
        functools.partial(_readout, tied=tied),
        functools.partial(few_rows.native_readout, tied=tied),
        functools.partial(few_rows.readout_shapes, tied=tied),
    )
