"""Who starts tasks on other machines or processes, and begins again what died.

A launcher has `submit(function, *arguments)`, which gives a job with `done()`,
`result()` and `cancel(check)`, as submitit's have.
"""

import argparse
import contextlib
import glob
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from specjax.cli import worlds
from specjax.cli.local import Local
from specjax.runtime import console

LAUNCHERS = ("local", "slurm", "ray")
KILLED = (137, 143)  # what a shell makes of SIGKILL and SIGTERM
GPUS = "/dev/nvidia[0-9]*", "/dev/dxg"  # the latter in Windows
POLL = 0.2  # seconds
NEEDS = {"slurm": {"submitit": "sweep"}, "ray": {"ray": "ray"}}  # library, its extra
Task = TypeVar("Task")


class Ended(NamedTuple):
    """How a task ended. died: its worker was lost, by no fault of the task."""

    died: bool
    said: str = ""
    host: str = ""


def add(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds `--on`, `--workers` and what else says who works. what: each is given."""
    add, whole = parser.add_argument, console.whole(1, 10**6)
    add("--on", choices=LAUNCHERS, default="local", help="who starts them")
    of_workers = f"{what}s that are worked on at once; default %(default)s"
    add("--workers", type=whole, default=1, help=of_workers)
    of_attempts = f"times that a {what} is begun whose worker dies; default %(default)s"
    add("--attempts", type=whole, default=3, help=of_attempts)
    of_minutes = "after which a worker is lost, but of Ray's; default %(default)s"
    add("--minutes", type=whole, default=60, help=of_minutes)
    for resource in ("gpus", "cpus"):
        add(f"--{resource}", type=whole, help="of a worker")
    add("--partition", help="of Slurm")
    add("--address", help="of a cluster of Ray's; default: one on this machine")


def check(chosen: argparse.Namespace) -> None:
    """Raises ValueError where `launched` could have no launcher, as far as that is seen
    before one begins."""
    for library, extra in NEEDS.get(chosen.on, {}).items():
        if find_spec(library) is None:
            raise ValueError(
                f"--on {chosen.on} needs {library}: pip install 'specjax[{extra}]'"
            )
    if chosen.on == "slurm" and shutil.which("sbatch") is None:
        raise ValueError("there is no sbatch here: name --on local, or start it on a"
                         " machine that submits to Slurm")  # fmt: skip
    if chosen.on == "local" and chosen.gpus and not any(map(glob.glob, GPUS)):
        raise ValueError(
            f"--gpus {chosen.gpus}: there is no GPU here: leave it out, or name --on"
            " slurm or ray"
        )


def launched(chosen: argparse.Namespace, logs: Path) -> Any:
    """The launcher. logs: a folder for what it writes. Raises ValueError where it
    cannot be had."""
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
    """Joins a cluster, or begins one on this machine where no address is named. cpus,
    gpus: of a worker. Raises ValueError where there is no such cluster."""
    # Who asks for no GPU is not kept from one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        ray.init(address, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError) as error:
        raise ValueError(f"no cluster of Ray's at {address}: {error}") from None
    return Cluster(ray, {"num_cpus": cpus or 1, "num_gpus": gpus or 0})


class Cluster(NamedTuple):
    """A launcher. ray: the module, once it is joined. options: of every task."""

    ray: Any
    options: dict[str, int]

    def submit(self, function: Callable, *arguments: Any) -> "Job":
        # Who begins again what died is `finished`. A worker's process ends with
        # its task, so that the next finds all memory free.
        options = {**self.options, "max_retries": 0, "max_calls": 1}
        options["runtime_env"] = {"env_vars": worlds.settings()}
        task = self.ray.remote(**options)(function)
        return Job(self.ray, task.remote(*arguments))


class Job(NamedTuple):
    ray: Any
    answer: Any

    def done(self) -> bool:
        return bool(self.ray.wait([self.answer], timeout=0)[0])

    def result(self) -> Any:
        return self.ray.get(self.answer)

    def cancel(self, check: bool) -> None:
        self.ray.cancel(self.answer, force=True)


def submit(launcher: Any, function: Callable, *arguments: Any) -> Any:
    """The job of a function's call, in a process that stands where this one does."""
    return launcher.submit(worlds.within, worlds.here(), function, *arguments)


@contextlib.contextmanager
def variables(added: Mapping[str, str]) -> Iterator[None]:
    """For processes that are begun meanwhile: this environment and what is added."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def ended(job: Any) -> Ended:
    """How a job ended whose task gives exit code, what went wrong, and the machine."""
    try:
        code, said, host = job.result()
    except Exception as error:  # whatever a launcher says of a worker that is lost
        return Ended(True, " ".join(str(error).split())[:200])
    if code < 0 or code in KILLED:
        return Ended(
            True, f"killed by signal {-code if code < 0 else code - 128}", host
        )
    return Ended(False, said if code else "", host)


def finished(
    begin: Callable[[Task], Any],
    tasks: Iterable[Task],
    workers: int,
    attempts: int,
    label: Callable[[Task], str],
) -> Iterator[tuple[Task, Ended]]:
    """Each task and how it ended, as they end; one whose worker died is begun again,
    `attempts` times in all. begin: gives the job of a task. Leaves no job behind."""
    fresh, again, running = iter(tasks), deque(), []
    try:
        while True:
            while len(running) < workers:
                task, attempt = again.popleft() if again else (next(fresh, None), 1)
                if task is None:
                    break
                with variables(worlds.variables()):
                    running.append((begin(task), task, attempt))
            if not running:
                return
            for entry in [entry for entry in running if entry[0].done()]:
                running.remove(entry)
                job, task, attempt = entry
                how = ended(job)
                if how.died and attempt < attempts:
                    say = f"{label(task)}: its worker died ({how.said}); again"
                    print(say, flush=True)
                    again.append((task, attempt + 1))
                elif how.died:
                    said = f"given up after {attempt} workers died"
                    yield task, how._replace(said=said)
                else:
                    yield task, how
            time.sleep(POLL if running else 0)
    finally:
        for job, *_ in running:
            job.cancel(check=False)
