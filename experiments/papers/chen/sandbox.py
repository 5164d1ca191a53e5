"""Runs a program that a model wrote, in a separate process with few permissions.

It has its own process group, a folder that is removed afterwards, and limits: CPU and
wall seconds, memory, sizes of files. `guard.py` sets them before the program begins,
and refuses what Python reports to it: sockets, other processes, and files elsewhere
that are written, moved or removed. On Linux the program has a namespace without a
network, where the kernel allows a user to have one. This stops accidents, which model
texts often cause, and not an attack: if you do not trust a model, run all of this in a
container.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

GUARD = Path(__file__).with_name("guard.py")
MOST_ERROR = 200  # characters of an error that are kept
KEPT = 2**14  # bytes of the end of what is written that are read


class Limits(NamedTuple):
    """The limits of one program.

    Attributes:
        seconds: the time of walltime and, rounded up, of CPU.
        memory_mib: MiB of memory that it may address.
        file_mib: MiB of each file that it writes.
        files: the number of files that may be open at once.
    """

    seconds: float = 5.0
    memory_mib: int = 512
    file_mib: int = 1
    files: int = 32


USUAL = Limits()


class Outcome(NamedTuple):
    """The outcome of a program.

    Attributes:
        passed: it ran to its end.
        why: "" or the last line of its error.
    """

    passed: bool
    why: str = ""


def run(program: str, limits: Limits = USUAL) -> Outcome:
    """Runs a Python program to its end, or until a limit stops it.

    It passes if it reaches its last line; `sys.exit`, errors and crashes prevent that.

    Raises:
        ValueError: the program is not text, or a limit is out of range.
    """
    check(program, limits)
    nonce = secrets.token_hex(16)  # which a program cannot guess
    with tempfile.TemporaryDirectory(prefix="specjax_") as home:
        folder = Path(home) / "work"
        folder.mkdir()
        source = folder / "program.py"
        source.write_text(program, encoding="utf-8")
        # Without the user's own packages.
        python = sys.executable, "-I", "-S", "-B", str(GUARD)
        command = [*without_network(), *python, str(source), *map(str, limits)]
        # Files, which have a limit, where pipes would fill this process.
        with open(f"{home}/out", "w+b") as out, open(f"{home}/errors", "w+b") as errors:
            with subprocess.Popen(
                command,
                cwd=folder,
                env={"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder)},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            ) as process:
                in_time = wait_or_kill(process, nonce, limits)
            written, printed = end_of_output(out), end_of_output(errors)
    if not in_time or process.returncode == -signal.SIGXCPU:
        return Outcome(False, f"stopped after {limits.seconds:g} s")
    if written.endswith(nonce):
        return Outcome(True)
    last = f"ended before its last line, {process.returncode}"
    return Outcome(False, (printed.splitlines() or [last])[-1][:MOST_ERROR])


def wait_or_kill(process: subprocess.Popen, nonce: str, limits: Limits) -> bool:
    """Waits for a process, then ends its whole group; returns whether it ended in
    time."""
    try:
        process.communicate(nonce.encode(), limits.seconds)
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return True


def end_of_output(file: BinaryIO) -> str:
    """Returns the end of a program's output."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - KEPT))
    return file.read().decode("utf-8", "replace").strip()


@cache
def without_network() -> Sequence[str]:
    """Returns the beginning of a command that runs without a network; [] where that is
    impossible.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    prefix = unshare, "--user", "--net", "--map-root-user"
    works = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if works.returncode == 0 else ()


def check(program: str, limits: Limits) -> None:
    """Raises ValueError for a program that is not text, or for limits out of range."""
    if not isinstance(program, str):
        raise ValueError(f"a program is a text; got {type(program).__name__}")
    try:
        program.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            "a program holds half a character: decode its tokens to whole ones"
        ) from None
    if min(limits) <= 0:
        raise ValueError(f"limits must be above 0; got {limits}")
