"""How models declare parameters, and what is known of these without making them."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
from jax import Array

NORMAL = nn.initializers.normal(0.02)


def parameters(init_params: Callable) -> tuple[Callable, Callable, Callable]:
    """Of `init_params(key, config)`, without making any: the tree's shapes and dtypes,
    unboxed, kept and never to be changed; its axes as PartitionSpecs; its size."""

    def boxed(config):
        return jax.eval_shape(lambda: init_params(jax.random.key(0), config))

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
