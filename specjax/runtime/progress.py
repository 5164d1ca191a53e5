"""The progress of loops, on standard error: bars, if that is a terminal.

A loop draws its own bar, at most ten times a second: a thread that draws would disturb
timings. The cursor is never hidden, so it cannot stay hidden when a process is killed.
"""

import contextlib
import functools
import math
import operator
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

DRAWN, LOGGED = 0.1, 60  # seconds between two drawings, and between two lines of a log
Item = TypeVar("Item")


class Bar:
    """The progress towards a total, or towards None where the total is unknown.

    A bar disappears at its end, and is not written to a log. A `kept` bar leaves a line
    at its end, and adds one to a log every minute: it is for work of hours."""

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "",
        *,
        done: int = 0,
        kept: bool = False,
    ) -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, done
        self.kept, self.due = kept, math.inf
        self.task: Any = None

    def __enter__(self) -> "Bar":
        self.start = time.monotonic()
        self.pause = LOGGED if self.kept else math.inf
        if sys.stderr.isatty() and board().console.is_interactive:
            self.task = board().add_task(
                self.label, total=self.total, completed=self.done, unit=self.unit
            )
            self.pause = DRAWN
        self.due = self.start + self.pause
        return self

    def __exit__(self, *_: Any) -> None:
        if self.task is not None:
            board().remove_task(self.task)
            board().refresh()
        if self.kept:
            self.print_line()

    def update(self, done: int) -> None:
        """Sets the amount of work done; label and total may have been changed
        before."""
        self.done = done
        if time.monotonic() >= self.due:
            self.draw()

    def draw(self) -> None:
        if self.task is None:
            self.print_line()
        else:
            board().update(
                self.task,
                description=self.label,
                total=self.total,
                completed=self.done,
                refresh=True,
            )
        self.due = time.monotonic() + self.pause

    def print_line(self) -> None:
        of = "" if self.total is None else f" of {self.total:,}"
        took = timedelta(seconds=int(time.monotonic() - self.start))
        line = f"{self.label}: {self.done:,}{of} {self.unit}".rstrip()
        print(f"{line}, {took}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hides the bars in the `with` block, so that output on either stream appears
        above them."""
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
    *,
    kept: bool = False,
) -> Iterator[Item]:
    """Yields the items, and shows a `Bar` meanwhile.

    total: their number, if they have no length. unit, kept: as for `Bar`."""
    if total is None:
        total = operator.length_hint(items) or None
    with Bar(label, total, unit, kept=kept) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.done = done  # as `update` does, in less time
            if time.monotonic() >= bar.due:
                bar.draw()


@functools.cache
def board() -> "Progress":
    """Returns the display of all bars of a process, one below the other.

    It is never stopped: without bars it shows nothing."""
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    def text(form: str) -> progress.TextColumn:
        return progress.TextColumn(form, markup=False)

    whole = Column(no_wrap=True)
    bars = progress.Progress(
        text("{task.description}"),
        progress.BarColumn(24),
        progress.MofNCompleteColumn(" of ", whole),
        text("{task.fields[unit]}"),
        progress.TimeElapsedColumn(whole),
        text("left"),
        progress.TimeRemainingColumn(table_column=whole),
        console=Console(stderr=True),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bars.start()
    bars.console.show_cursor(True)  # which `start` hides
    return bars
