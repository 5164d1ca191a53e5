"""A question, the criterion that decides it, and the verdict that its numbers give.

A verdict is a sentence made by code from a number, its error and a bound that was set
before. Axes: N texts, M tokens or calls.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

CLEAR = 2.0  # standard errors from the bound, for a verdict that stands alone
DRAWS = 300


class Question(NamedTuple):
    """An open question.

    Attributes:
        asked: the question.
        dropped_if: the criterion by which it is given up.
        expected: the prediction before anything was measured here.
    """

    asked: str
    dropped_if: str
    expected: str


def clear_errors(count: int) -> float:
    """Returns how many standard errors away from its bound a number must be, of `count`
    that are judged together.

    It is CLEAR for one, and keeps the probability that any of several passes by chance
    (Bonferroni).
    """
    normal = NormalDist()
    return -normal.inv_cdf(normal.cdf(-CLEAR) / count)


def judge(
    what: str,
    value: float,
    *,
    error: float | None,
    bound: float,
    most: bool = False,
    count: int = 1,
) -> str:
    """Returns the verdict on a share that must exceed `bound`, or, if `most`, stay
    below it.

    It survives or is killed where it is `clear_errors` of the row's `count` verdicts
    away from the bound, else it is undecided. A number that equals the bound without
    error is killed.
    """
    margin = bound - value if most else value - bound
    reach = clear_errors(count) * (error or 0.0)
    clear = margin > reach or margin <= -reach  # neither, where the error is nan
    word = "undecided" if not clear else "survives" if margin > 0 else "killed"
    sign = "<" if value < bound else ">" if value > bound else "="
    known = bool(error) and not np.isnan(error)
    value_text = f"{value:.2%}" + (f" ± {error:.2%}" if known else "")
    return f"{word}: {what} {value_text} {sign} {100 * bound:g}%"


def sum_by_text(values: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Returns the sums of values [M, ...] over each text, or other unit: [N, ...].

    Args:
        sequence: [M], the text or unit of each value (`texts.prompt_units`).
    """
    sums = np.zeros((sequence.max() + 1, *values.shape[1:]))
    np.add.at(sums, sequence, values)
    return sums


def bootstrap(
    statistic: Callable, totals: np.ndarray, draws: int = DRAWS
) -> tuple[float, float]:
    """Returns a statistic of the sum of `totals` [N, ...] over texts, and its bootstrap
    standard error.

    Texts, or other units, are drawn with replacement, all numbers of a text together.
    The error of one text is nan: nothing is known of it.
    """
    count = len(totals)
    if count < 2:
        return float(statistic(totals.sum(0))), np.nan
    rng = np.random.default_rng(0)
    weights = rng.multinomial(count, np.full(count, 1 / count), draws)
    again = [statistic(np.tensordot(weight, totals, 1)) for weight in weights]
    few = (count / (count - 1)) ** 0.5  # a draw of N texts varies by less than N texts
    return float(statistic(totals.sum(0))), few * float(np.std(again, ddof=1))
