"""A command at its edges: one line for each mistake and each row, and how it may end.

By Ctrl-C, for want of memory, and where what it prints can no longer be written. For
every command of the package, wherever its module is.
"""

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
from specjax.runtime.writing import FULL, unwritten

STOPPED = 130  # what a shell expects of a command that Ctrl-C ended
TERMINATED = 143  # of one that SIGTERM did, so that a scheduler begins it again
PREEMPTED = "SPECJAX_PREEMPTED"  # another, 0, where a scheduler restarts by itself
CLOSED = 141  # and of one whose reader is gone, such as `| head -1`
LEAST_TEMPERATURE = 1.18e-38  # above 0: float32 below it are 0 to some processors


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line. A flag is written whole: a beginning of one
    may be another setting's name elsewhere."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **{"allow_abbrev": False} | options)

    def parse_args(self, args=None, namespace=None):
        known, others = self.parse_known_args(args, namespace)
        if others:
            self.error(self.unknown(others))
        return known

    def unknown(self, others: list[str]) -> str:
        """What is said of arguments that there are not."""
        said = f"unrecognized arguments: {shortened(' '.join(others), 200)}"
        flags = [x for action in self._actions for x in action.option_strings]
        meant = [
            foreign_names.flag_meant(each.partition("=")[0], flags)
            for each in others
            if each.startswith("-")
        ]
        meant = [*dict.fromkeys(filter(None, meant))]
        return f"{said}: write {', '.join(meant)}" if meant else said

    def error(self, message: str) -> NoReturn:
        """One line, whatever is wrong, and exit code 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    @contextlib.contextmanager
    def refusing(self, *kinds: type[Exception]) -> Iterator[None]:
        """What a person can mend, a ValueError, an OSError or another, in that line."""
        try:
            yield
        except (ValueError, OSError, *kinds) as error:
            self.error(str(error))


def whole(least: int, most: int) -> Callable[[str], int]:
    """Type of a flag: a whole number, least <= x <= most."""

    def parsed(text: str) -> int:
        return bounded(int, text, least, most, "a whole number")

    return parsed


def number(least: float, most: float, above: bool = False) -> Callable[[str], float]:
    """Type of a flag: least <= x <= most, or with `above` least < x < most."""

    def parsed(text: str) -> float:
        return bounded(float, text, least, most, "a number", above)

    return parsed


def bounded(kind, text: str, least, most, called: str, above: bool = False):
    """Raises ArgumentTypeError, which names the bounds, for what is not within."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if least <= value <= most and not (above and value in (least, most)):
        return value
    low, high = (f"{bound:g}" if kind is float else bound for bound in (least, most))
    bounds = f"at least {low} and at most {high}"
    bounds = f"above {low} and below {high}" if above else bounds
    raise argparse.ArgumentTypeError(
        f"must be {called}, {bounds}; got {shortened(text)!r}"
    )


def shortened(text: str, most: int = 40) -> str:
    """As it fits into a line."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def typed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Type of a flag: what `parse` makes of a text; what it refuses is told."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def checked(check: Callable[[str], Any]) -> Callable[[str], str]:
    """Type of a flag: a text that `check` takes, as it is."""

    def same(text: str) -> str:
        check(text)
        return text

    return typed(same)


def temperature(text: str) -> float:
    """Type of a flag: what `probs.RANGES` lets a temperature be."""
    value = bounded(float, text, 0, 10_000, "a number")
    if 0 < value < LEAST_TEMPERATURE:
        raise argparse.ArgumentTypeError(
            f"must be 0, which is argmax, or at least {LEAST_TEMPERATURE:g}; got"
            f" {shortened(text)!r}"
        )
    return value


seed = whole(0, 2**32 - 1)
gamma = whole(0, 1000)  # drafted tokens
count = whole(1, 1_000_000)  # of texts, of tokens of one, of rows of a batch


def begin(label: str) -> None:
    """What runs now; on a terminal `end` writes over it, in a log it ends the line."""
    print(f"{label} ...", end="\r" if sys.stdout.isatty() else " ", flush=True)


def end(label: str, outcome: str) -> None:
    """What became of it."""
    print(f"{label}: {outcome}" if sys.stdout.isatty() else outcome, flush=True)


@contextlib.contextmanager
def announced(label: str) -> Iterator[None]:
    """Says on stderr what runs now, and then its seconds; a terminal sees it turn."""
    begun, ended, turns = time.perf_counter(), "\n", sys.stderr.isatty()
    print(f"{label} ...", end="\r" if turns else " ", file=sys.stderr, flush=True)
    try:
        with turning(label) if turns else contextlib.nullcontext():
            yield
        again = f"{label} ... " if turns else ""
        ended = f"{again}{time.perf_counter() - begun:.1f} s\n"
    finally:
        print(ended, end="", file=sys.stderr, flush=True)


def turning(label: str) -> AbstractContextManager:
    """A spinner and the seconds so far, on a line that is gone at the end."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), text, TimeElapsedColumn()
    shown = dict(transient=True, redirect_stdout=False, redirect_stderr=False)
    bar = Progress(*columns, console=Console(file=sys.stderr), **shown)
    bar.add_task(label, total=None)
    return bar


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json; see `document`."""
    of_json = "one JSON document on standard output, all else on standard error"
    parser.add_argument("--json", action="store_true", help=of_json)


def document(asked: bool, make: Callable[[], dict]) -> dict:
    """What `make` gives; where it is asked for, it alone is on standard output."""
    with aside(asked):
        made = make()
    if asked:
        tell(made)
    return made


def aside(asked: bool) -> AbstractContextManager:
    """Where a document is asked for, what is printed meanwhile goes to stderr."""
    return contextlib.redirect_stdout(sys.stderr) if asked else contextlib.nullcontext()


def tell(document: Mapping) -> None:
    """Prints a document as one line of JSON."""
    print(line_of(document), flush=True)


def line_of(document: Mapping) -> str:
    """A document as one line of JSON in ASCII, which is right in every encoding that a
    console may have."""
    return json.dumps(plain(document), allow_nan=False)


def plain(value: Any) -> Any:
    """As JSON has it: tuples by their names, arrays as lists, no infinity and no NaN
    but None."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Unwritable(SystemExit):
    """Nothing that a command prints is read or kept. why: a line, unless that is how
    pipes end."""

    def __init__(self, why: str, code: int):
        super().__init__(code)
        self.why = why


class Stream:
    """Standard output, or error: a text never fails for its letters, and where none can
    be written `Unwritable` is raised, once. It is no OSError, of which commands say
    that a file is at fault."""

    def __init__(self, stream: TextIO, name: str):
        self.stream, self.name = stream, name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        return self.ending(self.stream.write, text)

    def flush(self) -> None:
        self.ending(self.stream.flush)

    def ending(self, do: Callable, *arguments: str) -> Any:
        try:
            return do(*arguments)
        except OSError as error:
            # What is buffered, and what is said of the end, goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            if isinstance(error, BrokenPipeError):
                raise Unwritable("", CLOSED) from None
            why = f"stopped: {self.name} cannot be written ({error.strerror})"
            raise Unwritable(why, 1) from None


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Prints on consoles of any encoding; ends the process, quietly and with a shell's
    exit code, once nobody reads on, and with one line once a disk is full."""
    before = sys.stdout, sys.stderr
    names = "standard output", "standard error"
    # Where one was closed from the first, print would write to the other.
    opened = [stream or open(os.devnull, "w", encoding="utf-8") for stream in before]
    sys.stdout, sys.stderr = map(Stream, opened, names)
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
        leave(end.code)
    finally:
        sys.stdout, sys.stderr = before


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def command(main: Callable[[], int | None]) -> int | None:
    """Runs a module as a command, by `printing`; returns its exit code."""
    with printing():
        return main()


@contextlib.contextmanager
def stops(left: Callable[[], str] = lambda: "nothing was saved") -> Iterator[None]:
    """Ends the process with one line at Ctrl-C, by exit code 130, at SIGTERM, which a
    scheduler sends before it takes a machine away, by `terminated`, and where memory is
    too little or a disk is full, by 1; where JAX has no such device as it is told to
    take, by 2. left: what to say of the work that was done."""

    def end(*_) -> NoReturn:
        raise Terminated

    try:
        with told(end):
            yield
    except KeyboardInterrupt as error:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
        begin = "\n" if sys.stderr.isatty() else ""  # below the ^C, or a bar
        print(f"{begin}stopped; {left()}", file=sys.stderr)
        leave(terminated() if isinstance(error, Terminated) else STOPPED)
    except Exception as error:
        if why := no_backend(error):
            print(why, file=sys.stderr)
            leave(2)
        if (why := exhausted(error) or full(error)) is None:
            raise
        print(f"stopped; {why}; {left()}", file=sys.stderr)
        leave(1)


def terminated() -> int:
    """The exit code of a command that SIGTERM ended: 143, or what SPECJAX_PREEMPTED
    says, for schedulers to which any other than 0 is a failure."""
    told = os.environ.get(PREEMPTED, "")
    return int(told) if told.isdecimal() else TERMINATED


class Terminated(KeyboardInterrupt):
    """SIGTERM."""


@contextlib.contextmanager
def told(handler: Callable) -> Iterator[None]:
    """SIGTERM goes to a handler meanwhile, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def exhausted(error: BaseException | None) -> str | None:
    """What an error says of memory that was too little, and what helps; None of any
    other error. XLA's is a RuntimeError that begins with a word of its own."""
    first = next(iter(str(error).splitlines()), "")
    by_xla = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in first
    if not (isinstance(error, MemoryError) or by_xla):
        return None
    lacked = first.partition("RESOURCE_EXHAUSTED: ")[2].rstrip(".") or "out of memory"
    return f"{lacked}: take a smaller batch, shorter texts, or a smaller model"


def full(error: BaseException) -> str | None:
    """Returns what an error says of a disk that is full, and of which file; None for
    any other error."""
    if getattr(error, "errno", None) not in FULL:
        return None
    if error.filename is None:  # it names its path by itself, or nobody knows it
        return f"{error}" if error.strerror is None else error.strerror
    return str(unwritten(error.filename, error))


def no_backend(error: BaseException | None) -> str | None:
    """Returns what to do where an error is that JAX has no such backend as
    JAX_PLATFORMS names; None for any other error, whatever caused it."""
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
            " another, such as cpu, unset it, or install what it needs, such as"
            " specjax[cuda]"
        )
    return None


def leave(code: int) -> NoReturn:
    """Ends the process without Python's own shutdown. A compiled program may still run
    in a thread of its own. It reads arrays that the shutdown would free, and the
    process would end in a crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
