"""Programs that a model might write end in the sandbox, whatever they do."""

import time

import pytest

from experiments.papers.chen import sandbox
from experiments.papers.chen.sandbox import Limits

SHORT = Limits(seconds=3, memory_mib=256)


def test_a_program_that_reaches_its_end_passes():
    assert sandbox.run("import math\nassert math.gcd(4, 6) == 2\nprint('ok')").passed


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
        ("import os; os.mkdir('/tmp/specjax_out')", "not in the sandbox: os.mkdir"),
        ("import os; os.remove(os.devnull)", "not in the sandbox: os.remove"),
        ("import socket; socket.socket()", "not in the sandbox: socket"),
        ("import os; os.fork()", "not in the sandbox: os.fork"),
        ("import os; os.system('true')", "not in the sandbox: os.system"),
        ("import subprocess; subprocess.run(['true'])", "not in the sandbox"),
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


def test_it_may_write_in_its_own_folder_which_is_gone_afterwards(tmp_path):
    written = "open('a', 'w').write('b')\nassert open('a').read() == 'b'\n"
    assert sandbox.run(written).passed
    assert not sandbox.run("open('a')").passed


def test_what_is_printed_is_not_taken_for_the_end():
    assert not sandbox.run("import sys\nprint(sys.orig_argv)\nraise SystemExit").passed


@pytest.mark.parametrize(
    ("program", "limits", "message"),
    [
        (None, Limits(), "a program is a text"),
        ("x = '\ud800'", Limits(), "half a character"),
        ("pass", Limits(seconds=0), "above 0"),
    ],
)
def test_what_cannot_run_is_refused(program, limits, message):
    with pytest.raises(ValueError, match=message):
        sandbox.run(program, limits)
