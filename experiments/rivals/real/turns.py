"""Programs of many children in turns: seconds, texts, and ratios of seconds.

Axes: R rounds, G groups of prompts, each a batch.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.rivals.real.child import Child, Refused
from specjax import progress
from specjax.measure import timing

Asked = Mapping[str, tuple[Child, str]]  # by the name in a record: whom, and for what


class Taken(NamedTuple):
    """seconds: [R, G] of each. values: what each gave in the first round, G of them.
    refusals: why others gave nothing."""

    seconds: dict[str, np.ndarray]
    values: dict[str, list]
    refusals: dict[str, str]


def take(
    asked: Asked,
    groups: Sequence[Sequence],
    warm: Sequence[Sequence],
    rounds: int,
    pause: float,
    label: str,
) -> Taken:
    """Everyone's answers to `groups`, arguments of a program each, a round after the
    other; to those of `warm` first, which nobody times. pause: seconds of nothing
    before each, as idle threads of the last one turn on the cores for a while."""
    taken = Taken({}, {}, {})
    left = dict(asked)

    def answers(name: str, groups: Sequence[Sequence]) -> list[tuple[float, Any]]:
        child, program = asked[name]
        try:
            return [child.ask(program, *arguments) for arguments in groups]
        except Refused as error:
            taken.refusals[name] = str(error)
            for kept in (left, taken.seconds, taken.values):
                kept.pop(name, None)
            return []

    for name in progress.track([*left], f"{label}: warm"):
        answers(name, warm)
    for turn in progress.track(range(rounds), f"{label}: rounds"):
        for name in [*left]:
            time.sleep(pause)
            if found := answers(name, groups):
                seconds = taken.seconds.setdefault(
                    name, np.zeros((rounds, len(groups)))
                )
                seconds[turn] = [each for each, _ in found]
                taken.values.setdefault(name, [value for _, value in found])
    return taken


def over(
    slow: tuple[np.ndarray, np.ndarray], fast: tuple[np.ndarray, np.ndarray], name: str
) -> dict[str, float | tuple[float, float]]:
    """How many times as fast `fast` is: `name`, its 95 % interval, its error. slow,
    fast: seconds [R, G] and tokens [G] of each."""
    columns = []
    for seconds, tokens in (slow, fast):
        columns += [seconds.ravel(), np.tile(tokens, len(seconds))]

    def faster(*sums: np.ndarray) -> float:
        slow, of_slow, fast, of_fast = (each.sum() for each in sums)
        return float(slow / of_slow / (fast / of_fast))

    low, high = timing.interval(faster, tuple(columns))
    error = (high - low) / (2 * 1.96)
    return {name: faster(*columns), f"{name}_ci": (low, high), f"{name}_se": error}
