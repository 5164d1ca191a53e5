"""The behaviour of commands at their edges: flags, errors, output, and exit.

An error is one line. A command ends cleanly at Ctrl-C, when memory runs out, and when
its output can no longer be written. All commands of the package use this module."""

import argparse
import contextlib
import io
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TextIO

from specjax.runtime import foreign_names
from specjax.runtime.writing import FULL, write_error

# Exit codes that shells and schedulers expect.
STOPPED = 130  # Ctrl-C ended the command
TERMINATED = 143  # SIGTERM ended it; a scheduler then starts it again
PREEMPTED = "SPECJAX_PREEMPTED"  # a variable that replaces TERMINATED, such as by 0
CLOSED = 141  # nothing reads its output any more, as after `| head -1`


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line.

    A flag must be written in full, because a shortened one may be another command's
    flag."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False} | options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, others = self.parse_known_args(args, namespace)
        if others:
            self.error(self.explain_unknown(others))
        return known

    def explain_unknown(self, others: list[str]) -> str:
        """Returns the error message for arguments that the command does not have."""
        message = f"unrecognized arguments: {shorten(' '.join(others), 200)}"
        flags = [x for action in self._actions for x in action.option_strings]
        suggestions = [
            foreign_names.suggest_flag(each.partition("=")[0], flags)
            for each in others
            if each.startswith("-")
        ]
        suggestions = [*dict.fromkeys(filter(None, suggestions))]
        return f"{message}: write {', '.join(suggestions)}" if suggestions else message

    def error(self, message: str) -> NoReturn:
        """Prints the message as one line, whatever it contains, and exits with code
        2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    @contextlib.contextmanager
    def report_errors(self, *kinds: type[Exception]) -> Iterator[None]:
        """Turns errors that the user can fix (ValueError, OSError and `kinds`) into one
        line."""
        known: tuple[type[Exception], ...] = (ValueError, OSError, *kinds)
        try:
            yield
        except known as error:
            self.error(str(error))


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Returns the type of a flag: a whole number x with least <= x <= most."""

    def parse(text: str) -> int:
        return int(parse_bounded(int, text, least, most, name="a whole number"))

    return parse


def number(least: float, most: float, above: bool = False) -> Callable[[str], float]:
    """Returns the type of a flag: least <= x <= most, or with `above` least < x <
    most."""

    def parse(text: str) -> float:
        return parse_bounded(float, text, least, most, name="a number", above=above)

    return parse


def parse_bounded(
    kind: type, text: str, least: float, most: float, *, name: str, above: bool = False
) -> float:
    """Returns the number in a text. Raises ArgumentTypeError, naming the bounds, for a
    number outside them."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if least <= value <= most and not (above and value in (least, most)):
        return value
    low, high = (f"{bound:g}" if kind is float else bound for bound in (least, most))
    bounds = f"at least {low} and at most {high}"
    bounds = f"above {low} and below {high}" if above else bounds
    raise argparse.ArgumentTypeError(f"must be {name}, {bounds}; got {shorten(text)!r}")


def shorten(text: str, most: int = 40) -> str:
    """Returns a text cut to `most` characters, so that it fits into a line."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def flag_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns the type of a flag from `parse`, whose ValueError becomes the error
    message."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def checked_text(check: Callable[[str], Any]) -> Callable[[str], str]:
    """Returns the type of a flag: the text itself, if `check` accepts it."""

    def keep(text: str) -> str:
        check(text)
        return text

    return flag_type(keep)


count = whole_number(1, 1_000_000)  # of texts, of tokens of one, of rows of a batch


def begin_line(label: str) -> None:
    """Prints the step that runs now. On a terminal `end_line` overwrites it."""
    print(f"{label} ...", end="\r" if sys.stdout.isatty() else " ", flush=True)


def end_line(label: str, outcome: str) -> None:
    """Prints the outcome of the step."""
    print(f"{label}: {outcome}" if sys.stdout.isatty() else outcome, flush=True)


@contextlib.contextmanager
def announce(label: str) -> Iterator[None]:
    """Prints a step on stderr, then its seconds; on a terminal with a spinner."""
    start, outcome, terminal = time.perf_counter(), "\n", sys.stderr.isatty()
    print(f"{label} ...", end="\r" if terminal else " ", file=sys.stderr, flush=True)
    try:
        with spinner(label) if terminal else contextlib.nullcontext():
            yield
        again = f"{label} ... " if terminal else ""
        outcome = f"{again}{time.perf_counter() - start:.1f} s\n"
    finally:
        print(outcome, end="", file=sys.stderr, flush=True)


def spinner(label: str) -> AbstractContextManager:
    """Returns a spinner with the seconds so far, on a line that disappears at the
    end."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    bar = Progress(
        SpinnerColumn(),
        text,
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(label, total=None)
    return bar


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json; see `print_document`."""
    of_json = "print one JSON document on standard output, all else on standard error"
    parser.add_argument("--json", action="store_true", help=of_json)


def print_document(wanted: bool, make: Callable[[], dict]) -> dict:
    """Returns the document that `make` returns. If `wanted`, nothing else goes to
    stdout."""
    with redirect_output(wanted):
        document = make()
    if wanted:
        print_json(document)
    return document


def redirect_output(wanted: bool) -> AbstractContextManager:
    """Sends standard output to standard error in the `with` block, where a document is
    wanted."""
    return (
        contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext()
    )


def print_json(document: Mapping) -> None:
    """Prints a document as one line of JSON."""
    print(to_json(document), flush=True)


def to_json(document: Mapping) -> str:
    """Returns a document as one line of JSON in ASCII, which every console can
    encode."""
    return json.dumps(to_plain(document), allow_nan=False)


def to_plain(value: Any) -> Any:
    """Returns a value converted to types of JSON.

    Named tuples become dictionaries, arrays become lists, and infinity and NaN become
    None."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(to_plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Unwritable(SystemExit):
    """The exit of a command whose output can no longer be written.

    why: a message; "" for a closed pipe, which is a usual end."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(status)
        self.why, self.status = why, status


class Stream:
    """Standard output or error, which accepts any text and survives the end of its
    reader.

    Characters that the console cannot encode are escaped. Where nothing can be written
    any more `Unwritable` is raised, once. It is not an OSError, because commands take
    that for an error of a file."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name = stream, name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        return self._guard(self.stream.write, text)

    def flush(self) -> None:
        self._guard(self.stream.flush)

    def _guard(self, do: Callable, *arguments: str) -> Any:
        try:
            return do(*arguments)
        except OSError as error:
            # The rest of the buffer and any last message go to the null device.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            if isinstance(error, BrokenPipeError):
                raise Unwritable("", CLOSED) from None
            why = f"stopped: {self.name} cannot be written ({error.strerror})"
            raise Unwritable(why, 1) from None


@contextlib.contextmanager
def guard_output() -> Iterator[None]:
    """Lets a command print to consoles of any encoding, and end normally when they
    close.

    The process ends quietly, with the exit code that shells expect, once its reader is
    gone, and with one line once a disk is full."""
    before = sys.stdout, sys.stderr
    names = "standard output", "standard error"
    # If one was closed at the start, print would write to the other.
    streams = [stream or open(os.devnull, "w", encoding="utf-8") for stream in before]
    sys.stdout, sys.stderr = map(Stream, streams, names)
    try:
        try:
            yield
        except SystemExit:
            flush()
            raise
        flush()
    except Unwritable as end:
        if end.why:
            print(end.why, file=sys.stderr)
        leave(end.status)
    finally:
        sys.stdout, sys.stderr = before


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def command(main: Callable[[], int | None]) -> int | None:
    """Runs a module as a command in `guard_output`; returns its exit code."""
    with guard_output():
        return main()


@contextlib.contextmanager
def handle_stops(
    describe_done: Callable[[], str] = lambda: "nothing was saved",
) -> Iterator[None]:
    """Ends the process with one line of output when it is stopped.

    The exit code is 130 at Ctrl-C, `termination_code` at SIGTERM (which a scheduler
    sends before it takes a machine away), 1 where memory or a disk is full, and 2 where
    JAX lacks the device that it is configured for. describe_done: returns a phrase
    about the work done so far."""

    def end(*_: Any) -> NoReturn:
        raise Terminated

    try:
        with handle_sigterm(end):
            yield
    except KeyboardInterrupt as error:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
        begin = "\n" if sys.stderr.isatty() else ""  # below the ^C, or a bar
        print(f"{begin}stopped; {describe_done()}", file=sys.stderr)
        leave(termination_code() if isinstance(error, Terminated) else STOPPED)
    except Exception as error:
        if why := explain_backend(error):
            print(why, file=sys.stderr)
            leave(2)
        if (why := explain_memory(error) or explain_full_disk(error)) is None:
            raise
        print(f"stopped; {why}; {describe_done()}", file=sys.stderr)
        leave(1)


def termination_code() -> int:
    """Returns the exit code of a command that SIGTERM ended: 143, or SPECJAX_PREEMPTED.

    The variable is for schedulers that take any code other than 0 for a failure."""
    code = os.environ.get(PREEMPTED, "")
    return int(code) if code.isdecimal() else TERMINATED


class Terminated(KeyboardInterrupt):
    """The exception that SIGTERM raises."""


@contextlib.contextmanager
def handle_sigterm(handler: Callable) -> Iterator[None]:
    """Passes SIGTERM to a handler in the `with` block, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def explain_memory(error: BaseException | None) -> str | None:
    """Returns the message for an error about too little memory; None for any other
    error.

    XLA's error is a RuntimeError that begins with RESOURCE_EXHAUSTED."""
    first = next(iter(str(error).splitlines()), "")
    by_xla = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in first
    if not (isinstance(error, MemoryError) or by_xla):
        return None
    reason = first.partition("RESOURCE_EXHAUSTED: ")[2].rstrip(".") or "out of memory"
    return f"{reason}: take a smaller batch, shorter texts, or a smaller model"


def explain_full_disk(error: BaseException) -> str | None:
    """Returns the message for an error about a full disk, with the file; None for
    others."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return None
    if error.filename is None:  # the message may name the path
        return f"{error}" if error.strerror is None else error.strerror
    return str(write_error(error.filename, error))


def explain_backend(error: BaseException | None) -> str | None:
    """Returns how to fix a JAX that lacks the backend named by JAX_PLATFORMS; None for
    others.

    Returns None for any other error, whatever caused it."""
    wanted, jax = os.environ.get("JAX_PLATFORMS"), sys.modules.get("jax")
    while error is not None and not isinstance(error, RuntimeError | AssertionError):
        error = error.__cause__ or error.__context__
    if not wanted or jax is None or error is None:
        return None
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as failed:  # the latter without a GPU
        first = str(failed).partition(" (set JAX_PLATFORMS")[0].rstrip(".")
        why = first or "it finds none"
        return (
            f"JAX_PLATFORMS={wanted}: JAX has no such backend here ({why}): name"
            " another, such as cpu, unset the variable, or install the backend, such as"
            " specjax[cuda]"
        )
    return None


def leave(code: int) -> NoReturn:
    """Ends the process without Python's own shutdown.

    A compiled program may still run in another thread. It reads arrays that the
    shutdown would free, and the process would crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
