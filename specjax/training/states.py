"""A training state stored between runs: in a file for one device, in shards for a mesh.

A state on several devices is written by each of them, through Orbax, and can be read
again under any other mesh, or on one device; and vice versa.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import serialization
from jax.sharding import NamedSharding, PartitionSpec

from specjax.training.storage import replace, unwritten


class TrainState(NamedTuple):
    params: Any
    optimizer: Any
    step: int


class StoredState(NamedTuple):
    """A stored state.

    Attributes:
        read: a function from a state of the same shapes, such as a fresh one, to the
            stored one with the same placement.
    """

    step: int
    read: Callable[[TrainState], TrainState]


def save(path: Path, state: TrainState) -> None:
    """Stores a state as `path.msgpack`, or as shards in the folder `path`; if the
    process is killed, either the earlier state or this one is there.

    Raises:
        OSError: the disk is full; the earlier state is still there.
    """
    if mesh_of(state) is None:
        return replace(path.with_suffix(".msgpack"), serialization.to_bytes(state))
    clear(path)
    try:
        with manager(path) as kept:
            kept.save(state.step, args=orbax().args.StandardSave(place(state)))
    except (OSError, ValueError) as error:  # tensorstore's are ValueErrors
        clear(path)
        raise unwritten(path, error) from None


def clear(path: Path) -> None:
    """Removes unfinished files, except those that some process is still writing."""
    for torn in path.glob("*-tmp"):
        shutil.rmtree(torn, ignore_errors=True)


def last(path: Path) -> StoredState | None:
    """Returns the latest state that `save` stored there, None if there is none."""
    file, found = path.with_suffix(".msgpack"), []
    if file.exists():
        tree = serialization.msgpack_restore(file.read_bytes())
        found.append(
            StoredState(int(tree["step"]), lambda like: _read_file(tree, like))
        )
    if path.is_dir():
        with manager(path) as kept:
            steps = kept.all_steps()
        found += [StoredState(x, partial(_read_shards, path, x)) for x in steps]
    return max(found, key=lambda kept: kept.step, default=None)


def _read_file(tree: Any, like: TrainState) -> TrainState:
    state = serialization.from_state_dict(like, tree)._replace(step=int(tree["step"]))
    if mesh_of(like) is None:
        return state

    def put_like_old(new: Any, old: Any) -> jax.Array:
        return jax.device_put(new, old.sharding)

    return jax.tree.map(put_like_old, state, place(like))._replace(step=state.step)


def _read_shards(path: Path, step: int, like: TrainState) -> TrainState:
    with manager(path) as kept:
        read = orbax().args.StandardRestore(place(like))
        return kept.restore(step, args=read)._replace(step=step)


def mesh_of(state: Any) -> Any:
    """Returns the mesh that a part of the state is on, None for one device."""
    found = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(state))
    spread = (x for x in found if isinstance(x, NamedSharding) and x.num_devices > 1)
    return next((x.mesh for x in spread), None)


def place(state: Any) -> Any:
    """Returns the same state with values that are outside the mesh, such as counts,
    replicated on each device.
    """
    mesh = mesh_of(state)
    whole = mesh and NamedSharding(mesh, PartitionSpec())

    def place_leaf(leaf: Any) -> jax.Array:
        lies = isinstance(getattr(leaf, "sharding", None), NamedSharding)
        return leaf if lies else jax.device_put(leaf, whole)

    return jax.tree.map(place_leaf, state)


def manager(path: Path) -> Any:
    """Returns Orbax's manager: a folder for each step, renamed once it is complete;
    only the latest is kept.
    """
    how = dict(max_to_keep=1, enable_async_checkpointing=False)
    options = orbax().CheckpointManagerOptions(**how)
    return orbax().CheckpointManager(path.absolute(), options=options)


def orbax() -> Any:
    """Returns the module of Orbax, whose import takes seconds."""
    import orbax.checkpoint

    return orbax.checkpoint
