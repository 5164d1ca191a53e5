"""Measured and predicted speedups of whole texts, from the seconds in a record.

`speedup_from` computes every speed of a row from the row alone, with its interval: the
measured speed on `texts`, the gamma that was fastest on the `others`, and the speed
that the others predict by Theorem 3.8 of Leviathan et al. (2023):

    tokens per call / (v + c gamma + overhead), v = 1 and overhead = 0 in the paper.

Tokens per call is the expected number for the other texts, from their scores
(`theory.predict`). c and v were timed in separate loops. The overhead, one number for
all gammas, is the part of the others' step times beyond c and v. Intervals are over
texts, the largest source of variation; those of one prompt are one unit. Axes: K values
of gamma, N measured batches, R rounds, M other batches.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from specjax.theory import closed_forms

LEVEL = 0.95  # confidence level of the intervals
ERRORS = 2  # an overhead within this many standard errors of 0 is taken to be 0
SLACK = 0.05  # the clock's possible error, as a share of a target call
BEST = ("gamma", "c", "v", "overhead", "exp", "predicted", "predicted_ci")
BEST += ("speedup", "speedup_ci", "residual", "tokens_per_call")
BEST += ("speedup_same_length",)


def ratio(
    above: Sequence[np.ndarray], below: Sequence[np.ndarray]
) -> tuple[float, float | None]:
    """Returns a product of sums over texts, divided by another product of sums.

    Texts are resampled with all of their numbers together. The error is linear in each
    text's shares of the sums (the ratio estimator of Cochran 1977, Sampling Techniques,
    chapter 6).

    Args:
      above: arrays [N], one for each sum in the numerator.
      below: as many arrays [N], for the denominator.

    Returns:
      (value, standard error of its logarithm); the error is None if N < 2.
    """
    value = np.prod([x.sum() for x in above]) / np.prod([x.sum() for x in below])
    share = sum(x / x.sum() for x in above) - sum(x / x.sum() for x in below)
    count = len(share)
    if count < 2:
        return float(value), None
    return float(value), float(np.sqrt(count / (count - 1) * np.sum(share**2)))


def interval(value: float, error: float | None, count: int) -> list[float] | None:
    """Returns the 95 % interval by Student's t on the logarithm, for `count` texts.

    Among simulations of twelve texts, 92 to 95 % of these intervals contain the truth,
    compared with 89 to 92 % of percentile bootstraps and 88 to 96 % of BCa bootstraps.
    With two texts only half of either kind of bootstrap do. None if there is no error.
    """
    if error is None:
        return None
    reach = special.stdtrit(count - 1, (1 + LEVEL) / 2) * error
    return [float(value * np.exp(sign * reach)) for sign in (-1, 1)]


def speedup_from(row: dict) -> dict:
    """Returns every speed in `measured` of a walltime record, from its other fields.

    row: `timed`, `chosen_on`, `gamma`, `alpha`, `steps`, `tokens_per_call` and what was
    timed separately (`specjax.measure.timing`). Lists are parallel to `gamma`.
    """
    seconds, tokens = (
        np.array(row["timed"]["texts"][k]) for k in ("seconds", "tokens")
    )
    seconds = np.median(seconds, axis=-1)  # [K, N]
    result = {"seconds": seconds.sum(1).tolist(), "speedup": [], "speedup_ci": []}
    errors, spent, written = [], by_prompt(row, seconds), by_prompt(row, tokens)
    for times, many in zip(spent, written, strict=True):
        value, error = ratio((spent[0], many), (times, written[0]))
        result["speedup"].append(value)
        result["speedup_ci"].append(interval(value, error, len(times)))
        errors.append(error)
    before = seconds.shape[1] * np.array(row["prefill_ms"])
    steps = (1e3 * seconds.sum(1) - before) / row["steps"]
    result["step_ms"] = steps.tolist()
    result["speedup_same_length"] = same_length(row, tokens, steps)
    result |= overheads(row) | predictions(row)
    result["residual"] = [
        None if predicted is None else predicted / speed - 1
        for predicted, speed in zip(result["predicted"], result["speedup"], strict=True)
    ]
    result["exp"] = [
        None  # Theorem 3.8 is for chains only
        if gamma and row.get("siblings")
        else closed_forms.walltime_factor(min(row["alpha"], 1.0), gamma, c or 0.0)
        for gamma, c in zip(row["gamma"], row["c"], strict=True)
    ]
    at, whole = index_of_best(row), row | result
    result |= {f"best_{name}": whole[name][at] for name in BEST}
    error = errors[at]
    result["best_speedup_se"] = error and result["best_speedup"] * error
    return result


def by_prompt(row: dict, values: np.ndarray) -> np.ndarray:
    """Returns numbers of the measured texts, [K, N], summed over the texts of each
    prompt, which are alike; unchanged if each text has its own prompt, if all have the
    same one, or for batches of several texts."""
    count, prompts = values.shape[1], row.get("prompts", 1)
    if row.get("batch", 1) > 1 or not 1 < prompts < count:
        return values
    owner = np.arange(count) % prompts
    return np.array([np.bincount(owner, each) for each in values])


def same_length(row: dict, tokens: np.ndarray, step_ms: np.ndarray) -> list[float]:
    """Returns the measured speeds [K], corrected for texts of different lengths.

    At temperatures above 0 both ways write texts of one law, but not the same texts:
    twelve of them may be 38 tokens long on average without a draft and 21 with one.
    Reading the prompt is then a larger part of a short text's time, which is no
    property of the draft. Here each way has its own time of a step, tokens a call and
    prefill, and both have the mean length of their texts. At temperature 0 it is the
    measured speed.

    tokens: [K, N]. step_ms: [K].
    """
    prefill, calls = np.array(row["prefill_ms"]), np.array(row["steps"])
    token_ms = step_ms * calls / tokens.sum(1)
    length = (tokens[0].mean() + tokens.mean(1)) / 2
    alone = prefill[0] + length * token_ms[0]
    return (alone / (prefill + length * token_ms)).tolist()


def other_texts(row: dict, name: str) -> np.ndarray:
    """Returns a field of the texts other than the measured ones, [K, M]; of the
    measured ones if there are no others."""
    if row["chosen_on"]:
        return np.array(row["timed"]["others"][name], np.float64)
    seconds = np.array(row["timed"]["texts"][name], np.float64)
    return np.median(seconds, axis=-1) if name == "seconds" else seconds


def index_of_best(row: dict) -> int:
    """Returns the index in `gamma` with the least time per token on the other texts."""
    token = other_texts(row, "seconds").sum(1) / other_texts(row, "tokens").sum(1)
    return 1 + int(np.argmin(token[1:]))


def overheads(row: dict) -> dict:
    """Returns the time of a step beyond its draft and its target call, with standard
    errors.

    It is measured on the steps of the other texts, in units of the target call at gamma
    = 0; the errors are over texts.
    """
    seconds, steps = other_texts(row, "seconds"), other_texts(row, "steps")
    prefill = np.array(row["prefill_ms"])[:, None]
    each = (1e3 * seconds - prefill) / steps / row["target_ms"]  # [K, M]
    weight = steps / steps.sum(1, keepdims=True)
    mean = (weight * each).sum(1)
    parts = step_costs(row)
    count = steps.shape[1]
    spread = weight * (each - mean[:, None])
    error = np.sqrt(count / max(count - 1, 1) * np.sum(spread**2, axis=1))
    return {
        "overhead": (mean - parts).tolist(),
        "overhead_se": error.tolist() if count > 1 else [None] * len(parts),
    }


def step_costs(row: dict) -> np.ndarray:
    """Returns v + c gamma, [K], where v and c were timed separately."""
    pairs = zip(row["gamma"], row["c"], row["v"], strict=True)
    return np.array([v + gamma * (c or 0.0) for gamma, c, v in pairs])


def predictions(row: dict) -> dict:
    """Returns the speeds that the other texts predict; None where no prediction is
    possible.

    The interval reflects their acceptances, and not the error of the clock.
    """
    gammas = row["gamma"]
    nothing = [None] * len(gammas)
    names = "expected_tokens_per_call", "predicted", "predicted_ci"
    result: dict[str, list] = {name: list(nothing) for name in names}
    expected = row["timed"]["others"]["expected_steps"]
    if expected is None or not row["chosen_on"]:
        return result
    expected, tokens = np.array(expected), other_texts(row, "steps")[0]
    rest = overheads(row)["overhead"]
    step = step_costs(row) + [rest[0], *[np.mean(rest[1:])] * (len(gammas) - 1)]
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
    """Returns the reasons to doubt a row, one line each; [] for older records."""
    if "chosen_on" not in row:
        return []
    lines, many = [], row["texts"] + row["others"]
    if row["chosen_on"] < row["others"]:  # the texts of a single round
        lines.append(
            f"{row['prompts']} prompts give only {row['chosen_on']} texts besides the"
            f" {row['texts']} that are measured; gamma is chosen and the speed is"
            f" predicted from those texts: give at least {many} prompts"
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
            f"overhead is below 0 at gamma = {', '.join(low)}, but no step takes less"
            " time than its draft and its target call: measure again with more rounds"
        )
    return lines
