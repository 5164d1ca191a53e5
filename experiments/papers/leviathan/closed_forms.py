"""Rows that need no model: Table 1 and Figures 2, 3 and 4, by the closed forms.

alpha acceptance rate, gamma drafted tokens, c cost of a draft (Leviathan et al. 2023).
Figures keep their curves as lists over alpha; what is infinite is None there.
"""

from functools import partial

import numpy as np

from specjax.measure.row import Measurement
from specjax.theory import closed_forms

ALPHA = np.arange(0, 101) / 100


def table1(alpha: float, gamma: int) -> Measurement:
    """Operations and speed against the target alone at c = c_hat = 0 (Table 1)."""
    return _of(partial(_tradeoff, alpha, gamma))


def figure2(gamma: int | None) -> Measurement:
    """Expected tokens per call over alpha (Eq. 1); None is gamma without a limit."""
    return _of(partial(_expected_tokens, gamma))


def figure3(c: float) -> Measurement:
    """The best gamma over alpha < 1 at cost c > 0 (Section 3.5)."""
    return _of(partial(_best_gamma, c))


def figure4(gamma: int) -> Measurement:
    """Operations and speed over alpha at c = c_hat = 0 (Theorems 3.8 and 3.11)."""
    return _of(partial(_tradeoff, ALPHA, gamma))


def _of(run) -> Measurement:
    return Measurement(run, __name__)


def _tradeoff(alpha, gamma: int) -> dict:
    return {
        "alpha": _plain(alpha),
        "operations": _plain(closed_forms.operations_factor(alpha, gamma, 0)),
        "speed": _plain(closed_forms.walltime_factor(alpha, gamma, 0)),
    }


def _expected_tokens(gamma: int | None) -> dict:
    if gamma is None:  # 1 / (1 - alpha), which the oracle of Section 3.5 reaches
        tokens = closed_forms.oracle_factor(ALPHA, 0)
    else:
        tokens = closed_forms.expected_tokens(ALPHA, gamma)
    return {"alpha": _plain(ALPHA), "expected_tokens": _plain(tokens)}


def _best_gamma(c: float) -> dict:
    alpha = ALPHA[:-1]
    return {
        "alpha": _plain(alpha),
        "best_gamma": _plain(closed_forms.optimal_gamma(alpha, c)),
    }


def _plain(values):
    """Numbers that JSON can hold, rounded to what float64 rounding leaves certain."""
    if np.ndim(values):
        return [_plain(value) for value in values]
    return round(float(values), 12) if np.isfinite(values) else None
