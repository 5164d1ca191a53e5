"""The layout of a configuration's weights on the mesh in use.

Matrices are split over the axis `model` of `runtime.mesh`; `RULES` there says which of
their axes. What no axis splits is whole on every device.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from specjax.models import families
from specjax.models.families import Config
from specjax.quantized import Int8
from specjax.runtime import hosts, mesh

if TYPE_CHECKING:
    from specjax.checkpoints import Pretrained


def placement(config: Config) -> Any:
    """Returns the placement by which weights of these sizes are read, before it is
    known whether a target or a draft has them: split as a target's are, or whole on
    every device where the mesh in use does not divide them. None where no mesh is in
    use."""
    if mesh.layout.value is None:
        return None
    model = mesh.layout.value.model
    if any(size % model for size in sizes(config).values()):
        return NamedSharding(jax.sharding.get_mesh(), PartitionSpec())
    return shardings(config)


def check(model: "Pretrained", *, devices: int) -> None:
    """Raises ValueError for a model whose matrices cannot be split over this many
    devices."""
    if model.config is not None:
        check_sizes(model.name, model.config, devices=devices)
    if model.config is None or not params_fit(model.params, model.config):
        raise ValueError(
            f"{model.name} is not a model to split: leave draft={devices} out"
        )
    if model.dtype == "int8_dynamic":
        raise ValueError(
            f"{model.name} in {model.dtype} lies on one device: take int8, or a float"
        )


def check_sizes(name: str, config: Config, *, devices: int) -> None:
    """Raises ValueError for a model with sizes that are not multiples of this many
    devices."""
    split = sizes(config)
    for what, size in split.items():
        if size % devices:
            raise ValueError(
                f"model={devices} does not divide the {size} {what} of {name}: take"
                f" model of {mesh.divisors(math.gcd(*split.values()))}"
            )


def params_fit(params: Any, config: Config) -> bool:
    """Returns whether these are the parameters of a model of these sizes, and nothing
    else."""
    shapes = families.of(config).abstract_params(config)
    have: Any = jax.tree.structure(params, is_leaf=lambda node: hasattr(node, "shape"))
    return have == jax.tree.structure(shapes)


def sizes(config: Config) -> dict[str, int]:
    """Returns the sizes of a model that are split over devices, by their names in
    messages."""
    fields = families.of(config).divided
    return {name: getattr(config, field) for name, field in fields.items()}


def shardings(config: Config) -> Any:
    """Returns where each parameter of a model of these sizes lies on the mesh in
    use."""
    devices = jax.sharding.get_mesh()
    specs = families.of(config).partition_specs(config)

    def place(names: PartitionSpec) -> NamedSharding:
        return NamedSharding(devices, PartitionSpec(*map(mesh.RULES.get, names)))

    is_leaf = lambda node: isinstance(node, PartitionSpec)  # noqa: E731
    return jax.tree.map(place, specs, is_leaf=is_leaf)


def split(params: Any, config: Config) -> Any:
    """Returns the parameters of a model of these sizes where `shardings` has them."""
    return jax.tree.map(place, shardings(config), params)


def place(where: NamedSharding, leaf: Array | Int8) -> Array | Int8:
    """Returns a parameter placed by `where`; the scales of one in eight bits are placed
    as its outputs are."""
    if not isinstance(leaf, Int8):
        return hosts.place(leaf, where)
    names = zip(where.spec, leaf.scale.shape, strict=True)
    scales = PartitionSpec(*(name if size > 1 else None for name, size in names))
    values, scale = hosts.place(leaf.values, where), mesh.put(leaf.scale, scales)
    return dataclasses.replace(leaf, values=values, scale=scale)
