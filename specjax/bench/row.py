"""What a gin file describes: one row of a table, built but not yet measured."""

import datetime
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from specjax import native, verifiers
from specjax.bench.machine import machine
from specjax.own import is_own


class Measurement(NamedTuple):
    """Something to measure, and everything that its result depends on.

    run: () -> plain numbers by name. module: who measures, as it is imported.
    inputs: the files that it reads, weights and prompts. dtype, seed: of the arithmetic
    and of the randomness; no seed, no randomness. reaches: the definitions that it
    chooses by a name, "module:name", since no line of code refers to them. shares:
    `run` takes what rows of one run have kept for each other, a dictionary `kept`.
    """

    run: Callable[..., dict]
    module: str
    inputs: tuple[Path, ...] = ()
    dtype: str = "float64"
    seed: int | None = None
    reaches: tuple[str, ...] = ()
    shares: bool = False


class TableRow(NamedTuple):
    """`scale`: "closed form", "compiled" (nothing ran), "laptop", "paper" or "chip".
    products: "thin" or "xla", see `specjax.native`."""

    measurement: Measurement
    scale: str
    products: str = native.THIN


def conditions(measurement: Measurement, seconds: float) -> dict:
    """Under what a number was measured: versions, device, arithmetic, and when."""
    return {
        **machine(),
        "dtype": measurement.dtype,
        "seed": measurement.seed,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
    }


def rule(name: str) -> tuple[str, ...]:
    """What a measurement reaches that chooses a verifier by its name."""
    bare, colon, _ = name.partition(":")
    if bare in verifiers.LOSSY:
        return (f"specjax.verifiers.{bare}:build",)
    return () if colon else (f"specjax.verifiers.{bare}:verifier",)


def policy(name: str) -> tuple[str, ...]:
    """What it reaches that chooses a policy by its name."""
    adaptive = name.partition(":")[0] == "adaptive"
    return ("specjax.policies.adaptive:heuristic",) if adaptive else ()


def own_files(*names: str) -> tuple[Path, ...]:
    """The sources of rules and policies that are named as "module:name": inputs of what
    is measured by them, so that a change of theirs is seen."""
    modules = (name.partition(":")[0] for name in names if is_own(name))
    return tuple(Path(importlib.import_module(name).__file__) for name in modules)
