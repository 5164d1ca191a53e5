"""A meaningless argument is refused in one line that names a valid one."""

import itertools
import math

import numpy as np
import pytest

from specjax.theory import closed_forms as forms
from specjax.theory import estimate, predict
from specjax.theory.predict import Cost

NAN, INF = math.nan, math.inf
EVEN = np.full(4, 0.25)
ALPHA, C = r"alpha must be in \[0, 1\]", "must be finite and >= 0"
WHOLE, K = "gamma must be a whole number", "K must be a whole number"
PER_CALL, R = "tokens per call", "r must be in"
ACCEPT, N = r"accept must be in \[0, 1\]", r"must both be \[N\]"


def chen_speedup(r, K, t_draft, t_target):
    return forms.chen_speedup(r, K, t_draft=t_draft, t_target=t_target)


def speedup(tokens, steps, gamma, cost, baseline=None):
    return predict.speedup(tokens, steps, gamma, cost=cost, baseline=baseline)


def accelerated_c(c, c_lower):
    return forms.accelerated_c(c, alpha=0.8, gamma=4, c_lower=c_lower)


REFUSED = [
    *((ALPHA, forms.expected_tokens, (x, 3)) for x in (-0.01, 1.01, NAN, [0.5, 2])),
    (ALPHA, forms.walltime_factor, (2, 3, 0.1)),
    (ALPHA, forms.operations_factor, (2, 3, 0.1)),
    (ALPHA, forms.optimal_gamma, (2, 0.1)),
    (ALPHA, forms.minimum_gain, (2, 0.1)),
    (ALPHA, forms.oracle_factor, (2, 0.1)),
    *((WHOLE, forms.expected_tokens, (0.5, x)) for x in (-1, 0.05, INF, NAN)),
    (WHOLE, forms.walltime_factor, (0.5, 0.05, 7)),
    (WHOLE, forms.operations_factor, (0.5, 0.05, 7)),
    (WHOLE, forms.implied_alpha, (1, 0.05)),
    ("gamma must be >= 1", forms.implied_alpha, (1, 0)),
    (K, forms.chen_r, (1, -1)),
    (K, chen_speedup, (0.5, -1, 1, 10)),
    *((C, forms.walltime_factor, (0.5, 3, x)) for x in (-0.1, INF, NAN)),
    (C, forms.operations_factor, (0.5, 3, -0.1)),
    (C, forms.optimal_gamma, (0.5, -0.1)),
    (C, forms.minimum_gain, (0.5, -0.1)),
    (C, forms.oracle_factor, (0.5, -0.1)),
    (C, accelerated_c, (-0.1, 0.02)),
    (C, accelerated_c, (0.1, NAN)),
    (C, chen_speedup, (0.5, 3, -0.1, 10)),
    (C, chen_speedup, (0.5, 3, 1, NAN)),
    ("t_target must be > 0", chen_speedup, (0.5, 4, 1, 0)),
    *((R, chen_speedup, (x, 4, 1, 10)) for x in (0, 1.1, NAN)),
    *((PER_CALL, forms.implied_alpha, (x, 4)) for x in (0.99, 5.01, NAN)),
    (PER_CALL, forms.chen_r, (5.01, 4)),
    *(
        ("no gamma is optimal", forms.optimal_gamma, x)
        for x in ((1, 0.1), (1, 0), (0.5, 0), ([0.5, 1], 0.1))
    ),
    ("one vocabulary", forms.acceptance, (EVEN, np.ones(1))),  # would broadcast
    ("one vocabulary", forms.divergence, (0.5, 0.5)),
    ("rows of q", forms.acceptance, (EVEN, np.log(EVEN))),
    ("rows of p", forms.divergence, ([1.5, -0.5, 0, 0], EVEN)),
    *((N, estimate.rao_blackwell, x) for x in (([0.5], [0, 1]), ([], []))),
    (N, estimate.rao_blackwell, ([[0.5]], [[0]])),
    *(("beta must be in", estimate.rao_blackwell, ([x], [0])) for x in (1.1, -1, NAN)),
    ("accepted exceeds tested", estimate.counts, ([3, 1], [2, 9])),
    (r"accepted exceeds gamma \* calls", estimate.chen_r, ([9], [2], 4)),
    ("gamma must be >= 1", estimate.implied_alpha, ([0], [2], 0)),
    *(("nothing was measured", estimate.counts, ([x], [0])) for x in (0, -1, NAN)),
    (r"totals must be \[S\]", estimate.chen_r, ([[1, 2]], [[3, 4]], 4)),
    (N, predict.accept_probability, ([0.5], [0.5, 0.1])),
    *(("p_x must", predict.accept_probability, ([x], [0.5])) for x in (0, 1.1, NAN)),
    *(("q_x must", predict.accept_probability, ([0.5], [x])) for x in (-1, 1.1, NAN)),
    *((r"accept must be \[N\]", predict.calls_law, (x, 2)) for x in (0.5, [], [[0.5]])),
    *((ACCEPT, predict.calls_law, ([x], 2)) for x in (-0.1, 1.1, NAN)),
    (ACCEPT, predict.expected_calls, ([1.1], [2])),
    *((WHOLE, predict.calls_law, ([0.5], x)) for x in (-1, 1.5, NAN, INF)),
    (WHOLE, predict.expected_calls, ([0.5], [1, -1])),
    (r"pass \[gamma\]", predict.expected_calls, ([0.5], 3)),
    ("calls_law takes one gamma", predict.calls_law, ([0.5], [1, 2])),
    ("laws is empty", predict.expected_steps, ([],)),
    *(
        ("sum to 1", predict.expected_steps, ([[0.0, 1.0], x],))
        for x in ([0.5, 0.4], [1.5, -0.5], [[1.0]], 1.0, [NAN, 1], [])
    ),
    *(("tokens must be > 0", speedup, (x, 1, 3, Cost())) for x in (0, INF)),
    *(("steps must be in", speedup, (100, x, 3, Cost())) for x in (24, 101)),
    (WHOLE, speedup, (100, 50, 0.5, Cost())),
    ("v > 0", speedup, (100, 50, 3, Cost(v=0))),
]
for field, x in itertools.product(Cost._fields, (-0.1, INF, NAN)):
    wrong = Cost(**{field: x})
    told = f"{field} must be finite"
    REFUSED += [(rf"cost\.{told}", speedup, (100, 50, 3, wrong))]
    REFUSED += [(rf"baseline\.{told}", speedup, (100, 50, 3, Cost(), wrong))]


@pytest.mark.parametrize(("message", "function", "arguments"), REFUSED)
def test_what_means_nothing_is_refused(message, function, arguments):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
