"""Launchers of tasks on other machines or processes, and the restart of lost workers.

A launcher has `submit(function, *arguments)`, which returns a job with `done()`,
`result()` and `cancel(check)`, as submitit's have."""

import argparse
import contextlib
import glob
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from specjax.cli import environment
from specjax.cli.local import Local, visible_gpus
from specjax.runtime import console

LAUNCHERS = ("local", "slurm", "ray")
KILLED = (137, 143)  # what a shell makes of SIGKILL and SIGTERM
GPUS = "/dev/nvidia[0-9]*", "/dev/dxg"  # the latter in Windows
POLL = 0.2  # seconds
# Flags that a launcher does not read.
UNREAD: dict[str, tuple[str, ...]] = {
    "local": ("cpus", "partition", "address"),
    "slurm": ("address",),
    "ray": ("partition",),
}
NEEDS = {"slurm": {"submitit": "sweep"}, "ray": {"ray": "ray"}}  # library, its extra
Task = TypeVar("Task")


class Outcome(NamedTuple):
    """The end of a task. died: its worker was lost, which is not an error of the task.
    error: a message, or "". host: the machine."""

    died: bool
    error: str = ""
    host: str = ""


def add(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds `--on`, `--workers` and the other flags of workers. what: the name of one
    unit of work."""
    add, whole = parser.add_argument, console.whole_number(1, 10**6)
    of_on = "where workers run; default %(default)s"
    add("--on", choices=LAUNCHERS, default="local", help=of_on)
    of_workers = f"{what}s processed at the same time; default %(default)s"
    add("--workers", type=whole, default=1, help=of_workers)
    of_attempts = f"starts of a {what} whose worker dies; default %(default)s"
    add("--attempts", type=whole, default=3, help=of_attempts)
    of_minutes = "time limit of a worker, except on Ray; default %(default)s"
    add("--minutes", type=whole, default=60, help=of_minutes)
    for resource in ("gpus", "cpus"):
        add(f"--{resource}", type=whole, help=f"{resource.upper()[:-1]}s per worker")
    add("--partition", help="Slurm partition")
    add(
        "--address", help="address of a Ray cluster; default: start one on this machine"
    )


def check(chosen: argparse.Namespace) -> None:
    """Raises ValueError where `make_launcher` would fail, as far as that is known
    beforehand."""
    for name in UNREAD[chosen.on]:
        if getattr(chosen, name) is not None:
            raise ValueError(f"--{name} is not for --on {chosen.on}: leave it out")
    for library, extra in NEEDS.get(chosen.on, {}).items():
        if find_spec(library) is None:
            raise ValueError(
                f"--on {chosen.on} needs {library}: pip install 'specjax[{extra}]'"
            )
    if chosen.on == "slurm" and shutil.which("sbatch") is None:
        raise ValueError(
            "there is no sbatch here: write --on local, or start the command on a"
            " machine that submits to Slurm"
        )
    none = visible_gpus() == [] or not any(map(glob.glob, GPUS))
    if chosen.on == "local" and chosen.gpus and none:
        raise ValueError(
            f"--gpus {chosen.gpus}: there is no GPU here: leave --gpus out, or write"
            " --on slurm or --on ray"
        )


def make_launcher(chosen: argparse.Namespace, logs: Path) -> Any:
    """Returns the launcher that --on names. logs: a folder for its files.

    Raises ValueError where it is not available."""
    check(chosen)
    if chosen.on == "ray":
        return cluster(chosen.address, chosen.cpus, chosen.gpus)
    if chosen.on == "local":
        return Local(logs, chosen.minutes, chosen.gpus, [])
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # it would take our streams
    import submitit

    executor = submitit.AutoExecutor(logs, cluster=chosen.on)
    wanted = {"timeout_min": chosen.minutes, "gpus_per_node": chosen.gpus}
    wanted |= {"cpus_per_task": chosen.cpus, "slurm_partition": chosen.partition}
    executor.update_parameters(**{k: v for k, v in wanted.items() if v is not None})
    return executor


def cluster(address: str | None, cpus: int | None, gpus: int | None) -> "Cluster":
    """Joins a Ray cluster, or starts one on this machine where no address is given.

    cpus, gpus: of each worker. Raises ValueError where there is no such cluster."""
    # Without this, Ray hides the GPUs from a task that requests none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        ray.init(address, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError) as error:
        raise ValueError(f"there is no Ray cluster at {address}: {error}") from None
    return Cluster(ray, {"num_cpus": cpus or 1, "num_gpus": gpus or 0})


class Cluster(NamedTuple):
    """A launcher on Ray. ray: the module, connected to a cluster. options: those of
    every task."""

    ray: Any
    options: dict[str, int]

    def submit(self, function: Callable, *arguments: Any) -> "Job":
        # `run_tasks` starts lost tasks again, not Ray. A worker's process ends with
        # its task, so that the next task finds all memory free.
        options: dict[str, Any] = {**self.options, "max_retries": 0, "max_calls": 1}
        options["runtime_env"] = {"env_vars": environment.worker_variables()}
        task = self.ray.remote(**options)(function)
        return Job(self.ray, task.remote(*arguments))


class Job(NamedTuple):
    """A task that Ray runs."""

    ray: Any
    answer: Any

    def done(self) -> bool:
        return bool(self.ray.wait([self.answer], timeout=0)[0])

    def result(self) -> Any:
        return self.ray.get(self.answer)

    def cancel(self, check: bool) -> None:
        self.ray.cancel(self.answer, force=True)


def submit(launcher: Any, function: Callable, *arguments: Any) -> Any:
    """Returns the job of a function call, in a worker with the folder and the path of
    this process."""
    return launcher.submit(
        environment.run_in_environment, environment.current(), function, *arguments
    )


@contextlib.contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Adds environment variables for the processes that are started in the `with`
    block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def read_outcome(job: Any) -> Outcome:
    """Returns the outcome of a job whose task returns exit code, error and machine."""
    try:
        code, message, host = job.result()
    except Exception as error:  # whatever a launcher says of a worker that is lost
        return Outcome(True, " ".join(str(error).split())[:200])
    if code < 0 or code in KILLED:
        return Outcome(
            True, f"killed by signal {-code if code < 0 else code - 128}", host
        )
    return Outcome(False, message if code else "", host)


def run_tasks(
    begin: Callable[[Task], Any],
    tasks: Iterable[Task],
    *,
    workers: int,
    attempts: int,
    label: Callable[[Task], str],
) -> Generator[tuple[Task, Outcome], None, None]:
    """Yields each task and its outcome, as they end, and leaves no job behind.

    Args:
      begin: starts a task and returns its job.
      tasks: what to run.
      workers: tasks that run at once.
      attempts: how often a task is started whose worker dies, in total.
      label: the name of a task, for messages.
    """
    fresh, again = iter(tasks), deque[tuple[Task, int]]()
    running: list[tuple[Any, Task, int]] = []
    try:
        while True:
            while len(running) < workers:
                task, attempt = again.popleft() if again else (next(fresh, None), 1)
                if task is None:
                    break
                with set_variables(environment.import_variables()):
                    running.append((begin(task), task, attempt))
            if not running:
                return
            for entry in [entry for entry in running if entry[0].done()]:
                running.remove(entry)
                job, task, attempt = entry
                how = read_outcome(job)
                if how.died and attempt < attempts:
                    line = f"{label(task)}: its worker died ({how.error}); trying again"
                    print(line, flush=True)
                    again.append((task, attempt + 1))
                elif how.died:
                    error = f"{attempt} workers died in turn ({how.error})"
                    yield task, how._replace(error=error)
                else:
                    yield task, how
            time.sleep(POLL if running else 0)
    finally:
        for job, *_ in running:
            job.cancel(check=False)
