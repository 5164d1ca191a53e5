"""Programs in turns, as times and ratios of times with their intervals.

Axes: R rounds, G groups of prompts.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from specjax.measure import timing

IDLE = "idle before "
DIGITS = 4  # of seconds in a record


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
    """How many times as fast `fast` is, as `told` has it."""
    return told(name, of_medians, (seconds[slow], seconds[fast]))


def over_tokens(
    slow: tuple[np.ndarray, np.ndarray], fast: tuple[np.ndarray, np.ndarray], name: str
) -> dict[str, float | tuple[float, float]]:
    """The same a token. slow, fast: seconds [R, G] and tokens [G] of each."""
    columns = []
    for seconds, tokens in (slow, fast):
        columns += [seconds.ravel(), np.tile(tokens, len(seconds))]

    def faster(*sums: np.ndarray) -> float:
        slow, of_slow, fast, of_fast = (each.sum() for each in sums)
        return float(slow / of_slow / (fast / of_fast))

    return told(name, faster, tuple(columns))


def rated(
    seconds: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray],
    beside: Mapping[str, str],
) -> dict:
    """Of each its seconds [R, G], milliseconds of one of what is counted [G], tokens or
    seconds of sound, and how many times as fast as it is what it is `beside`."""
    result = {"beside": {}}
    result["seconds"] = {k: v.round(DIGITS).tolist() for k, v in seconds.items()}
    for name, each in seconds.items():
        spent = float(each.sum() / len(each) / counts[name].sum())
        result[f"ms_{name}"] = 1e3 * spent
        ours = beside[name]
        if name != ours and ours in seconds:
            pair = ((seconds[x], counts[x]) for x in (name, ours))
            result |= over_tokens(*pair, f"over_{name}")
            result["beside"][name] = ours
    return result


def told(
    name: str, statistic: Callable[..., float], samples: tuple[np.ndarray, ...]
) -> dict[str, float | tuple[float, float]]:
    """A statistic: `name`, its 95 % interval, its error."""
    low, high = timing.interval(statistic, samples)
    error = (high - low) / (2 * 1.96)
    return {name: statistic(*samples), f"{name}_ci": (low, high), f"{name}_se": error}


def of_medians(slow: np.ndarray, fast: np.ndarray) -> float:
    """By medians over rounds, as a machine may be disturbed in some."""
    return float(np.median(slow) / np.median(fast))
