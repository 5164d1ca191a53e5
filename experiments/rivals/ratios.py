"""Programs timed in turns; times and ratios of times with their intervals.

Axes: R rounds, G groups of prompts.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.rivals import turns, worker
from experiments.rivals.children import Refused
from experiments.rivals.journal import Call, Journal
from specjax.measure import timing
from specjax.measure.rows import error_of
from specjax.theory import speedup

DIGITS = 4  # of seconds in a record


def measure(
    programs: Mapping[str, Callable],
    *,
    rounds: int,
    pause: float,
    label: str,
    kept: Journal,
) -> turns.Answers:
    """Returns the seconds [R, 1] of each program in this process; the programs take
    turns.

    Args:
        pause: seconds of idling before each, because idle threads of the last program
            keep the cores busy for up to 0.2 s.
        kept: the calls that are measured already.
    """
    timed = {name: partial(time_call, program) for name, program in programs.items()}
    return turns.collect(
        timed, [()], [()], rounds=rounds, pause=pause, label=label, journal=kept
    )


def time_call(program: Callable) -> Call:
    """Returns a measured call of a program. Raises `Refused` with one line where it
    fails.
    """
    begun = time.perf_counter()
    try:
        jax.block_until_ready(program())
    except Exception as error:  # whatever an engine raises
        raise Refused(worker.reason(error)) from error
    return Call(time.perf_counter() - begun)


def milliseconds(seconds: Mapping[str, np.ndarray], count: int) -> dict[str, float]:
    """Returns the median time of each of the `count` things that a program does."""
    return {f"ms_{k}": 1e3 * float(np.median(v)) / count for k, v in seconds.items()}


def speed_ratio(
    seconds: Mapping[str, np.ndarray], *, fast: str, slow: str, name: str
) -> dict[str, Any]:
    """Returns how many times as fast `fast` is, under the names of `with_interval`."""
    return with_interval(name, ratio_of_medians, (seconds[slow], seconds[fast]))


def token_speed_ratio(
    slow: tuple[np.ndarray, np.ndarray], fast: tuple[np.ndarray, np.ndarray], name: str
) -> dict[str, Any]:
    """Returns the ratio of the times per token, with its 95 % interval and its error
    over texts, each timed in every round.

    Args:
        slow, fast: seconds [R, G] and tokens [G] of each.
    """
    above, below = [], []
    for (seconds, tokens), over, under in ((slow, above, below), (fast, below, above)):
        several = len(tokens) > 1  # of one text, its rounds are the units
        over.append(seconds.mean(0) if several else seconds[:, 0])
        under.append(tokens if several else np.tile(tokens, len(seconds)))
    value, error = speedup.ratio(above, below)
    return {
        name: value,
        f"{name}_ci": speedup.interval(value, error, len(above[0])),
        f"{name}_se": None if error is None else value * error,
    }


def time_numbers(
    seconds: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray],
    beside: Mapping[str, str],
) -> dict:
    """Returns the times of each program.

    They are its seconds [R, G], the milliseconds of one of the counted things [G],
    tokens or seconds of sound, and how many times as fast the program is that it is
    compared with (`beside`).
    """
    result = {"beside": {}}
    result["seconds"] = {k: v.round(DIGITS).tolist() for k, v in seconds.items()}
    for name, each in seconds.items():
        spent = float(each.sum() / len(each) / counts[name].sum())
        result[f"ms_{name}"] = 1e3 * spent
        ours = beside[name]
        if name != ours and ours in seconds:
            pair = ((seconds[x], counts[x]) for x in (name, ours))
            result |= token_speed_ratio(*pair, f"over_{name}")
            result["beside"][name] = ours
    return result


def with_interval(
    name: str, statistic: Callable[..., float], samples: tuple[np.ndarray, ...]
) -> dict[str, Any]:
    """Returns a statistic under `name`, with its 95 % interval and its error, which are
    None for a single round."""
    ends, value = timing.interval(statistic, samples), statistic(*samples)
    return {name: value, f"{name}_ci": ends, f"{name}_se": error_of(ends)}


def ratio_of_medians(slow: np.ndarray, fast: np.ndarray) -> float:
    """Returns the ratio of the medians over rounds, because a machine may be disturbed
    in some rounds.
    """
    return float(np.median(slow) / np.median(fast))
