"""c, v and the rest of a step in numbers, from the seconds of the programs of a row.

Apart: of programs that loop over one part, as Definition 3.7 of Leviathan et al. (2023)
has it. Inside: of whole texts. Seconds are [R] by (kind, gamma, index).
Axes: R rounds, K values of gamma.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from specjax.bench import timing
from specjax.bench.inside import Timed, fit, fitted

DECODE, PREFILL, TARGET, DRAFT = range(4)  # kinds of programs
LOOPS = 64  # calls in a program that times one call, so that its first few are few
SAMPLES = 2  # of such a program, in every round
Name = tuple[int, int, int]  # of a program: kind, gamma, index


def turn(names: Iterable[Name], measured: int, others: int) -> list[Name]:
    """The order of a round. A machine's speed drifts while it lasts, so that each kind
    of text and of program is spread over all of it, all gammas of one side by side."""

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


def apart(gammas: Sequence[int], seconds: dict) -> dict:
    """c and v of every gamma, timed apart, and the milliseconds behind them."""

    def each(kind: int, gamma: int) -> np.ndarray:
        """[R * SAMPLES] milliseconds, of one call where the program loops."""
        loops = 1 if kind == PREFILL else LOOPS
        rows = [seconds[kind, gamma, i] for i in range(SAMPLES)]
        return 1e3 * np.concatenate(rows) / loops

    def of_medians(part: np.ndarray, whole: np.ndarray) -> float:
        return float(np.median(part) / np.median(whole))

    target_ms = each(TARGET, 0)
    keys = ("c", "c_ci", "v", "v_ci", "prefill_ms", "draft_ms")
    columns = {key: [] for key in keys}
    for gamma in gammas:
        call = each(TARGET, gamma)
        c, c_ci, t_draft = None, None, None
        if gamma:  # Definition 3.7, of one drafted token
            drafted = each(DRAFT, gamma)
            c = of_medians(drafted, target_ms) / gamma
            c_ci = timing.interval(of_medians, (drafted / gamma, target_ms))
            t_draft = float(np.median(drafted))
        columns["c"].append(c)
        columns["c_ci"].append(c_ci)
        columns["v"].append(of_medians(call, target_ms))
        columns["v_ci"].append(timing.interval(of_medians, (call, target_ms)))
        columns["prefill_ms"].append(float(np.median(each(PREFILL, gamma))))
        columns["draft_ms"].append(t_draft)
    median_ci = timing.interval(lambda x: float(np.median(x)), (target_ms,))
    alone, *both = columns["prefill_ms"]  # with an encoder its run is most of it
    return columns | {
        "target_ms": float(np.median(target_ms)),
        "target_ms_ci": median_ci,
        "prefill_target_ms": alone,
        "prefill_draft_ms": float(np.median(both)) - alone,
    }


def inside(
    gammas: Sequence[int],
    times: tuple[dict, Sequence[float]],
    outputs: dict,
    sizes: tuple[int, int],
) -> dict:
    """c, v and the rest inside whole steps, and the overhead (`specjax.bench.inside`).

    times: seconds, and the ms before the first step by gamma. outputs: by gamma and
    index. sizes: how many batches are measured, and how many others follow them.
    """
    (seconds, prefill), (count, others) = times, sizes
    pieces = min(sizes)

    def timed(gammas: Sequence[int], before: Sequence[float], indices: range) -> Timed:
        """Of each piece of these batches, [pieces, K]."""
        ms, steps = np.zeros((2, len(indices), len(gammas)))
        for at, gamma in enumerate(gammas):
            for row, i in enumerate(indices):
                ms[row, at] = 1e3 * np.median(seconds[DECODE, gamma, i]) - before[at]
                steps[row, at] = outputs[gamma, i].counts.calls.max()
        split = (np.array_split(x, pieces) for x in (ms, steps))
        return Timed(*(np.array([x.sum(0) for x in each]) for each in split))

    whole = timed(gammas, prefill, range(count))
    own = 0, *fitted(gammas)  # the target's: nothing is read for a draft
    alone = timed(own, prefill[:1] * len(own), range(count, count + others))
    return fit(gammas, whole, alone)
