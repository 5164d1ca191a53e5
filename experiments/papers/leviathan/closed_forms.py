"""The rows that need no model: Table 1 and Figures 2, 3 and 4, by the closed forms.

alpha acceptance rate, gamma drafted tokens, c cost of a draft (Leviathan et al. 2023).
Figures keep their curves as lists over alpha; an infinite value is None there.
"""

from functools import partial

import numpy as np

from specjax.measure.row import Measurement
from specjax.theory import closed_forms

ALPHA = np.arange(0, 101) / 100


def table1(alpha: float, gamma: int) -> Measurement:
    """Returns the operations and the speed relative to the target alone, at c = c_hat =
    0 (Table 1).
    """
    return Measurement(partial(_tradeoff, alpha, gamma), __name__)


def figure2(gamma: int | None) -> Measurement:
    """Returns the expected tokens per call over alpha (Eq. 1); a gamma of None is
    unlimited.
    """
    return Measurement(partial(_expected_tokens, gamma), __name__)


def figure3(c: float) -> Measurement:
    """Returns the best gamma over alpha < 1 at cost c > 0 (Section 3.5)."""
    return Measurement(partial(_best_gamma, c), __name__)


def figure4(gamma: int) -> Measurement:
    """Returns operations and speed over alpha at c = c_hat = 0 (Theorems 3.8 and
    3.11).
    """
    return Measurement(partial(_tradeoff, ALPHA, gamma), __name__)


def _tradeoff(alpha, gamma: int) -> dict:
    operations = closed_forms.operations_factor(alpha, gamma, 0)
    speed = closed_forms.walltime_factor(alpha, gamma, 0)
    return _to_json(alpha=alpha, operations=operations, speed=speed)


def _expected_tokens(gamma: int | None) -> dict:
    if gamma is None:  # 1 / (1 - alpha), which the oracle of Section 3.5 reaches
        return _to_json(
            alpha=ALPHA, expected_tokens=closed_forms.oracle_factor(ALPHA, 0)
        )
    tokens = closed_forms.expected_tokens(ALPHA, gamma)
    return _to_json(alpha=ALPHA, expected_tokens=tokens)


def _best_gamma(c: float) -> dict:
    alpha = ALPHA[:-1]
    return _to_json(alpha=alpha, best_gamma=closed_forms.optimal_gamma(alpha, c))


def _to_json(**numbers) -> dict:
    """Returns numbers as JSON can hold them, rounded to the digits that float64 leaves
    certain.
    """

    def rounded_or_none(x):
        if np.ndim(x):
            return [rounded_or_none(each) for each in x]
        return round(float(x), 12) if np.isfinite(x) else None

    return {name: rounded_or_none(x) for name, x in numbers.items()}
