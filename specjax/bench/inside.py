"""What a step costs inside whole texts, and the speeds predicted from that.

`theory.calibrate` says what follows from whole steps at two gammas; here are the texts
that are timed for it, and the numbers of a row. A prediction at a gamma contains no
time that was measured at it: only the baseline's, those of the two fitted gammas, and
the number of steps that the scored texts are expected to take (`theory.predict`).
Axes: K values of gamma, P pieces of the measurement, spread over it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from specjax import generate
from specjax.bench.costs import Pair
from specjax.drafters import nothing
from specjax.step import Decoder
from specjax.theory import calibrate, predict
from specjax.types import Params

RESAMPLES = 1000
ERRORS = 2  # standard errors within which a number is taken to be 0
PARTS = calibrate.Step._fields


class Timed(NamedTuple):
    """Steps of some texts: the milliseconds that they took, and how many, [P, K]."""

    ms: np.ndarray
    steps: np.ndarray

    def each(self) -> np.ndarray:
        """Milliseconds of one step, [K]."""
        return self.ms.sum(0) / self.steps.sum(0)

    def drawn(self, pieces: np.ndarray) -> "Timed":
        return Timed(self.ms[pieces], self.steps[pieces])


def fitted(gammas: Sequence[int]) -> tuple[int, ...]:
    """The two gammas that are fitted, or none where fewer than two draft."""
    return calibrate.chosen(gammas) or ()


def target_alone(pair: Pair, gamma: int) -> Callable:
    """The whole of a text by the target, which scores gamma tokens more in every call
    and keeps none: (prompt, request) -> `generate.Output`."""
    decoder = Decoder(pair.target.model, nothing.build(gamma), pair.verifier(0))
    loop = jax.jit(generate.build_loop(decoder, pair.slots))
    params = Params(pair.target.params)
    return lambda prompt, request: loop(params, prompt, request)


def fit(gammas: Sequence[int], whole: Timed, alone: Timed) -> dict:
    """The parts of a step and the overhead of every gamma, with standard errors.

    whole: steps at each of `gammas`, by the pair. alone: the target's own, at 0 and at
    the fitted gammas, of other texts. `inside` has `calibrate.parts` over the
    baseline's step, T1, and `overhead` what a step takes beyond its drafts and its
    target call, over T1. At gamma = 0 that compares one program with itself on other
    texts: it is 0 within its error, unless the machine was disturbed.

    A number is None where nothing can be said: with fewer than two gammas that draft,
    an error of one piece, a step for which noise left no time.
    """
    value = _values(gammas, whole.each(), alone.each())
    pieces, random = len(whole.ms), np.random.default_rng(0)
    error = [np.nan] * len(value)
    if pieces > 1:
        several = random.integers(pieces, size=(RESAMPLES, pieces))
        with np.errstate(all="ignore"):
            times = [(whole.drawn(each), alone.drawn(each)) for each in several]
            again = [_values(gammas, w.each(), a.each()) for w, a in times]
            error = np.std(again, axis=0)
    values, errors = (
        [float(x) if np.isfinite(x) else None for x in each] for each in (value, error)
    )
    count = len(PARTS)
    inside = dict(zip(PARTS, values[:count], strict=True))
    inside |= {f"{name}_se": x for name, x in zip(PARTS, errors[:count], strict=True)}
    return {
        "fitted": list(fitted(gammas)),
        "step_ms": whole.each().tolist(),
        "target_step_ms": alone.each().tolist(),
        "inside": None if inside["c"] is None else inside,
        "overhead": values[count:],
        "overhead_se": errors[count:],
    }


def _values(gammas: Sequence[int], whole: np.ndarray, alone: np.ndarray) -> list[float]:
    """The parts of a step, then the overhead of each gamma; nan where there is none."""
    two, unit = fitted(gammas), whole[0]
    absent = [np.nan] * len(PARTS)
    if not unit > 0:
        return absent + [np.nan] * len(gammas)
    overhead = [1 - alone[0] / unit]
    if not two:
        return [*absent, *overhead, *[np.nan] * (len(gammas) - 1)]
    at = [list(gammas).index(gamma) for gamma in two]
    step = calibrate.parts(two, whole[at] / unit, alone[1:] / unit)
    overhead += [
        time / unit - gamma * step.c - step.v(gamma)
        for gamma, time in zip(gammas[1:], whole[1:], strict=True)
    ]
    return [*step, *overhead]


def steps(row: dict) -> list[float]:
    """Milliseconds of a whole step of the texts that are measured, at every gamma."""
    before = row["texts"] // row["batch"] * np.array(row["prefill_ms"])
    return ((1e3 * np.array(row["seconds"]) - before) / row["steps"]).tolist()


def speeds(row: dict) -> dict:
    """The speed at every gamma that was not fitted, and how far off it is.

    row: `measured` of walltime, of any age. Lists are parallel to its `gamma`, None at
    0, at the fitted gammas, and where calls or times tell nothing.
    """
    gammas, count = row["gamma"], row["texts"] // row["batch"]
    two, expected = fitted(gammas), row["predicted_steps"]
    nothing = [None] * len(gammas)
    result = {"fitted": list(two), "predicted": nothing, "residual": nothing}
    if not two or None in expected:
        return result
    whole, before = steps(row), count * np.array(row["prefill_ms"])
    at = [gammas.index(gamma) for gamma in two]
    cost = calibrate.line(two, [whole[i] for i in at])
    if row.get("inside"):
        cost = calibrate.Step(*(whole[0] * row["inside"][name] for name in PARTS))
    prefill = before[at].mean()  # it does not know gamma

    def speed(gamma: int, calls: float) -> float | None:
        if gamma in (0, *two) or min(cost.at(gamma), whole[0]) <= 0:
            return None
        drafted = predict.Cost(v=cost.at(gamma), prefill=prefill)
        alone = predict.Cost(v=whole[0], prefill=before[0])
        return predict.speedup(expected[0], calls, gamma, drafted, alone)

    predicted = list(map(speed, gammas, expected))
    pairs = zip(predicted, row["speedup"], strict=True)
    return result | {
        "predicted": predicted,
        "residual": [p and p / s - 1 for p, s in pairs],
    }


def apart(row: dict) -> list[tuple[int, float | None, float | None]]:
    """(gamma, c, v) at the fitted gammas: how much more each is, timed apart, than
    inside a step, as a share of the latter; None where that is not above 0."""

    def more(timed: float, inside: float) -> float | None:
        return timed / inside - 1 if inside > 0 else None

    step = calibrate.Step(*(row["inside"][name] for name in PARTS))
    at = [(gamma, row["gamma"].index(gamma)) for gamma in row["fitted"]]
    return [
        (gamma, more(row["c"][i], step.c), more(row["v"][i], step.v(gamma)))
        for gamma, i in at
    ]


def doubts(row: dict) -> list[str]:
    """What the parts of a step show to be wrong, a line each: nothing where they add
    up. At gamma > 0 an overhead is wrong that is below 0 by more than its error."""
    lines = []
    overhead, error = row["overhead"][0], row["overhead_se"][0]
    if overhead is not None and error and abs(overhead) > ERRORS * error:
        lines.append(
            f"overhead at gamma = 0 is {overhead:+.3f} ± {error:.3f} and should be 0:"
            " other work disturbed the clock; measure again, with more rounds"
        )
    inside = row["inside"]
    if inside and inside["rest_se"] and inside["rest"] < -ERRORS * inside["rest_se"]:
        lines.append(
            f"overhead is below 0: a step takes {inside['rest']:+.3f} ±"
            f" {inside['rest_se']:.3f} beyond its parts and should take no less than"
            " they do: c or v is too large"
        )
    elif below := below_zero(row):
        lines.append(
            f"overhead is below 0 at gamma = {', '.join(below)}: no step takes less"
            " than its draft and its target call; measure again, with more rounds"
        )
    negative = [x for x in row["overhead"] if x is not None and x < 0]
    if negative and not any(row["overhead_se"]):
        lines.append(
            "an overhead is below 0 and its error is not known: measure two batches of"
            " texts or more"
        )
    return lines


def below_zero(row: dict) -> list[str]:
    """The overheads of drafting gammas that are below 0 by more than their error."""
    each = zip(row["gamma"], row["overhead"], row["overhead_se"], strict=True)
    return [
        f"{gamma} ({overhead:+.3f} ± {error:.3f})"
        for gamma, overhead, error in each
        if gamma and overhead is not None and error and overhead < -ERRORS * error
    ]
