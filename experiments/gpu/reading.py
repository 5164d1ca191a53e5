"""The bytes of a checkpoint that a host reads for its half of a mesh, and the memory
that it takes.

Two processes load one checkpoint of random weights as two hosts do, each with four of
the eight devices over which a CPU splits the matrices (`runtime.mesh`). A CPU's devices
have their shards in the host's memory, so that everything above them belongs to the
reader.
"""

import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import tensorstore as ts

from specjax import checkpoints
from specjax.checkpoints import archive, sharding
from specjax.measure.row import Measurement
from specjax.models import families, llama, t5
from specjax.runtime import mesh

HOSTS, DEVICES = 2, 8
MESH = f"model={DEVICES}"
FORMATS = {
    "huggingface": llama.Config(16384, 1024, 2816, 6, 16, 8, 64),
    "t5x": t5.Config(16384, 1024, 2816, 3, 3, 16, 64),
    "orbax": t5.Config(16384, 1024, 2816, 3, 3, 16, 64),
}
FILE = 100_000_000  # bytes of one of a folder of Hugging Face
READ = "/tensorstore/kvstore/file/bytes_read"  # by tensorstore, of this process
# glibc keeps what was freed, up to 64 MB a thread, unless it is told not to.
GIVEN_BACK = {"MALLOC_TRIM_THRESHOLD_": "100000"}


class ReadingSetting(NamedTuple):
    """The setting of a row of the table of reading.

    Attributes:
        format: one of `FORMATS`.
        smaller: divides its sizes, for a test.
    """

    format: str
    smaller: int = 1


def build(setting: ReadingSetting) -> Measurement:
    """Returns the measurement of one row. Raises ValueError for an unknown format."""
    if setting.format not in FORMATS:
        raise ValueError(f"no format {setting.format!r}: one of {', '.join(FORMATS)}")
    return Measurement(partial(measure, setting), __name__, dtype="float32", seed=0)


def measure(setting: ReadingSetting) -> dict:
    """Returns the numbers of the host that has the larger ones.

    read: bytes that a host reads over its share of the file. peak: the most memory that
    it takes over what its devices hold; peak_kept: with the memory that glibc keeps.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written"
        writing = command("write", str(path), setting)
        subprocess.run(writing, env=environment(1), check=True)
        stored = sum(x.stat().st_size for x in path.rglob("*") if x.is_file())
        hosts = load_on_hosts(path, GIVEN_BACK)
        as_it_is = load_on_hosts(path, {})
    return {
        **setting._asdict(),
        "hosts": HOSTS,
        "mesh": MESH,
        "megabytes": round(stored / 1e6, 1),
        "share": max(host["share"] for host in hosts),
        "read": max(host["read"] / (host["share"] * stored) for host in hosts),
        "peak": max(host["peak"] / host["held"] for host in hosts),
        "peak_kept": max(host["peak"] / host["held"] for host in as_it_is),
    }


def command(what: str, *arguments) -> list[str]:
    words = (json.dumps(x) for x in arguments)
    return [sys.executable, "-m", __name__, what, *words]


def environment(hosts: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={DEVICES // hosts}"
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def load_on_hosts(path: Path, more: dict[str, str]) -> list[dict]:
    """Returns the output of each host, with the `peak` of its memory as seen from
    another process.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = f"localhost:{free.getsockname()[1]}"
    made = dict(env=environment(HOSTS) | more, stdout=subprocess.PIPE, text=True)
    hosts = [
        subprocess.Popen(command("host", place, rank, str(path)), **made)
        for rank in range(HOSTS)
    ]
    peaks = [0] * HOSTS
    while any(host.poll() is None for host in hosts):
        peaks = [
            max(peak, anonymous_bytes(x.pid))
            for peak, x in zip(peaks, hosts, strict=True)
        ]
        time.sleep(0.001)
    if any(host.returncode for host in hosts):
        raise ValueError(f"a host ended by {[host.returncode for host in hosts]}")
    said = [json.loads(host.stdout.read()) for host in hosts]
    both = zip(said, peaks, strict=True)
    return [each | {"peak": peak - each["before"]} for each, peak in both]


def anonymous_bytes(process: int | str) -> int:
    """Returns the bytes of a process's memory that are not backed by a file; 0 once the
    process has ended.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("RssAnon"))
    return 1024 * int(next(found, 0))


# In processes of their own.


def write(folder: str, format: str, smaller: int) -> None:
    """Writes random weights; eight devices write those of Orbax, each of them one
    chunk."""
    config, folder = scaled_config(format, smaller), Path(folder)
    family = families.of(config)
    rng = np.random.default_rng(0)

    def random_leaf(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return rng.standard_normal(leaf.shape, np.float32)

    params = jax.tree.map(random_leaf, family.abstract_params(config))
    match format:
        case "huggingface":
            checkpoints.save(folder, (config, params), FILE // smaller)
        case "t5x":
            checkpoints.t5x.save(folder, 1, params)
        case "orbax":
            with mesh.using(MESH):
                write_orbax(folder, jax.device_put(params, sharding.shardings(config)))


def scaled_config(format: str, smaller: int):
    whole = FORMATS[format]
    sizes = {x: getattr(whole, x) // smaller for x in ("vocab", "dim", "mlp_dim")}
    return whole._replace(**sizes)


def write_orbax(folder: Path, params) -> None:
    """Writes a checkpoint in the way that T5X does."""
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(
        step_prefix="checkpoint", enable_async_checkpointing=False
    )
    tree = {"target": params, "state": {"step": np.int32(1)}}
    handlers = {"state": ocp.PyTreeCheckpointHandler(use_ocdbt=True)}
    made = dict(options=options, item_handlers=handlers)
    with ocp.CheckpointManager(folder, **made) as manager:
        manager.save(1, args=ocp.args.Composite(state=ocp.args.PyTreeSave(tree)))


def load_shards(place: str, rank: int, path: str) -> None:
    """Loads a checkpoint, and prints the bytes that were read and held."""
    jax.distributed.initialize(place, HOSTS, rank)
    reads = count_bytes()
    with mesh.using(MESH):
        jax.block_until_ready(jax.device_put(np.ones(8)))
        before = anonymous_bytes("self")
        params = checkpoints.load(path).params
    leaves = jax.tree.leaves(params)
    shards = [
        {str(x.index): x.data.nbytes for x in of.addressable_shards} for of in leaves
    ]
    held = sum(x.data.nbytes for leaf in leaves for x in leaf.addressable_shards)
    metrics = ts.experimental_collect_matching_metrics(READ)
    by_chunks = sum(each["value"] for of in metrics for each in of["values"])
    share = sum(sum(each.values()) for each in shards)
    share /= sum(4 * math.prod(leaf.shape) for leaf in leaves)
    said = dict(before=before, held=held, share=share, read=by_chunks + sum(reads))
    print(json.dumps(said), flush=True)


def count_bytes() -> list[int]:
    """Returns a list to which the bytes of each part are appended that is read of
    safetensors from now on.
    """
    reads, opened = [], archive.open_safetensors

    def open_safetensors(files, where):
        held = opened(files, where)

        def read(name, index):
            part = held.read(name, index)
            reads.append(part.nbytes)
            return part

        return held._replace(read=read)

    archive.open_safetensors = open_safetensors
    return reads


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    arguments = [json.loads(word) for word in words]
    load_shards(*arguments) if what == "host" else write(arguments[0], *arguments[1])
