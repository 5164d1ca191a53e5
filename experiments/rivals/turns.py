"""Engines that take turns: each call is stored as soon as it was measured, and reported
on standard error.

Axes: R rounds, G groups of texts.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.rivals.children import Refused
from experiments.rivals.journal import Call, Journal, Place

Program = Callable[..., Call]  # the arguments of a group -> its measured call


class Answers(NamedTuple):
    """The answers of all engines.

    Attributes:
        seconds: [R, G] of each.
        values: the results of the first round, G of them.
        refusals: the reasons why other engines gave nothing.
        peak_mb: the largest resident memory of each engine's process, MiB, where it has
            its own.
    """

    seconds: dict[str, np.ndarray]
    values: dict[str, list]
    refusals: dict[str, str]
    peak_mb: dict[str, float]


def collect(
    programs: Mapping[str, Program],
    groups: Sequence[Sequence],
    warm: Sequence[Sequence],
    *,
    rounds: int,
    pause: float,
    label: str,
    journal: Journal,
) -> Answers:
    """Collects every engine's answers to `groups`, in turns, one round after another.

    A round that a stop has cut is continued: every engine still has a turn in each
    round, and `journal.sittings` says how many runs of the command they come from.

    Args:
        programs: by their names in a record.
        groups: the arguments of a program for each group.
        warm: arguments of a first call, which is not timed.
        pause: seconds of idling before each turn, because idle threads of the last
            program keep the cores busy for a while.
        journal: the calls that are measured already; all others are added.
    """
    left, refusals = dict(programs), {}

    def drop(name: str, error: Refused) -> None:
        refusals[name] = str(error)
        del left[name]
        say(f"{label}: {name} gives no number: {error}")

    def missing_places(name: str, turn: int) -> list[Place]:
        places = (Place(name, turn, group) for group in range(len(groups)))
        return [place for place in places if place not in journal.calls]

    for name in [*left]:
        if not any(missing_places(name, turn) for turn in range(rounds)):
            continue
        say(f"{label}: {name}, first calls, not timed")
        try:
            for arguments in warm:
                left[name](*arguments)
        except Refused as error:
            drop(name, error)
    for turn in range(rounds):
        for name in [*left]:
            if not (places := missing_places(name, turn)):
                continue
            time.sleep(pause)
            try:
                for place in places:
                    call = left[name](*groups[place.group])
                    journal.add(place, call)
                    of = f"{place.group + 1} of {len(groups)}: {call.describe()}"
                    say(f"{label}: round {turn + 1} of {rounds}, {name}, {of}")
            except Refused as error:
                drop(name, error)
    return answers(journal.calls, [*left], (rounds, len(groups)), refusals)


def answers(
    calls: Mapping[Place, Call],
    names: Sequence[str],
    shape: tuple[int, int],
    refusals: dict[str, str],
) -> Answers:
    """Returns the measured calls of the engines that have all of them, as arrays of
    this shape, [R, G].
    """
    taken = Answers({}, {}, refusals, {})
    for name in names:
        every = np.empty(shape, object)
        for turn, group in np.ndindex(shape):
            every[turn, group] = calls[Place(name, turn, group)]
        taken.seconds[name] = np.vectorize(lambda call: call.seconds, [float])(every)
        taken.values[name] = [call.value for call in every[0]]
        peaks = [call.peak_mb for call in every.flat if call.peak_mb is not None]
        if peaks:
            taken.peak_mb[name] = round(max(peaks), 1)
    return taken


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
