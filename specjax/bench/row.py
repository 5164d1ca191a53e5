"""What a gin file describes: one row of a table, built but not yet measured."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Measurement(NamedTuple):
    """Something to measure, and everything that its result depends on.

    run: () -> plain numbers by name. module: who measures, as it is imported.
    inputs: the files that it reads, weights and prompts. dtype, seed: of the arithmetic
    and of the randomness; no seed, no randomness.
    """

    run: Callable[[], dict]
    module: str
    inputs: tuple[Path, ...] = ()
    dtype: str = "float64"
    seed: int | None = None


class Row(NamedTuple):
    """`scale`: "closed form", "compiled" (nothing ran), "laptop", "paper" or "chip"."""

    measurement: Measurement
    scale: str
