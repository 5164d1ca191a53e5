"""Programs in turns, as times and ratios of times with their intervals.

Axes: R rounds.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from specjax.measure import timing

IDLE = "idle before "


def measure(
    programs: Mapping[str, Callable], rounds: int, pause: float, label: str
) -> dict[str, np.ndarray]:
    """The seconds [R] of each program. pause: seconds of nothing before each, as idle
    threads of the last one turn for up to 0.2 s on the cores that the next needs."""
    turns = {}
    for name, program in programs.items():
        turns[IDLE + name] = lambda: time.sleep(pause)
        turns[name] = program
    seconds = timing.interleaved(turns, rounds, label, warm=programs.values())
    return {name: seconds[name] for name in programs}


def milliseconds(seconds: Mapping[str, np.ndarray], count: int) -> dict[str, float]:
    """Medians, of each of `count` things that a program does."""
    return {f"ms_{k}": 1e3 * float(np.median(v)) / count for k, v in seconds.items()}


def over(
    seconds: Mapping[str, np.ndarray], fast: str, slow: str, name: str
) -> dict[str, float | tuple[float, float]]:
    """How many times as fast `fast` is: `name`, its 95 % interval, its error."""
    pair = seconds[slow], seconds[fast]
    low, high = timing.interval(of_medians, pair)
    error = (high - low) / (2 * 1.96)
    return {name: of_medians(*pair), f"{name}_ci": (low, high), f"{name}_se": error}


def of_medians(slow: np.ndarray, fast: np.ndarray) -> float:
    return float(np.median(slow) / np.median(fast))
