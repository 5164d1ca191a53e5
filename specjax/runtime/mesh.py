"""One job, many devices: rows over one axis of a mesh, matrices over another.

Nothing is written anew for it. XLA's partitioner (GSPMD, Xu et al. 2021) compiles the
same programs, of parameters and rows that lie on several devices: models say by name
what each axis of their parameters and caches is, `RULES` where it lies.
Axes of a mesh: `data`, of rows, and `model`, of heads, hidden features, vocabulary.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax import checkpoints, native
from specjax.checkpoints import Config
from specjax.drafts.source import Side
from specjax.models import families
from specjax.quantized import Int8
from specjax.runtime import hosts
from specjax.types import Drafter

DATA, MODEL = "data", "model"
# Over which axis of a mesh lies what models call so; all else is whole everywhere.
ROWS = {"batch": DATA}
MATRICES = dict.fromkeys(("heads", "joined_heads", "mlp", "vocab"), MODEL)
RULES = ROWS | MATRICES


class Layout(NamedTuple):
    """Sizes of the mesh's axes. draft: over how many devices a draft's matrices lie,
    `model` or 1."""

    data: int = 1
    model: int = 1
    draft: int = 1


# What `using` has chosen: a Layout, or None for one device.
layout = jax.make_user_context(None)


def parse(text: str) -> Layout:
    """A layout of "data=4,model=2" or "data=4,model=2,draft=2"; what is not named is 1.
    Raises ValueError for other names, and for what is no size."""
    sizes = {}
    for part in str(text).split(","):
        name, _, size = part.partition("=")
        if name not in Layout._fields or not size.isdecimal() or int(size) < 1:
            raise ValueError(
                "a mesh is written data=4,model=2, or data=4,model=2,draft=2 with the"
                f" draft's matrices over it too; got {part!r} in {text!r}"
            )
        sizes[name] = int(size)
    chosen = Layout(**sizes)
    if chosen.draft not in (1, chosen.model):
        raise ValueError(
            f"draft={chosen.draft}: a draft's matrices lie over as many devices as the"
            f" target's, draft={chosen.model}, or on each, draft=1"
        )
    return chosen


def of(chosen: Layout, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh, of the first devices; None are those here. Raises ValueError where they
    are too few."""
    need, devices = chosen.data * chosen.model, devices or jax.devices()
    if need > len(devices):
        raise ValueError(
            f"a mesh of data={chosen.data},model={chosen.model} needs {need} devices,"
            f" and there are {len(devices)}: name a smaller one; a CPU acts as several"
            f" by XLA_FLAGS=--xla_force_host_platform_device_count={need}"
        )
    if hosts.is_distributed() and need < len(devices):
        raise ValueError(
            f"a mesh of data={chosen.data},model={chosen.model} leaves out some of the"
            f" {len(devices)} devices of all processes: name one of as many"
        )
    grid = np.array(devices[:need]).reshape(chosen.data, chosen.model)
    return Mesh(grid, (DATA, MODEL))


@contextlib.contextmanager
def using(text: str, devices: Sequence[jax.Device] | None = None) -> Iterator[None]:
    """What is traced within is for the mesh of this text (`parse`), its caches too;
    weights that are loaded within are read by their devices alone (`read_to`), and
    `pair` and `rows` place the rest; "" is one device. devices: as in `of`. Raises
    ValueError as `parse` and `of`."""
    if not text:
        if hosts.is_distributed():
            raise ValueError(
                f"it decodes on one device, and there are {len(jax.devices())} of"
                " several processes: name a mesh over them, such as"
                f" data={len(jax.devices())}, or leave --distributed out"
            )
        yield
        return
    chosen = parse(text)
    # A thin product would gather its matrix.
    with jax.set_mesh(of(chosen, devices)), layout(chosen), native.products(native.XLA):
        with nn.logical_axis_rules([*RULES.items()]), checkpoints.placement(read_to):
            yield


def has_devices(text: str) -> bool:
    """Whether there are devices enough. Raises ValueError as `parse`."""
    chosen = parse(text) if text else Layout()
    return chosen.data * chosen.model <= len(jax.devices())


def rows(tree: Any) -> Any:
    """Arrays [B, ...], such as a prompt or a request, with their rows over the mesh in
    use. Raises ValueError where it does not divide them."""
    if layout.value is None:
        return tree
    check_rows(len(jax.tree.leaves(tree)[0]))
    return put(tree, PartitionSpec(DATA))


def check_rows(count: int) -> None:
    """Raises ValueError for a batch that the mesh in use does not divide."""
    chosen = layout.value or Layout()
    if count % chosen.data:
        raise ValueError(
            f"data={chosen.data} does not divide a batch of {count}: take data of"
            f" {divisors(count)}, or another batch"
        )


def put(tree: Any, *spec: PartitionSpec) -> Any:
    where = NamedSharding(jax.sharding.get_mesh(), *spec)
    return hosts.place(tree, where)


def pair(target: Side, draft: Side | None) -> tuple[Side, Side | None]:
    """Both with their parameters on the mesh in use, and a draft, if there is one, that
    keeps to its part of it. Raises ValueError, before any is moved, where it does not
    divide them."""
    chosen = layout.value
    if chosen is None:
        return target, draft
    if draft is None:
        check(target, chosen.model)
        return split(target), None
    own = draft.params is not target.params  # an early exit has its target's
    each = (target, draft) if chosen.draft > 1 and own else (target,)
    for side in each:
        check(side, chosen.model)
    placed = split(target)
    if not own:
        return placed, draft._replace(params=placed.params)
    return placed, split(draft) if chosen.draft > 1 else whole(draft)


def read_to(config: Config) -> Any:
    """Where weights of these sizes lie before it is known whose they are: as a
    target's; on every device whole where the mesh in use does not divide them."""
    model = layout.value.model
    if any(size % model for size in sizes_of(config).values()):
        return NamedSharding(jax.sharding.get_mesh(), PartitionSpec())
    return shardings(config)


def check(side: Side, model: int) -> None:
    """Raises ValueError for a side whose matrices do not go over so many devices."""
    if side.pretrained is not None:
        check_sizes(side.name, side.pretrained.config, model)
    if side.pretrained is None or not fits(side.params, side.pretrained.config):
        raise ValueError(f"{side.name} is no model to split: leave draft={model} out")
    if side.dtype == "int8_dynamic":
        raise ValueError(
            f"{side.name} in {side.dtype} lies on one device: take int8, or a float"
        )


def check_sizes(name: str, config: Config, model: int) -> None:
    """Raises ValueError for a model whose sizes so many devices do not divide."""
    sizes = sizes_of(config)
    for what, size in sizes.items():
        if size % model:
            raise ValueError(
                f"model={model} does not divide the {size} {what} of {name}: take"
                f" model of {divisors(math.gcd(*sizes.values()))}"
            )


def fits(params: Any, config: Config) -> bool:
    """Whether these are parameters of a model of these sizes, and nothing beside."""
    shapes = families.of(config).abstract_params(config)
    have = jax.tree.structure(params, is_leaf=lambda node: hasattr(node, "shape"))
    return have == jax.tree.structure(shapes)


def sizes_of(config: Config) -> dict[str, int]:
    """Returns the sizes that are split of a model, by what messages call them."""
    fields = families.of(config).divided
    return {name: getattr(config, field) for name, field in fields.items()}


def divisors(size: int) -> str:
    return ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)


def shardings(config: Config) -> Any:
    """Where each parameter of a model of these sizes lies on the mesh in use."""
    mesh, family = jax.sharding.get_mesh(), families.of(config)

    def place(names: PartitionSpec) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*map(RULES.get, names)))

    is_leaf = lambda node: isinstance(node, PartitionSpec)  # noqa: E731
    return jax.tree.map(place, family.partition_specs(config), is_leaf=is_leaf)


def split(side: Side) -> Side:
    where = shardings(side.pretrained.config)
    return side._replace(params=jax.tree.map(place, where, side.params))


def place(where: NamedSharding, leaf: Array | Int8) -> Array | Int8:
    """A parameter there; of one in eight bits its scales lie as its outputs do."""
    if not isinstance(leaf, Int8):
        return hosts.place(leaf, where)
    names = zip(where.spec, leaf.scale.shape, strict=True)
    scales = PartitionSpec(*(name if size > 1 else None for name, size in names))
    values, scale = (hosts.place(leaf.values, where), put(leaf.scale, scales))
    return dataclasses.replace(leaf, values=values, scale=scale)


def whole(draft: Side) -> Side:
    """A draft whose parameters and caches are on every device of `model`."""
    law = draft.law and unsplit(draft.law)
    params = put(draft.params, PartitionSpec())
    return draft._replace(params=params, drafter=Whole(draft.drafter), law=law)


class Whole(NamedTuple):
    """Builds what `make` builds, of caches that are not split."""

    make: Callable

    def __call__(self, *arguments: Any) -> Drafter:
        return kept_whole(self.make(*arguments))


def kept_whole(drafter: Drafter) -> Drafter:
    """The same drafter, of caches that are not split."""
    parts = {k: getattr(drafter, k) for k in ("init", "draft", "observe")}
    return drafter._replace(**{k: f and unsplit(f) for k, f in parts.items()})


def unsplit(function: Callable) -> Callable:
    """The same function, traced with rows alone over the mesh."""

    @functools.wraps(function)
    def run(*arguments):
        with nn.logical_axis_rules([*ROWS.items()]):
            return function(*arguments)

    return run
