"""Tasks on a cluster of Ray's, behind the face that submitit's jobs have."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple


def launcher(address: str | None, cpus: int | None, gpus: int | None) -> "Launcher":
    """Joins a cluster, or begins one on this machine where no address is named. cpus,
    gpus: of a worker. Raises ValueError where there is no such cluster."""
    # Who asks for no GPU is not kept from one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        ray.init(address, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError) as error:
        raise ValueError(f"no cluster of Ray's at {address}: {error}") from None
    return Launcher(ray, {"num_cpus": cpus or 1, "num_gpus": gpus or 0})


class Launcher(NamedTuple):
    """ray: the module, once it is joined. options: of every task."""

    ray: Any
    options: dict[str, int]

    def submit(self, function: Callable, *arguments: Any) -> "Job":
        # Who begins again what died is `workers.finished`. A worker's process ends with
        # its task, so that the next finds all memory free.
        options = {**self.options, "max_retries": 0, "max_calls": 1}
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
