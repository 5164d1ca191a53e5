"""Completions run in a sandbox, and those that pass are counted."""

import json
import time

import pytest

from experiments.papers.chen import humaneval, rows, sandbox
from experiments.papers.chen.sandbox import Limits, Outcome
from experiments.tasks import Task
from specjax.prompts import Prompts
from tests.experiments.papers.test_decoders import PROBLEM

ADD = humaneval.Problem(**PROBLEM)


def test_a_completion_ends_where_something_else_begins():
    assert humaneval.first_function("    a\n    b\n\ndef c():\n") == "    a\n    b\n"
    assert humaneval.first_function("    a\nclass B") == "    a"
    assert humaneval.first_function("    print(1)") == "    print(1)"


def test_right_completions_pass_and_wrong_ones_tell_why():
    texts = ["    return a + b\n\ndef f(:", "    return a - b", "    return c"]
    right, wrong, broken = humaneval.run_tests([ADD], texts)
    assert right.passed
    assert (wrong.why, broken.why.split(":")[0]) == ("AssertionError", "NameError")


@pytest.mark.parametrize("lines", [None, (1,)])
def test_a_completion_is_judged_by_the_problem_of_its_prompt(lines, tmp_path):
    path = tmp_path / "problems.jsonl"
    other = {**PROBLEM, "test": "def check(f):\n    assert f(1, 2) == -1"}
    path.write_text(f"{json.dumps(PROBLEM)}\n{json.dumps(other)}\n")
    task = Task(Prompts([[1]]), [], (path,), lines)
    it = rows.score_by_tests(["    return a + b"], task, None)
    assert it["pass1"] == (lines is None)


def test_pass_at_1_is_a_mean_over_problems():
    """Two problems have two texts each: half of the first's pass, and all of the
    second's."""
    outcomes = [Outcome(x, "" if x else "TypeError: x") for x in (1, 1, 0, 1)]
    it = humaneval.pass_at_1(outcomes, 2)
    assert it["pass1"] == 0.75 and it["pass1_se"] == pytest.approx(0.25)
    assert it["why_not"] == {"TypeError": 1}


WRONG = [
    ({"prompt": "x", "entry_point": "f"}, "no field 'test'"),
    ({**PROBLEM, "entry_point": "f(); import os"}, "must be a function's name"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_a_line_that_is_no_problem_is_named(line, message, tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(ValueError, match=f"line 1.*{message}"):
        humaneval.problems(path)


SHORT = Limits(seconds=3, memory_mib=256)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("assert 1 == 2, 'so it is'", "AssertionError: so it is"),
        ("def f(:", "SyntaxError"),
        ("import sys; sys.exit(0)", "ended before its last line"),
        ("import os; os._exit(0)", "ended before its last line"),
        ("x = bytearray(2**30)", "MemoryError"),
        ("open('big', 'wb').write(b'0' * 2**22)", "File too large"),
        ("while True: print('0' * 2**20)", "File too large"),
        ("open('/tmp/specjax_out', 'w')", "not in the sandbox: writing"),
        ("import os; os.remove(os.devnull)", "not in the sandbox: os.remove"),
        ("import socket; socket.socket()", "not in the sandbox: socket"),
        ("import os; os.system('true')", "not in the sandbox: os.system"),
        ("import ctypes", "not in the sandbox: ctypes"),
        ("def f():\n    f()\nf()", "RecursionError"),
        ("print(input())", "EOFError"),
    ],
)
def test_a_program_that_does_not_tells_why(program, why):
    outcome = sandbox.run(program, SHORT)
    assert not outcome.passed and why in outcome.why


@pytest.mark.parametrize("program", ["while True: pass", "import time; time.sleep(60)"])
def test_a_program_without_an_end_is_stopped(program):
    begun = time.monotonic()
    outcome = sandbox.run(program, Limits(seconds=1))
    assert outcome.why == "stopped after 1 s" and time.monotonic() - begun < 10


def test_a_program_that_reaches_its_end_passes_and_leaves_nothing():
    """A program may write in its own folder; what it prints does not count as its
    end."""
    written = "open('a', 'w').write('b')\nassert open('a').read() == 'b'\n"
    assert sandbox.run(written).passed
    assert not sandbox.run("open('a')").passed
    assert not sandbox.run("import sys\nprint(sys.orig_argv)\nraise SystemExit").passed


REFUSED = [
    (None, Limits(), "a program is a text"),
    ("x = '\ud800'", Limits(), "half a character"),
    ("pass", Limits(seconds=0), "above 0"),
]


@pytest.mark.parametrize(("program", "limits", "message"), REFUSED)
def test_what_cannot_run_is_refused(program, limits, message):
    with pytest.raises(ValueError, match=message):
        sandbox.run(program, limits)
