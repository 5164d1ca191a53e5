"""How fast whole texts were and would be, from the seconds that a record keeps.

`speedup_from` gives every number of speed of a row from the row alone, with its
interval: what was measured of `texts`, the gamma that `others` were fastest with, and
what the others foretell of the texts by Theorem 3.8 of Leviathan et al. (2023):

    tokens a call / (v + c gamma + overhead), v = 1 and overhead = 0 in the paper.

Tokens a call are those that the scored others are expected to take (`theory.predict`),
c and v were timed in loops of their own, and the overhead, one number for all gammas,
is what the others' steps took beyond their c and v. Intervals are over texts, which
differ most. Axes: K values of gamma, N batches that are measured, R rounds, M other
batches.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from specjax.theory import closed_forms

LEVEL = 0.95  # of the intervals
ERRORS = 2  # standard errors within which an overhead is taken to be 0
SLACK = 0.05  # of a target call, by which the clock alone may be wrong
BEST = ("gamma", "c", "v", "overhead", "exp", "predicted", "predicted_ci")
BEST += ("speedup", "speedup_ci", "residual", "tokens_per_call")


def ratio(
    above: Sequence[np.ndarray], below: Sequence[np.ndarray]
) -> tuple[float, float | None]:
    """A product of sums over texts, divided by others: (value, error of its logarithm).

    above, below: as many arrays of one length [N]. Texts are drawn, all their numbers
    together; the error is linear in the shares that each text has of the sums (the
    ratio estimator of Cochran 1977, Sampling Techniques, chapter 6), None of one text.
    """
    value = np.prod([x.sum() for x in above]) / np.prod([x.sum() for x in below])
    share = sum(x / x.sum() for x in above) - sum(x / x.sum() for x in below)
    count = len(share)
    if count < 2:
        return float(value), None
    return float(value), float(np.sqrt(count / (count - 1) * np.sum(share**2)))


def interval(value: float, error: float | None, count: int) -> list[float] | None:
    """95 % by Student's t on the logarithm, of `count` texts.

    Of twelve simulated texts 92 to 95 % hold the truth, of a percentile bootstrap 89 to
    92 %, of a BCa one 88 to 96 %; of two, half of either bootstrap.
    """
    if error is None:
        return None
    reach = special.stdtrit(count - 1, (1 + LEVEL) / 2) * error
    return [float(value * np.exp(sign * reach)) for sign in (-1, 1)]


def speedup_from(row: dict) -> dict:
    """Every number of speed of `measured` of walltime, from what else it holds.

    row: `timed`, `chosen_on`, `gamma`, `alpha`, `steps`, `tokens_per_call` and what
    was timed apart (`specjax.measure.timing`). Lists are parallel to `gamma`.
    """
    seconds, tokens = (
        np.array(row["timed"]["texts"][k]) for k in ("seconds", "tokens")
    )
    seconds = np.median(seconds, axis=-1)  # [K, N]
    result = {"seconds": seconds.sum(1).tolist(), "speedup": [], "speedup_ci": []}
    errors = []
    for times, many in zip(seconds, tokens, strict=True):
        value, error = ratio((seconds[0], many), (times, tokens[0]))
        result["speedup"].append(value)
        result["speedup_ci"].append(interval(value, error, len(times)))
        errors.append(error)
    before = seconds.shape[1] * np.array(row["prefill_ms"])
    steps = (1e3 * seconds.sum(1) - before) / row["steps"]
    result["step_ms"] = steps.tolist()
    result |= overheads(row) | predictions(row)
    result["residual"] = [
        None if foretold is None else foretold / speed - 1
        for foretold, speed in zip(result["predicted"], result["speedup"], strict=True)
    ]
    result["exp"] = [
        None  # of chains alone
        if gamma and row.get("siblings")
        else closed_forms.walltime_factor(min(row["alpha"], 1.0), gamma, c or 0.0)
        for gamma, c in zip(row["gamma"], row["c"], strict=True)
    ]
    at, whole = chosen(row), row | result
    result |= {f"best_{name}": whole[name][at] for name in BEST}
    error = errors[at]
    result["best_speedup_se"] = error and result["best_speedup"] * error
    return result


def others(row: dict, name: str) -> np.ndarray:
    """[K, M] of the other texts; of those measured where there are none."""
    if row["chosen_on"]:
        return np.array(row["timed"]["others"][name], np.float64)
    seconds = np.array(row["timed"]["texts"][name], np.float64)
    return np.median(seconds, axis=-1) if name == "seconds" else seconds


def chosen(row: dict) -> int:
    """Where in `gamma` the best is: a token of the other texts took least time."""
    token = others(row, "seconds").sum(1) / others(row, "tokens").sum(1)
    return 1 + int(np.argmin(token[1:]))


def overheads(row: dict) -> dict:
    """What a step takes beyond its drafts and its target call, over the latter's time
    at gamma = 0, and its standard error over texts: timed in the others' steps."""
    seconds, steps = others(row, "seconds"), others(row, "steps")
    prefill = np.array(row["prefill_ms"])[:, None]
    each = (1e3 * seconds - prefill) / steps / row["target_ms"]  # [K, M]
    weight = steps / steps.sum(1, keepdims=True)
    mean = (weight * each).sum(1)
    parts = costs(row)
    count = steps.shape[1]
    spread = weight * (each - mean[:, None])
    error = np.sqrt(count / max(count - 1, 1) * np.sum(spread**2, axis=1))
    return {
        "overhead": (mean - parts).tolist(),
        "overhead_se": error.tolist() if count > 1 else [None] * len(parts),
    }


def costs(row: dict) -> np.ndarray:
    """v + c gamma, [K], each timed apart."""
    pairs = zip(row["gamma"], row["c"], row["v"], strict=True)
    return np.array([v + gamma * (c or 0.0) for gamma, c, v in pairs])


def predictions(row: dict) -> dict:
    """The speed that the other texts foretell, None where nothing does.

    Its interval is that of their acceptance; the clock's error is not in it.
    """
    gammas = row["gamma"]
    nothing = [None] * len(gammas)
    names = "expected_tokens_per_call", "predicted", "predicted_ci"
    result = {name: list(nothing) for name in names}
    expected = row["timed"]["others"]["expected_steps"]
    if expected is None or not row["chosen_on"]:
        return result
    expected, tokens = np.array(expected), others(row, "steps")[0]
    rest = overheads(row)["overhead"]
    step = costs(row) + [rest[0], *[np.mean(rest[1:])] * (len(gammas) - 1)]
    prefill = np.array(row["prefill_ms"]) / row["target_ms"]
    for at in range(len(gammas)):
        calls = tokens.sum() / expected[at].sum()
        result["expected_tokens_per_call"][at] = float(calls)
        if not at or min(step[0], step[at]) <= 0:
            continue
        alone = tokens * step[0] + prefill[0]
        speed, error = ratio([alone], [expected[at] * step[at] + prefill[at]])
        result["predicted"][at] = speed
        result["predicted_ci"][at] = interval(speed, error, len(tokens))
    return result


def doubts(row: dict) -> list[str]:
    """What is wrong with a row, a line each; nothing of a row from before."""
    if "chosen_on" not in row:
        return []
    lines, many = [], row["texts"] + row["others"]
    if row["chosen_on"] < row["others"]:  # those of a single round
        lines.append(
            f"{row['prompts']} prompts give {row['chosen_on']} texts beside the"
            f" {row['texts']} that are measured, to choose gamma and to predict by:"
            f" give at least {many} prompts"
        )
    low = [
        f"{gamma} ({rest:+.3f})"
        for gamma, rest, error in zip(
            row["gamma"], row["overhead"], row["overhead_se"], strict=True
        )
        if rest < -max(SLACK, ERRORS * (error or 0.0))
    ]
    if low:
        lines.append(
            f"overhead is below 0 at gamma = {', '.join(low)}: no step takes less than"
            " its draft and its target call; measure again, with more rounds"
        )
    return lines
