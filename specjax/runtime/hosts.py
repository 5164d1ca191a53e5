"""One job, many hosts: who takes part, what all must agree on, and how it ends.

Every process runs the same command and the same programs, in step, over a mesh of the
devices of all. Process 0 alone prints and writes files. JAX's coordination service,
which it has, ends every process where one is heard no more.
"""

import argparse
import contextlib
import ctypes
import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from specjax.runtime import console

DETECTED = "detected"
SILENT = 20  # seconds without a heartbeat, after which a process is lost
MEETING, ENDING = 300, 20  # seconds to wait for all at the start, and at the end
SHOWN = 5  # differences that are told
LOST = (
    "stopped; a process of this job is lost (above it is said which): end them all, and"
    " the same command goes on from here\n"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds `--distributed`, for `joined`."""
    of_flag = "one of several processes, over whose devices the mesh lies: found by"
    of_flag += " Slurm, GKE, TPUs or Open MPI, or HOST:PORT,PROCESS,COUNT with the"
    of_flag += " address of process 0; default: the only one"
    named = dict(nargs="?", const=DETECTED, metavar="HOST:PORT,PROCESS,COUNT")
    parser.add_argument("--distributed", **named, help=of_flag)


def parse(text: str) -> tuple[str, int, int]:
    """Address of process 0, how many there are, and which this is, of the words
    HOST:PORT,PROCESS,COUNT. Raises ValueError for others."""
    address, *numbers = text.split(",")
    host, _, port = address.rpartition(":")
    whole = len(numbers) == 2 and all(x.isdecimal() for x in (port, *numbers))
    if not host or not whole or int(numbers[0]) >= int(numbers[1]):
        raise ValueError(
            "--distributed stands alone where JAX finds the others, else write"
            f" 10.0.0.1:1234,0,2 for the first of two; got {text!r}"
        )
    return address, int(numbers[1]), int(numbers[0])


def several() -> bool:
    """Whether this process is one of many."""
    return jax.distributed.is_initialized()


def first() -> bool:
    """Whether this process prints and writes files."""
    return state().process_id == 0


def state() -> Any:
    """What JAX knows of the job, which has no public name yet, before it asks for
    devices: hosts of other versions may never agree on those."""
    from jax._src import distributed

    return distributed.global_state


@contextlib.contextmanager
def joined(text: str | None) -> Iterator[None]:
    """Within, this process is one of several; before, nothing may ask JAX for devices.
    text: `DETECTED`, or what `parse` reads; None is a process alone. Raises ValueError
    where the others are not found."""
    if text is None:
        yield
        return
    begin(*(() if text == DETECTED else parse(text)))
    stderr, held = sys.stderr, io.StringIO()
    if not first():
        sys.stderr = held
    try:
        with printing():
            yield
    except SystemExit as end:
        if end.code and held.getvalue():
            print(held.getvalue().splitlines()[-1], file=stderr)
        raise
    except Exception as error:
        # Where a process is gone a collective may fail before the service tells who.
        if isinstance(error.__cause__ or error, RuntimeError):
            time.sleep(2 * SILENT)
        raise
    finally:
        sys.stderr = stderr


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """What Python prints goes to standard output, of process 0 alone, and what XLA's
    libraries do, such as whom Gloo met, to standard error, or nowhere."""
    before, own = sys.stdout, os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    with open(own if first() else os.dup(nowhere), "w", encoding="utf-8") as stream:
        os.dup2(2 if first() else nowhere, 1)
        sys.stdout = console.Stream(stream, "standard output")
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(own, 1)
            sys.stdout = before


def begin(*told: Any) -> None:
    """Meets the other processes. told: as `parse` gives it."""
    # Who handles SIGTERM is `console.stops`.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            *told,
            initialization_timeout=MEETING,
            heartbeat_timeout_seconds=SILENT,
            shutdown_timeout_seconds=ENDING,
        )
    except (ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the other processes are not found ({said}): write --distributed"
            " HOST:PORT,PROCESS,COUNT"
        ) from None
    ctypes.CDLL(None).signal(signal.SIGABRT, lost)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def lost(_: int) -> None:
    """Says in words what JAX, which has lost a process, aborts with."""
    os.write(2, LOST.encode())
    os._exit(1)


def agree(say: Callable[[], Mapping[str, Any]], about: str = "versions") -> None:
    """Raises ValueError, on every process alike, where another says otherwise. say:
    gives versions and settings, by names, where they are asked for. about: what they
    are of, told once."""
    if not several():
        return
    job, name = state(), f"specjax/{about}/{{}}".format
    own = [socket.gethostname(), {k: str(v) for k, v in say().items()}]
    job.client.key_value_set(name(job.process_id), json.dumps(own))
    told = [
        json.loads(job.client.blocking_key_value_get(name(i), 1000 * MEETING))
        for i in range(job.num_processes)
    ]
    host, wanted = told[0]
    differ = [
        f"{key} is {each.get(key)} on process {i} ({where}) and {wanted.get(key)} on"
        f" process 0 ({host})"
        for i, (where, each) in enumerate(told)
        for key in sorted(wanted.keys() | each.keys())
        if each.get(key) != wanted.get(key)
    ]
    if differ:
        more = f", and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
        raise ValueError(
            f"{'; '.join(differ[:SHOWN])}{more}: all processes need the same versions,"
            " settings and files"
        )


def place(tree: Any, where: Any) -> Any:
    """Arrays that every process has alike, laid on devices of all. where: a Sharding,
    or one for each."""
    if not several():
        return jax.device_put(tree, where)
    if isinstance(where, Sharding):
        return jax.tree.map(lambda leaf: laid(leaf, where), tree)
    return jax.tree.map(laid, tree, where)


def laid(leaf: Any, where: Sharding) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = laid(jax.random.key_data(leaf), where)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, where)  # it lies on devices of all already
    own = np.asarray(leaf)
    return jax.make_array_from_callback(own.shape, where, own.__getitem__)


def read(tree: Any) -> Any:
    """The same arrays in NumPy's, whole, wherever they lie."""

    def whole(leaf: Any) -> Any:
        far = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
        if far and not leaf.is_fully_replicated:
            return multihost_utils.process_allgather(leaf, tiled=True)
        return leaf

    return jax.device_get(jax.tree.map(whole, tree) if several() else tree)


def of_first(value: Any) -> Any:
    """What process 0 has, as JSON holds it: seconds, or what it found in a file."""
    if not several():
        return value
    said = json.dumps(value).encode() if first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(said))))
    said = said.ljust(1 << size.bit_length())[: 1 << size.bit_length()]
    told = multihost_utils.broadcast_one_to_all(np.frombuffer(said, np.uint8))
    return json.loads(np.asarray(told).tobytes())
