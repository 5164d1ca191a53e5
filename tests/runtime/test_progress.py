"""Progress bars look right on a terminal and in a log."""

import functools
import io
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from specjax.runtime import console, progress

CODE = re.compile(r"\x1b\[(\??\d*)([A-Za-z])|([^\x1b\r\n]+)|(.)", re.DOTALL)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch) -> Terminal:
    """Standard error and output at once, of 80 columns; each bar is drawn each time."""
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", console.Stream(stream, "standard error"))
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(progress, "DRAWN", 0)
    fresh = functools.cache(progress.board.__wrapped__)
    monkeypatch.setattr(progress, "board", fresh)
    return stream


def screen(written: str) -> list[str]:
    """Returns the lines that remain on the screen."""
    lines, at, column = [""], 0, 0
    for number, code, text, other in CODE.findall(written):
        if text:
            lines[at] = lines[at][:column].ljust(column) + text
            column += len(text)
        elif code == "K":
            lines[at] = ""
        elif code == "A":
            at -= int(number)
        elif other:
            column, at = 0, at + (other == "\n")
            lines += [""] * (at + 1 - len(lines))
    return lines


def test_a_terminal_has_bars_while_they_run_and_then_what_was_printed(monkeypatch):
    terminal = open_terminal(monkeypatch)
    print("before")
    for outer in progress.track("ab", "outer [red]"):
        for inner in progress.track(range(3), "inner", unit="rows"):
            (*_, above, below) = screen(terminal.getvalue())
            assert re.match(rf"outer \[red\] .* {'ab'.index(outer)} of 2 ", above)
            assert re.match(rf"inner .* {inner} of 3 rows 0:00:00 left", below)
    with progress.Bar("known") as bar, progress.Bar("other"):
        bar.total = 9
        bar.update(4)
        assert re.match("known .* 4 of 9 ", screen(terminal.getvalue())[-2])
        with bar.paused():
            print("first\nsecond")
    left = [*filter(None, screen(terminal.getvalue()))]
    assert left == ["before", "first", "second"]
    cursor = re.findall(r"\x1b\[\?25.", terminal.getvalue())
    assert cursor[-1] == "\x1b[?25h"


def test_a_log_has_lines_of_what_is_kept(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOGGED", 0)
    assert [*progress.track([3, 4], "brief")] == [3, 4]
    with progress.Bar("one", 2000, "steps", done=1000, kept=True) as bar:
        bar.label = "one, loss 3"
        bar.update(1500)
        with bar.paused():
            print("seen")
    assert [*progress.track((x for x in "a"), "two", kept=True)] == ["a"]
    told = capsys.readouterr()
    assert told.out == "seen\n"
    assert told.err == (
        "one, loss 3: 1,500 of 2,000 steps, 0:00:00\n" * 2 + "two: 1, 0:00:00\n" * 2
    )


ENDLESS = f"""
import itertools, runpy, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
console, progress = map(runpy.run_path, ({console.__file__!r}, {progress.__file__!r}))
assert "rich" not in sys.modules
def main():
    with console["handle_stops"]():
        for _ in progress["track"](itertools.count(), "endless"):
            time.sleep(0.01)
console["command"](main)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_keeps_its_cursor_when_a_bar_is_stopped(ending):
    ours, theirs = pty.openpty()
    own = {**os.environ, "TERM": "xterm"}
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, stderr=theirs, env=own) as process:
        os.close(theirs)
        told = b""
        while b"endless" not in told:
            told += os.read(ours, 9999)
        process.send_signal(ending)
        while b"nothing was saved\r\n" not in told:
            told += os.read(ours, 9999)
    os.close(ours)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[ending]
    assert told.rindex(b"\x1b[?25h") > told.rindex(b"\x1b[?25l")
    assert told.endswith(b"\nstopped; nothing was saved\r\n")
