"""Seconds of compiled programs: warmed up, taken in turns, summed up by medians.

A machine's speed drifts and other work disturbs it, so programs that are compared are
run in turns, round after round, and ratios are trusted more than seconds.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import jax
import numpy as np
from tqdm import tqdm

Name = TypeVar("Name")
RESAMPLES = 1000
LEVEL = 0.95  # of the intervals


def interleaved(
    programs: Mapping[Name, Callable],
    rounds: int,
    label: str = "",
    warm: Iterable[Callable] | None = None,
    after: Callable[[dict[Name, np.ndarray]], None] | None = None,
) -> dict[Name, np.ndarray]:
    """Runs all programs in each of `rounds` rounds, after a first, unmeasured run."""
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1; got {rounds}")
    first = list(programs.values() if warm is None else warm)
    for program in tqdm(first, f"{label}: compile", leave=False, disable=None):
        jax.block_until_ready(program())
    seconds = {name: np.zeros(rounds) for name in programs}
    for i in tqdm(range(rounds), f"{label}: measure", leave=False, disable=None):
        for name, program in programs.items():
            begun = time.perf_counter()
            jax.block_until_ready(program())
            seconds[name][i] = time.perf_counter() - begun
        if after is not None and i + 1 < rounds:
            after({name: each[: i + 1] for name, each in seconds.items()})
    return seconds


def interval(
    statistic: Callable[..., float], samples: tuple[np.ndarray, ...], seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval (percentiles) of `statistic(*samples)`, arrays [rounds, ...].
    Rounds are drawn anew, the same ones of every sample: what happened to the machine
    in a round happened to all of them (Efron & Tibshirani 1993, chapter 13)."""
    random, rounds = np.random.default_rng(seed), len(samples[0])
    statistics = [
        statistic(*(sample[drawn] for sample in samples))
        for drawn in random.integers(rounds, size=(RESAMPLES, rounds))
    ]
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(statistics, [tail, 100 - tail])
    return float(low), float(high)
