"""One job, many devices: rows over one axis of a mesh, matrices over another.

Nothing is written anew for it. XLA's partitioner (GSPMD, Xu et al. 2021) compiles the
same programs, of parameters and rows that lie on several devices: models say by name
what each axis of their parameters and caches is, `RULES` where it lies.
Axes of a mesh: `data`, of rows, and `model`, of heads, hidden features, vocabulary.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax.runtime import hosts

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


def build(chosen: Layout, devices: Sequence[jax.Device] | None = None) -> Mesh:
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
    """Traces what is within for the mesh of this text (`parse`), its caches too.

    Weights that are loaded within are read by their devices alone
    (`checkpoints.sharding`); `drafts.placement` and `rows` place the rest. "" is one
    device. devices: as of `build`. Raises ValueError as `parse` and `build`."""
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
    with jax.set_mesh(build(chosen, devices)), layout(chosen):
        with nn.logical_axis_rules([*RULES.items()]):
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


def divisors(size: int) -> str:
    return ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
