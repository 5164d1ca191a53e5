"""What is repeated in a text, and alpha at the rest of it."""

import numpy as np
import pytest

from specjax.measure import scoring
from specjax.measure.scoring import RUN, Scores
from specjax.measure.texts import Text


def test_a_loop_is_marked_from_its_second_turn_on():
    once = np.arange(5)
    marks = scoring.repeated(np.tile(once, 4))
    # The first run that was there before begins at the second turn.
    assert marks.tolist() == [i >= 5 + RUN - 1 for i in range(20)]


def test_a_shorter_run_is_a_phrase():
    ids = np.concatenate([np.arange(RUN - 1), [90], np.arange(RUN - 1), [91]])
    assert not scoring.repeated(ids).any()
    assert scoring.repeated(np.append(ids[:-1], 90))[-1]
    assert not scoring.repeated(ids[:3]).any()


def text() -> Text:
    """One text that copies its prompt, and one that does not; padding after both."""
    loop = np.tile(np.arange(10), 3)[:26]
    fresh = np.arange(50, 76)
    tokens = np.stack([loop, fresh])
    padded = np.pad(tokens, ((0, 0), (0, 4)))
    return Text(padded, np.array([10, 20]), np.array([26, 24]))


def test_alpha_elsewhere_is_that_of_what_is_not_repeated():
    rows = text()
    inside = [i >= RUN - 1 for i in range(16)] + [False] * 4
    beta = np.where(inside, 0.9, 0.3)
    sequence = np.array([0] * 16 + [1] * 4)
    row = scoring.outside(rows, Scores(beta, beta, beta, sequence))
    assert row["repeated"] == pytest.approx(sum(inside) / 20)
    assert row["alpha_fresh"] == pytest.approx(0.3)
    assert scoring.outside(rows, None)["alpha_fresh"] is None


def test_a_text_that_only_repeats_has_no_alpha_elsewhere():
    tokens = np.tile(np.arange(4), 10)[None]
    rows = Text(tokens, np.array([20]), np.array([40]))
    beta = np.ones(20)
    row = scoring.outside(rows, Scores(beta, beta, beta, np.zeros(20, int)))
    assert row == {"repeated": 1.0, "alpha_fresh": None, "alpha_fresh_se": None}
