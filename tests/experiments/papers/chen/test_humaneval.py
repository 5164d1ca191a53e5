"""What is run of a completion, and how those that pass are counted."""

import json

import pytest

from experiments.papers.chen import humaneval
from experiments.papers.chen.sandbox import Outcome
from tests.support.decoder_files import PROBLEM

ADD = humaneval.Problem(**PROBLEM)


def test_a_completion_ends_where_something_else_begins():
    assert humaneval.first_function("    a\n    b\n\ndef c():\n") == "    a\n    b\n"
    assert humaneval.first_function("    a\nclass B") == "    a"
    assert humaneval.first_function("    print(1)") == "    print(1)"


def test_right_completions_pass_and_wrong_ones_tell_why():
    texts = ["    return a + b\n\ndef f(:", "    return a - b", "    return c"]
    right, wrong, broken = humaneval.judged([ADD], texts)
    assert right.passed
    assert (wrong.why, broken.why.split(":")[0]) == ("AssertionError", "NameError")


def test_pass_at_1_is_a_mean_over_problems():
    """Two problems, two texts of each: the first half and all."""
    outcomes = [Outcome(x, "" if x else "TypeError: x") for x in (1, 1, 0, 1)]
    it = humaneval.pass_at_1(outcomes, 2)
    assert it["pass1"] == 0.75 and it["pass1_se"] == pytest.approx(0.25)
    assert it["why_not"] == {"TypeError": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "x", "entry_point": "f"}, "no field 'test'"),
        ({**PROBLEM, "entry_point": "f(); import os"}, "must be a function's name"),
    ],
)
def test_a_line_that_is_no_problem_is_named(line, message, tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(ValueError, match=f"line 1.*{message}"):
        humaneval.problems(path)
