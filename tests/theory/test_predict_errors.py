"""What cannot be predicted from is refused in one line."""

import itertools

import numpy as np
import pytest

from specjax.theory import predict
from specjax.theory.predict import Cost


def test_probabilities_that_are_none_are_errors():
    for p_x, q_x in (([0.5], [0.5, 0.1]), ([], []), (0.5, 0.5), ([[0.5]], [[0.5]])):
        with pytest.raises(ValueError, match=r"must both be \[N\]"):
            predict.accept_probability(p_x, q_x)
    for p_x in (0, -0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"p_x must be in \(0, 1\]"):
            predict.accept_probability([p_x], [0.5])
    for q_x in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"q_x must be in \[0, 1\]"):
            predict.accept_probability([0.5], [q_x])
    assert predict.accept_probability([1 + 1e-7], [1 + 1e-6]) == 1  # float32 sums


@pytest.mark.parametrize(
    "call",
    [
        lambda accept, gamma: predict.expected_calls(accept, [1, gamma]),
        predict.calls_law,
    ],
    ids=["expected_calls", "calls_law"],
)
def test_wrong_coins_and_gammas_are_errors(call):
    for accept in (0.5, [], [[0.5]]):
        with pytest.raises(ValueError, match=r"accept must be \[N\]"):
            call(accept, 2)
    for accept in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"accept must be in \[0, 1\]"):
            call([accept], 2)
    for gamma in (-1, 1.5, np.nan, np.inf):
        with pytest.raises(ValueError, match="gamma must be a whole number"):
            call([0.5], gamma)
    with pytest.raises(ValueError, match="pass \\[gamma\\]"):
        predict.expected_calls([0.5], 3)
    with pytest.raises(ValueError, match="calls_law takes one gamma"):
        predict.calls_law([0.5], [1, 2])


def test_what_is_no_law_is_an_error():
    with pytest.raises(ValueError, match="laws is empty"):
        predict.expected_steps([])
    for law in ([0.5, 0.4], [1.5, -0.5], [[1.0]], 1.0, [np.nan, 1], []):
        with pytest.raises(ValueError, match="sum to 1"):
            predict.expected_steps([[0.0, 1.0], law])


def test_times_and_counts_out_of_range_are_errors():
    for tokens in (0, -1, np.inf, np.nan):
        with pytest.raises(ValueError, match="tokens must be > 0"):
            predict.speedup(tokens, 1, 3, Cost())
    for steps in (24, 101, np.nan):
        with pytest.raises(ValueError, match="steps must be in"):
            predict.speedup(100, steps, 3, Cost())
    with pytest.raises(ValueError, match="gamma must be a whole number"):
        predict.speedup(100, 50, 0.5, Cost())
    for field, each in itertools.product(Cost._fields, (-0.1, np.inf, np.nan)):
        wrong = Cost(**{field: each})
        with pytest.raises(ValueError, match=rf"cost\.{field} must be finite"):
            predict.speedup(100, 50, 3, wrong)
        with pytest.raises(ValueError, match=rf"baseline\.{field} must be finite"):
            predict.speedup(100, 50, 3, Cost(), wrong)
    with pytest.raises(ValueError, match=r"v > 0"):
        predict.speedup(100, 50, 3, Cost(v=0))
