"""Times of compiled programs in seconds: after a warm-up, run in turns, summarized by
medians.

A machine's speed drifts and other work disturbs it. Programs that are compared are
therefore run in turns, round after round, and ratios are trusted more than seconds. c
and v come from programs that loop over one part (Definition 3.7 of Leviathan et al.
2023). Axes: K values of gamma, R rounds, S samples of a program in all of them.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from specjax.runtime import hosts, progress

Key = TypeVar("Key")  # of a program
RESAMPLES = 1000
LEVEL = 0.95  # of the intervals
ON_A_GPU = 2  # unmeasured runs once all programs are compiled


def time_in_turns(
    programs: Mapping[Key, Callable],
    rounds: int,
    label: str = "",
    *,
    warm: Iterable[Callable] | None = None,
    after: Callable[[dict[Key, np.ndarray]], None] | None = None,
    again: int | None = None,
) -> dict[Key, np.ndarray]:
    """Runs all programs in each of `rounds` rounds, after a first run that is not
    measured.

    again: additional unmeasured runs, once all programs are compiled; None is the two
    that a GPU needs, and none elsewhere. XLA discards all CUDA graphs whenever it
    compiles, launches kernels one by one in the run after that, and records the graphs
    again in the next.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1; got {rounds}")
    first = list(programs.values() if warm is None else warm)
    for program in progress.track(first, f"{label}: compile"):
        jax.block_until_ready(program())
    if again is None:
        again = ON_A_GPU if jax.default_backend() == "gpu" else 0
    for program in again * first:
        jax.block_until_ready(program())
    seconds = {name: np.zeros(rounds) for name in programs}
    for i in progress.track(range(rounds), f"{label}: measure"):
        times = []
        for program in programs.values():
            start = time.perf_counter()
            jax.block_until_ready(program())
            times.append(time.perf_counter() - start)
        for name, x in zip(programs, hosts.broadcast(times), strict=True):
            seconds[name][i] = x
        if after is not None and i + 1 < rounds:
            after({name: each[: i + 1] for name, each in seconds.items()})
    return seconds


def interval(
    statistic: Callable[..., float], samples: tuple[np.ndarray, ...], seed: int = 0
) -> tuple[float, float] | None:
    """Returns a bootstrap interval (percentiles) of `statistic(*samples)`; None for a
    single round, which says nothing of others.

    Samples are arrays [rounds, ...]. Rounds are drawn again, the same ones of every
    sample, because a disturbance of the machine in a round affects all of them (Efron &
    Tibshirani 1993, chapter 13). Intervals of few rounds are too narrow: in simulations
    of a ratio of medians over three rounds, 77 to 85 % contained the truth, over five
    94 to 97 %.
    """
    random, rounds = np.random.default_rng(seed), len(samples[0])
    if rounds < 2:
        return None
    statistics = [
        statistic(*(sample[drawn] for sample in samples))
        for drawn in random.integers(rounds, size=(RESAMPLES, rounds))
    ]
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(statistics, [tail, 100 - tail])
    return float(low), float(high)


DECODE, PREFILL, TARGET, DRAFT = range(4)  # kinds of programs
LOOPS = 64  # calls in a program that times one call, so that its first few are few
SAMPLES = 2  # of such a program, in every round
DIGITS = 6  # of seconds: a clock tells no more
Name = tuple[int, int, int]  # of a program: kind, gamma, index


def program_order(names: Iterable[Name], measured: int, others: int) -> list[Name]:
    """Returns the order of the programs in a round.

    A machine's speed drifts during a round, so each kind of text and of program is
    spread over all of it, and all gammas of one are adjacent.
    """

    def place(name: Name) -> tuple:
        kind, gamma, index = name
        if kind != DECODE:
            share = (index + 0.5) / SAMPLES
        elif index < measured:
            share = (index + 0.5) / measured
        else:
            share = (index - measured + 0.5) / others
        return share, index, gamma, kind

    return sorted(names, key=place)


def part_times(gammas: Sequence[int], seconds: dict) -> dict:
    """Returns the seconds of the programs that time a part, [K][S], in the form of a
    record: the first of SAMPLES in each round, then the second."""

    def samples(kind: int, gamma: int) -> list[float]:
        rows = [seconds[kind, gamma, i] for i in range(SAMPLES)]
        return np.round(np.concatenate(rows), DIGITS).tolist()

    return {
        "target_calls": [samples(TARGET, gamma) for gamma in gammas],
        "drafts": [samples(DRAFT, gamma) if gamma else None for gamma in gammas],
        "prefills": [samples(PREFILL, gamma) for gamma in gammas],
        "loops": LOOPS,
    }


def part_costs(gammas: Sequence[int], seconds: dict) -> dict:
    """Returns c and v for every gamma, and the milliseconds that they are computed
    from.

    Intervals are over rounds, each with its SAMPLES, which resemble each other more
    than those of other rounds. seconds: the result of `part_times`.
    """
    loops = seconds["loops"]

    def call_ms(samples: Sequence[float]) -> np.ndarray:
        """Returns the milliseconds of a call in each round, [R, SAMPLES]."""
        return 1e3 * np.reshape(samples, (SAMPLES, -1)).T / loops

    calls = [call_ms(each) for each in seconds["target_calls"]]
    prefills = [1e3 * float(np.median(each)) for each in seconds["prefills"]]

    def ratio_of_medians(part: np.ndarray, whole: np.ndarray) -> float:
        return float(np.median(part) / np.median(whole))

    target_ms = calls[0]
    keys = ("c", "c_ci", "v", "v_ci", "draft_ms")
    columns: dict[str, list[Any]] = {key: [] for key in keys}
    for gamma, call, drafts in zip(gammas, calls, seconds["drafts"], strict=True):
        c, c_ci, t_draft = None, None, None
        if gamma:  # Definition 3.7, of one drafted token
            drafted = call_ms(drafts)
            c = ratio_of_medians(drafted, target_ms) / gamma
            c_ci = interval(ratio_of_medians, (drafted / gamma, target_ms))
            t_draft = float(np.median(drafted))
        columns["c"].append(c)
        columns["c_ci"].append(c_ci)
        columns["v"].append(ratio_of_medians(call, target_ms))
        columns["v_ci"].append(interval(ratio_of_medians, (call, target_ms)))
        columns["draft_ms"].append(t_draft)
    alone, *both = prefills  # with an encoder its run is most of it
    return columns | {
        "prefill_ms": prefills,
        "target_ms": float(np.median(target_ms)),
        "target_ms_ci": interval(lambda x: float(np.median(x)), (target_ms,)),
        "prefill_target_ms": alone,
        "prefill_draft_ms": float(np.median(both)) - alone,
    }
