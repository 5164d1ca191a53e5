"""A job of several processes: how they connect, what they must agree on, and how it
ends.

Every process runs the same command and the same programs, in step, over a mesh of the
devices of all. Only process 0 prints and writes files. The coordination service of JAX
runs in process 0; it ends every process when one of them no longer responds."""

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
SHOWN = 5  # differences to print
LOST = (
    "stopped; a process of this job is lost (named above): end all processes, and"
    " start the same command again to continue\n"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds `--distributed`, whose value `join` reads."""
    of_flag = "run as one of several processes that share a mesh; without a value if"
    of_flag += " Slurm, GKE, TPUs or Open MPI name the others, else with the address"
    of_flag += " of process 0, this process's number and the number of processes"
    parser.add_argument(
        "--distributed",
        nargs="?",
        const=DETECTED,
        metavar="HOST:PORT,PROCESS,COUNT",
        help=of_flag,
    )


def parse(text: str) -> tuple[str, int, int]:
    """Returns (address of process 0, number of processes, number of this one).

    text: HOST:PORT,PROCESS,COUNT. Raises ValueError for any other form."""
    address, *numbers = text.split(",")
    host, _, port = address.rpartition(":")
    whole = len(numbers) == 2 and all(x.isdecimal() for x in (port, *numbers))
    if not host or not whole or int(numbers[0]) >= int(numbers[1]):
        raise ValueError(
            "write --distributed alone where JAX finds the other processes, else"
            f" --distributed 10.0.0.1:1234,0,2 for the first of two; got {text!r}"
        )
    return address, int(numbers[1]), int(numbers[0])


def is_distributed() -> bool:
    """Returns whether this process is one of several."""
    return jax.distributed.is_initialized()


def is_first() -> bool:
    """Returns whether this process is the one that prints and writes files."""
    return job_state().process_id == 0


def job_state() -> Any:
    """Returns JAX's state of the job, which has no public name yet.

    It exists before any device is used: hosts of different versions may never agree on
    their devices."""
    from jax._src import distributed

    return distributed.global_state


@contextlib.contextmanager
def join(text: str | None) -> Iterator[None]:
    """Joins the other processes of a job for the `with` block.

    Nothing may have used JAX's devices before.

    text: `DETECTED`, or the form that `parse` reads; None is a process alone. Raises
    ValueError where the others are not found."""
    if text is None:
        yield
        return
    meet(*(() if text == DETECTED else parse(text)))
    stderr, messages = sys.stderr, io.StringIO()
    if not is_first():
        sys.stderr = messages
    try:
        with first_host_output():
            yield
    except SystemExit as end:
        if end.code and messages.getvalue():
            print(messages.getvalue().splitlines()[-1], file=stderr)
        raise
    except Exception as error:
        # A collective may fail before the service names the process that is lost.
        if isinstance(error.__cause__ or error, RuntimeError):
            time.sleep(2 * SILENT)
        raise
    finally:
        sys.stderr = stderr


@contextlib.contextmanager
def first_host_output() -> Iterator[None]:
    """Sends the output of Python to standard output of process 0 alone.

    Messages of XLA's libraries, such as Gloo's, go to standard error of process 0, and
    nowhere on the others."""
    before, own = sys.stdout, os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    with open(own if is_first() else os.dup(nowhere), "w", encoding="utf-8") as stream:
        os.dup2(2 if is_first() else nowhere, 1)
        sys.stdout = console.Stream(stream, "standard output")
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(own, 1)
            sys.stdout = before


def meet(*job: Any) -> None:
    """Connects to the other processes. job: the values that `parse` returns, or
    none."""
    # `console.handle_stops` handles SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        address, count, number = job or (None, None, None)
        jax.distributed.initialize(
            address,
            count,
            number,
            initialization_timeout=MEETING,
            heartbeat_timeout_seconds=SILENT,
            shutdown_timeout_seconds=ENDING,
        )
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the other processes were not found ({reason}): write --distributed"
            " HOST:PORT,PROCESS,COUNT"
        ) from None
    ctypes.CDLL(None).signal(signal.SIGABRT, report_lost)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def report_lost(_: int) -> None:
    """Prints a message in place of JAX's abort after the loss of a process."""
    os.write(2, LOST.encode())
    os._exit(1)


def check_agreement(
    say: Callable[[], Mapping[str, Any]], about: str = "versions"
) -> None:
    """Raises ValueError, on every process alike, where the values of the processes
    differ.

    say: returns versions and settings by name; called only where there are several
    processes. about: the subject of the values; each subject can be used once."""
    if not is_distributed():
        return
    job, name = job_state(), f"specjax/{about}/{{}}".format
    own = [socket.gethostname(), {k: str(v) for k, v in say().items()}]
    job.client.key_value_set(name(job.process_id), json.dumps(own))
    answers = [
        json.loads(job.client.blocking_key_value_get(name(i), 1000 * MEETING))
        for i in range(job.num_processes)
    ]
    host, wanted = answers[0]
    differ = [
        f"{key} is {each.get(key)} on process {i} ({where}) and {wanted.get(key)} on"
        f" process 0 ({host})"
        for i, (where, each) in enumerate(answers)
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
    """Returns arrays that every process holds alike, placed on the devices of all.

    where: a Sharding, or one for each array."""
    if not is_distributed():
        return jax.device_put(tree, where)
    if isinstance(where, Sharding):
        return jax.tree.map(lambda leaf: place_leaf(leaf, where), tree)
    return jax.tree.map(place_leaf, tree, where)


def place_leaf(leaf: Any, where: Sharding) -> jax.Array:
    """Returns one array on the devices of all processes."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = place_leaf(jax.random.key_data(leaf), where)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, where)  # it lies on devices of all already
    own = np.asarray(leaf)
    return jax.make_array_from_callback(own.shape, where, own.__getitem__)


def read(tree: Any) -> Any:
    """Returns the arrays as complete NumPy arrays, wherever they are placed."""

    def gather(leaf: Any) -> Any:
        far = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
        if far and not leaf.is_fully_replicated:
            return multihost_utils.process_allgather(leaf, tiled=True)
        return leaf

    return jax.device_get(jax.tree.map(gather, tree) if is_distributed() else tree)


def broadcast(value: Any) -> Any:
    """Returns the value of process 0, in types of JSON, on every process.

    Such values are seconds, or the content of a file."""
    if not is_distributed():
        return value
    data = json.dumps(value).encode() if is_first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    data = data.ljust(1 << size.bit_length())[: 1 << size.bit_length()]
    answer = multihost_utils.broadcast_one_to_all(np.frombuffer(data, np.uint8))
    return json.loads(np.asarray(answer).tobytes())
