"""Commands print to any console: one without some letters, one whose reader has left,
or a full disk.

Of whole processes, as more may be said while they end. The package around `console`
imports JAX, and stays out of them, so that each takes a moment.
"""

import collections
import json
import os
import re
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import specjax
from specjax import __main__
from specjax.configs import run as loop
from specjax.runtime import console

COMMAND = f"""
import sys, types
sys.modules["specjax"] = package = types.ModuleType("specjax")
package.__path__ = [{os.path.dirname(specjax.__file__)!r}]
from specjax.runtime import console
def main():
    for text in sys.argv[1:]:
        try:
            print(text * 10_000 if text == "x" else text, flush=text == "now")
        except OSError:
            sys.exit("taken for a file's")
    return 3
sys.exit(console.command(main))
"""
FULL = "stopped: standard output cannot be written (No space left on device)\n"


def print_texts(texts: list[str], out, **changed) -> tuple[int, str]:
    """Returns the exit code of a command that prints them to `out`, and its stderr."""
    command = [sys.executable, "-c", COMMAND, *texts]
    pipe = {"stderr": subprocess.PIPE, "text": True, **changed}
    process = subprocess.run(command, stdout=out, **pipe)
    return process.returncode, process.stderr


@pytest.fixture
def unread():
    """A pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


# In a buffer until the end, at once, and longer than the buffer.
@pytest.mark.parametrize("text", ["later", "now", "x"])
def test_what_cannot_be_written_ends_a_command_as_a_shell_expects(text, unread):
    assert print_texts([text], unread) == (console.CLOSED, "")
    with open("/dev/full", "w") as full:
        assert print_texts([text, "now"], full) == (1, FULL)


def test_letters_that_a_console_lacks_are_escaped(tmp_path):
    texts = ["naïve", "你", "half \udcff"]
    for encoding, written in {
        "ascii": "na\\xefve\n\\u4f60\nhalf \\udcff\n",
        "cp1252": "naïve\n\\u4f60\nhalf \\udcff\n",
        "utf-8": "naïve\n你\nhalf \\udcff\n",
    }.items():
        with open(tmp_path / encoding, "w+") as out:
            changed = {"env": {**os.environ, "PYTHONIOENCODING": encoding}}
            assert print_texts(texts, out, **changed) == (3, "")
        assert (tmp_path / encoding).read_bytes().decode(encoding) == written


def test_an_output_that_was_closed_is_not_the_others():
    closed = 'exec >&-; exec "$@"'
    command = ["sh", "-c", closed, "sh", sys.executable, "-c", COMMAND, "now"]
    process = subprocess.run(command, capture_output=True)
    assert (process.returncode, process.stderr) == (3, b"")


def test_every_command_prints_by_it(monkeypatch, unread):
    """`specjax NAME` runs each command so."""
    monkeypatch.setattr(console, "leave", sys.exit)
    with open(os.dup(unread), "w") as out, monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["specjax", "--version"])
        patched.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as stopped:
            __main__.main()
    assert stopped.value.code == console.CLOSED


def test_what_runs_is_told_line_by_line_and_turns_on_a_terminal(monkeypatch, capsys):
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=terminal: answer)
        with console.announce("Compiling"):
            print("apart")
        told = capsys.readouterr()
        assert told.out == "apart\n"
        assert re.search(r"Compiling \.\.\. \d+\.\d s\n$", told.err)
        assert ("\r" in told.err) == terminal


def test_a_document_is_alone_on_standard_output(capsys):
    with console.redirect_output(True):
        print("told")
    point = collections.namedtuple("Point", "x y")(float("inf"), np.arange(2))
    console.print_json({"point": point, 3: (np.float32(0.5), None), "é你": "\udcff"})
    printed = capsys.readouterr()
    assert printed.err == "told\n" and printed.out.isascii()  # whatever the console
    told = {"point": {"x": None, "y": [0, 1]}, "3": [0.5, None], "é你": "\udcff"}
    assert json.loads(printed.out) == told


LACKS = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.\nMore")


@pytest.mark.parametrize("error", [MemoryError(), LACKS])
def test_memory_that_is_too_little_is_one_line(error, monkeypatch, capsys):
    monkeypatch.setattr(console, "leave", sys.exit)
    with (
        pytest.raises(SystemExit) as stopped,
        console.handle_stops(lambda: "rest is kept"),
    ):
        raise error
    told = capsys.readouterr().err
    assert stopped.value.code == 1 and told.count("\n") == 1
    assert "ut of memory" in told and told.endswith("; rest is kept\n")
    with pytest.raises(SystemExit, match=r"error: a\.gin: .*ut of memory.*") as stopped:
        with loop.handle_stops():
            raise loop.RowError(f"a.gin: {error}") from error
    assert "\n" not in str(stopped.value)
    with pytest.raises(RuntimeError, match="mine"), console.handle_stops():
        raise RuntimeError("mine")


LACKING = f"""
import jax, runpy
with runpy.run_path({console.__file__!r})["handle_stops"]():
    try:
        jax.numpy.ones(2)
    except RuntimeError as error:
        raise ValueError("a row") from error
"""


def test_a_backend_that_jax_lacks_is_one_line():
    """This holds whatever asked for a device, and for errors that were raised from
    another."""
    own = os.environ | {"JAX_PLATFORMS": "nonsense"}
    command = [sys.executable, "-c", LACKING]
    done = subprocess.run(command, capture_output=True, text=True, env=own)
    told = r"JAX_PLATFORMS=nonsense: JAX has no such backend here .*: name another,.*\n"
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(told, done.stderr)


@pytest.mark.parametrize("lacks", [True, False])
def test_only_an_error_of_a_backend_is_taken_for_one(lacks, monkeypatch):
    """JAX's error for a GPU is an AssertionError without a message."""

    def devices() -> list:
        assert not lacks
        return []

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", devices)
    for error in (AssertionError(), RuntimeError("mine"), ValueError("mine")):
        said = console.explain_backend(error)
        seen = lacks and not isinstance(error, ValueError)
        assert (said is not None) == seen
        assert not seen or said.startswith("JAX_PLATFORMS=cuda: JAX has no such back")


@pytest.mark.parametrize(("asked", "code"), [("", 143), ("0", 0), ("soon", 143)])
def test_a_scheduler_says_what_a_stopped_command_ends_with(
    asked, code, monkeypatch, capsys
):
    monkeypatch.setenv(console.PREEMPTED, asked)
    monkeypatch.setattr(console, "leave", sys.exit)
    with (
        pytest.raises(SystemExit) as stopped,
        console.handle_stops(lambda: "it goes on"),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.code == code
    assert capsys.readouterr().err == "stopped; it goes on\n"
