"""A mesh of devices for one job: rows over one axis, matrices over the other.

No program is written for it. XLA's partitioner (GSPMD, Xu et al. 2021) compiles the
same programs for parameters and rows that lie on several devices: models name each axis
of their parameters and caches, and `RULES` maps these names to axes of the mesh. Axes
of a mesh: `data`, of rows, and `model`, of heads, hidden features, vocabulary."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax.runtime import hosts

DATA, MODEL = "data", "model"
# The axis of a mesh by the name that models give to an axis of an array; an axis of any
# other name is whole on every device.
ROWS = {"batch": DATA}
MATRICES = dict.fromkeys(("heads", "joined_heads", "mlp", "vocab"), MODEL)
RULES = ROWS | MATRICES


class Layout(NamedTuple):
    """The sizes of the mesh's axes.

    draft: the number of devices that a draft's matrices lie over, `model` or 1."""

    data: int = 1
    model: int = 1
    draft: int = 1


# The layout of `using`; None for one device.
layout = jax.make_user_context(None)


def parse(text: str) -> Layout:
    """Returns the layout of "data=4,model=2" or "data=4,model=2,draft=2".

    An axis that is not named has size 1. Raises ValueError for other names, and for a
    value that is not a size."""
    sizes = {}
    for part in str(text).split(","):
        name, _, size = part.partition("=")
        if name not in Layout._fields or not size.isdecimal() or int(size) < 1:
            raise ValueError(
                "write a mesh as data=4,model=2, or as data=4,model=2,draft=2 to split"
                f" a draft's matrices too; got {part!r} in {text!r}"
            )
        sizes[name] = int(size)
    chosen = Layout(**sizes)
    if chosen.draft not in (1, chosen.model):
        raise ValueError(
            f"draft={chosen.draft}: write draft={chosen.model} to split a draft's"
            " matrices like the target's, or draft=1 to keep them whole"
        )
    return chosen


def build(chosen: Layout, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the mesh of the first devices; None stands for all devices.

    Raises ValueError where there are too few."""
    need, devices = chosen.data * chosen.model, devices or jax.devices()
    if need > len(devices):
        raise ValueError(
            f"a mesh of data={chosen.data},model={chosen.model} needs {need} devices,"
            f" and there are {len(devices)}: name a smaller mesh; a CPU acts as several"
            f" devices with XLA_FLAGS=--xla_force_host_platform_device_count={need}"
        )
    if hosts.is_distributed() and need < len(devices):
        raise ValueError(
            f"a mesh of data={chosen.data},model={chosen.model} leaves out some of the"
            f" {len(devices)} devices of all processes: name a mesh over all of them"
        )
    grid = np.array(devices[:need]).reshape(chosen.data, chosen.model)
    return Mesh(grid, (DATA, MODEL))


@contextlib.contextmanager
def using(text: str, devices: Sequence[jax.Device] | None = None) -> Iterator[None]:
    """Uses the mesh that a text names (`parse`) for all that is traced in the `with`
    block, and for its caches.

    Weights that are loaded within are read by their devices alone
    (`checkpoints.sharding`); `drafts.placement` and `rows` place the rest. "" is one
    device. devices: as of `build`. Raises ValueError as `parse` and `build`."""
    if not text:
        if hosts.is_distributed():
            raise ValueError(
                f"there are {len(jax.devices())} devices of several processes, and no"
                " mesh over them: name one, such as"
                f" data={len(jax.devices())}, or leave --distributed out"
            )
        yield
        return
    import flax.linen as nn  # not by everyone who asks for `layout`

    chosen = parse(text)
    with jax.set_mesh(build(chosen, devices)), layout(chosen):
        with nn.logical_axis_rules([*RULES.items()]):
            yield


def has_devices(text: str) -> bool:
    """Returns whether there are enough devices. Raises ValueError as `parse` does."""
    chosen = parse(text) if text else Layout()
    return chosen.data * chosen.model <= len(jax.devices())


def rows(tree: Any) -> Any:
    """Returns arrays [B, ...], such as a prompt or a request, split by rows over the
    mesh.

    Raises ValueError where the mesh in use does not divide the rows."""
    if layout.value is None:
        return tree
    check_rows(len(jax.tree.leaves(tree)[0]))
    return put(tree, PartitionSpec(DATA))


def check_rows(count: int) -> None:
    """Raises ValueError for a number of rows that cannot be divided over the mesh in
    use."""
    chosen = layout.value or Layout()
    if count % chosen.data:
        raise ValueError(
            f"data={chosen.data} does not divide a batch of {count}: take data="
            f"{divisors(count)}, or another batch"
        )


def put(tree: Any, *spec: PartitionSpec) -> Any:
    """Returns arrays placed on the mesh in use, with this partition."""
    where = NamedSharding(jax.sharding.get_mesh(), *spec)
    return hosts.place(tree, where)


def divisors(size: int) -> str:
    """Returns the divisors of a size, for messages."""
    return ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
