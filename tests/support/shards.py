"""Checkpoints of every format, read straight to the shards of eight devices.

Run as a module it prints, as JSON, what `tests.checkpoints.test_reading` asks for.
"""

import json
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import optax
from flax.traverse_util import flatten_dict
from jax.sharding import NamedSharding

from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained, archive, sharding
from specjax.runtime import mesh
from specjax.training import states
from specjax.training.states import TrainState
from tests import conftest
from tests.support import meshed, t5x_files, tiny

MESH = "data=2,model=4"
# Whose file has queries, keys and values in one array.
GPT2 = meshed.GPT._replace(positions=64, learned=True, tied=True)


def files(folder: Path) -> dict[str, Path]:
    """Returns the path of a target in each format."""
    llama, gpt, t5 = (meshed.pair(x)[0] for x in ("llama", "gpt", "t5"))
    checkpoints.save(folder / "huggingface", llama, 100_000)
    checkpoints.save(folder / "fused", (GPT2, tiny.weights(GPT2, 2)))
    zoo.save(folder / "zoo.safetensors", gpt.config, gpt.params)
    flat = {n: np.asarray(x) for n, x in flatten_dict(t5.params, sep="/").items()}
    stacked = t5x_files.scalable(flat, sizes=t5.config)
    return {
        "huggingface": folder / "huggingface",
        "fused": folder / "fused",
        "zoo": folder / "zoo.safetensors",
        "t5x": checkpoints.t5x.save(folder / "t5x", 1, t5.params),
        "scanned": t5x_files.native(folder / "scanned", stacked),
        "orbax": t5x_files.orbax(folder / "orbax" / "checkpoint_1", flat),
    }


def load_and_count(path: Path) -> tuple[Pretrained, Counter]:
    """Returns what is loaded, and how many numbers of each stored array were read."""
    reads, inner = Counter(), archive.reader

    def note_reads(held, source, *, shape, dtype):
        def read(name, index):
            values = held.read(name, index)
            reads[name] += values.size
            return values

        return inner(held._replace(read=read), source, shape=shape, dtype=dtype)

    with mock.patch.object(archive, "reader", note_reads):
        return checkpoints.load(path), reads


def read_to_shards(path: Path) -> dict:
    """Returns the results of reading a checkpoint to shards.

    same: parameters lie and are as those that are placed afterwards. read: how often
    each number is read, by whatever device.
    """
    whole, _ = load_and_count(path)
    with mesh.using(MESH):
        straight, reads = load_and_count(path)
        placed = jax.device_put(whole.params, sharding.shardings(whole.config))
        pairs = zip(*map(jax.tree.leaves, (straight.params, placed)), strict=True)
        same = [
            one.sharding == other.sharding and np.array_equal(one, other)
            for one, other in pairs
        ]
    sizes = sum(leaf.size for leaf in jax.tree.leaves(whole.params))
    return {"same": all(same), "read": reads.total() / sizes}


# A training state that is kept, and goes on elsewhere.

KEPT, OTHERS = "data=2,model=2", ("model=4", "")


def state(text: str, step: int) -> TrainState:
    """Returns a state of `step` on a mesh, or on one device; its numbers depend on the
    step."""
    target = meshed.pair("gpt")[0]
    params = jax.tree.map(lambda leaf: leaf + step, target.params)
    with mesh.using(text):
        if text:
            params = jax.device_put(params, sharding.shardings(target.config))
        return TrainState(params, optax.adamw(1e-3).init(params), step)


def keep_states(folder: Path) -> dict:
    """Returns the results of keeping and reading states.

    same: by where it was kept and went on, whether every bit and every place is as it
    would be there. full: the message of a disk that takes no more, and which step is
    kept then, and once it does.
    """
    same = {}
    for at, others in (KEPT, OTHERS), ("", (KEPT,)):
        path = folder / (at or "one")
        states.save(path, state(at, 3))
        for other in others:
            found = states.last(path).read(state(other, 5))
            alike = jax.tree.map(is_same, found, state(other, 3))
            same[f"{at} to {other}"] = all(jax.tree.leaves(alike))
    full, (before, most) = {}, resource.getrlimit(resource.RLIMIT_FSIZE)
    for at in (KEPT, ""):
        path, said = folder / (at or "one"), ""
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
        try:
            states.save(path, state(at, 7))
        except OSError as error:
            said = str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        steps = [states.last(path).step]
        states.save(path, state(at, 7))
        full[at] = said, [*steps, states.last(path).step]
    return {"same": same, "full": full}


def is_same(one: Any, other: Any) -> bool:
    spread = isinstance(getattr(other, "sharding", None), NamedSharding)
    return np.array_equal(one, other) and (
        not spread or one.sharding.is_equivalent_to(other.sharding, other.ndim)
    )


def main(what: str, folder: str) -> None:
    jax.config.update("jax_compilation_cache_dir", str(conftest.CACHE))
    jax.config.update("jax_disable_most_optimizations", True)
    if what == "loaded":
        each = files(Path(folder)).items()
        found = {name: read_to_shards(path) for name, path in each}
    else:
        found = keep_states(Path(folder))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
