"""A training state kept between runs: on one device a file, on a mesh its shards.

What lies on several devices is written by each of them, through Orbax, and read again
under any other mesh, or on one device; and the other way round.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import serialization
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.training.storage import replace, unwritten


class TrainState(NamedTuple):
    params: Any
    optimizer: Any
    step: int


class Kept(NamedTuple):
    """A state that was kept. read: a state of the same shapes, such as a fresh one ->
    the kept one, which lies as that does."""

    step: int
    read: Callable[[TrainState], TrainState]


def save(path: Path, state: TrainState) -> None:
    """Keeps a state as `path.msgpack`, or its shards in the folder `path`; a kill
    leaves what was kept before, or this. Raises OSError, in one line, for a disk that
    has no room: what was kept before is still there."""
    if mesh_of(state) is None:
        return replace(path.with_suffix(".msgpack"), serialization.to_bytes(state))
    clear(path)
    try:
        with manager(path) as kept:
            kept.save(state.step, args=orbax().args.StandardSave(placed(state)))
    except (OSError, ValueError) as error:  # tensorstore's are ValueErrors
        clear(path)
        raise unwritten(path, error) from None


def clear(path: Path) -> None:
    """Takes away what was begun and not ended, but for what is still being written."""
    for torn in path.glob("*-tmp"):
        shutil.rmtree(torn, ignore_errors=True)


def last(path: Path) -> Kept | None:
    """The state of the most steps that `save` kept there, None before the first."""
    file, found = path.with_suffix(".msgpack"), []
    if file.exists():
        tree = serialization.msgpack_restore(file.read_bytes())
        found.append(Kept(int(tree["step"]), lambda like: _of_file(tree, like)))
    if path.is_dir():
        with manager(path) as kept:
            steps = kept.all_steps()
        found += [Kept(x, lambda like, x=x: _of_shards(path, x, like)) for x in steps]
    return max(found, key=lambda kept: kept.step, default=None)


def _of_file(tree: Any, like: TrainState) -> TrainState:
    state = serialization.from_state_dict(like, tree)._replace(step=int(tree["step"]))
    if mesh_of(like) is None:
        return state
    put = lambda new, old: jax.device_put(new, old.sharding)  # noqa: E731
    return jax.tree.map(put, state, placed(like))._replace(step=state.step)


def _of_shards(path: Path, step: int, like: TrainState) -> TrainState:
    with manager(path) as kept:
        read = orbax().args.StandardRestore(placed(like))
        return kept.restore(step, args=read)._replace(step=step)


def mesh_of(state: Any) -> Mesh | None:
    """The mesh that some of it lies on, None for one device."""
    found = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(state))
    spread = (x for x in found if isinstance(x, NamedSharding) and x.num_devices > 1)
    return next((x.mesh for x in spread), None)


def placed(state: Any) -> Any:
    """The same with what lies beside the mesh, such as counts, whole on each device."""
    mesh = mesh_of(state)
    whole = mesh and NamedSharding(mesh, PartitionSpec())

    def place(leaf: Any) -> jax.Array:
        lies = isinstance(getattr(leaf, "sharding", None), NamedSharding)
        return leaf if lies else jax.device_put(leaf, whole)

    return jax.tree.map(place, state)


def manager(path: Path):
    """Orbax's: a folder for each step, renamed once it is whole; the last is left."""
    how = dict(max_to_keep=1, enable_async_checkpointing=False)
    options = orbax().CheckpointManagerOptions(**how)
    return orbax().CheckpointManager(path.absolute(), options=options)


def orbax():
    """Orbax, which takes seconds to import."""
    import orbax.checkpoint

    return orbax.checkpoint
