"""How far a loop is, told on standard error: by bars, where that is a terminal.

A loop draws its own bar, ten times a second at most: a thread that draws would be seen
in what is timed meanwhile. No cursor is hidden, so that none is lost, however a process
ends.
"""

import contextlib
import functools
import math
import operator
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

DRAWN, LOGGED = 0.1, 60  # seconds from one drawing to the next, from line to line
Item = TypeVar("Item")


class Bar:
    """What is done of a total, which is None where nobody knows. It is gone at its end,
    and no part of a log. One that is kept leaves a line there, and a log has another
    each minute: that is for what takes hours."""

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "",
        done: int = 0,
        kept: bool = False,
    ):
        self.label, self.total, self.unit, self.done = label, total, unit, done
        self.kept, self.task, self.due = kept, None, math.inf

    def __enter__(self) -> "Bar":
        self.begun = time.monotonic()
        self.pause = LOGGED if self.kept else math.inf
        if sys.stderr.isatty() and board().console.is_interactive:
            at = dict(total=self.total, completed=self.done, unit=self.unit)
            self.task, self.pause = board().add_task(self.label, **at), DRAWN
        self.due = self.begun + self.pause
        return self

    def __exit__(self, *_) -> None:
        if self.task is not None:
            board().remove_task(self.task)
            board().refresh()
        if self.kept:
            self.say()

    def to(self, done: int) -> None:
        """So much is done now; label and total may have been set anew."""
        self.done = done
        if time.monotonic() >= self.due:
            self.tell()

    def tell(self) -> None:
        if self.task is None:
            self.say()
        else:
            now = dict(description=self.label, total=self.total, completed=self.done)
            board().update(self.task, **now, refresh=True)
        self.due = time.monotonic() + self.pause

    def say(self) -> None:
        of = "" if self.total is None else f" of {self.total:,}"
        took = timedelta(seconds=int(time.monotonic() - self.begun))
        line = f"{self.label}: {self.done:,}{of} {self.unit}".rstrip()
        print(f"{line}, {took}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def above(self) -> Iterator[None]:
        """What is printed meanwhile, on either stream, stands above the bars."""
        if self.task is None:
            yield
            return
        tasks = board().tasks

        def show(visible: bool) -> None:
            for task in tasks:
                board().update(task.id, visible=visible)
            board().refresh()

        show(False)
        try:
            yield
        finally:
            show(True)


def track(
    items: Iterable[Item],
    label: str,
    total: int | None = None,
    unit: str = "",
    kept: bool = False,
) -> Iterator[Item]:
    """The items, below a `Bar`. total: how many, of those without a length."""
    if total is None:
        total = operator.length_hint(items) or None
    with Bar(label, total, unit, kept=kept) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.done = done  # as `to` does, in less time
            if time.monotonic() >= bar.due:
                bar.tell()


@functools.cache
def board() -> "Progress":
    """Where all bars of a process are, one below the other; never stopped, as without
    bars it shows nothing."""
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    def text(form: str) -> progress.TextColumn:
        return progress.TextColumn(form, markup=False)

    whole = Column(no_wrap=True)
    columns = (
        text("{task.description}"),
        progress.BarColumn(24),
        progress.MofNCompleteColumn(" of ", whole),
        text("{task.fields[unit]}"),
        progress.TimeElapsedColumn(whole),
        text("left"),
        progress.TimeRemainingColumn(table_column=whole),
    )
    alone = dict(auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    bars = progress.Progress(*columns, console=Console(stderr=True), **alone)
    bars.start()
    bars.console.show_cursor(True)  # which `start` hides
    return bars
