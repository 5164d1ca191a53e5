"""How models declare parameters, and what is known of these without making them."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
from jax import Array

NORMAL = nn.initializers.normal(0.02)


class Parameters(NamedTuple):
    """Functions of a config, for a model's `init_params(key, config)`. abstract_params:
    shapes and dtypes of the parameter tree, unboxed; every reader asks for it and none
    may change it, as a trace takes half a second. partition_specs: the logical axes of
    every parameter, as PartitionSpecs to map onto a mesh. num_params: how many numbers
    a model of this size has."""

    abstract_params: Callable
    partition_specs: Callable
    num_params: Callable


def parameters(init_params: Callable) -> Parameters:
    """What follows from how a model's parameters are made, without making them."""

    def boxed(config):
        return jax.eval_shape(lambda: init_params(jax.random.key(0), config))

    @functools.cache
    def abstract_params(config):
        return nn.meta.unbox(boxed(config))

    def partition_specs(config):
        return nn.get_partition_spec(boxed(config))

    def num_params(config) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))

    return Parameters(abstract_params, partition_specs, num_params)


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
