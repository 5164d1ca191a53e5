"""Loss curves as events of TensorBoard: `python -m experiments.training.events`.

Every training run writes its curve (`specjax.training.loop`); this module reads all
curves below a folder, also those of runs in progress. It needs the extra `events`,
tensorboardX.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax.runtime import console
from specjax.training import events

CURVE = "curve.jsonl"


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None) and writes events; returns 0."""
    about = __doc__.split("\n")[0]
    parser = console.Parser("python -m experiments.training.events", description=about)
    add = parser.add_argument
    add("runs", type=Path, help="a folder of runs, or of one")
    add("--to", type=Path, required=True, metavar="DIR", help="a new folder, of events")
    every, of_every = console.number(0.1, 86400), "look again so often, until Ctrl-C"
    add("--every", type=every, metavar="SECONDS", help=f"{of_every}; default: once")
    flags = parser.parse_args(argv)
    with parser.report_errors():
        opened = open_writer(flags)
    shown: dict[Path, tuple[Any, int]] = {}
    with console.handle_stops(lambda: f"events are in {flags.to}"):
        while True:
            write(flags.runs, flags.to, opened, shown)
            if flags.every is None:
                break
            time.sleep(flags.every)
    print(f"{len(shown)} curves: tensorboard --logdir {flags.to}")
    return 0


def open_writer(flags: argparse.Namespace) -> Callable[[str], Any]:
    """Returns a function that opens a folder for events.

    Raises:
        ValueError: no events can be written.
    """
    if not any(flags.runs.rglob(CURVE)):
        raise ValueError(f"no {CURVE} below {flags.runs}: name a folder of runs")
    if flags.to.exists():
        raise ValueError(f"{flags.to} is there: name a new folder for events")
    return events.writer_class()


def write(
    runs: Path,
    events_folder: Path,
    open_writer: Callable[[str], Any],
    shown: dict[Path, tuple],
) -> None:
    """Adds the new points of each curve; the tag of an upper bound ends in "at most".

    Args:
        shown: for each curve, its writer and the number of lines that it has written.
    """
    for curve in sorted(runs.rglob(CURVE)):
        if curve not in shown:
            shown[curve] = (
                open_writer(str(events_folder / curve.parent.relative_to(runs))),
                0,
            )
        writer, done = shown[curve]
        lines = curve.read_text().rpartition("\n")[0].splitlines()  # whole ones
        for point in map(json.loads, lines[done:]):
            events.add(writer, point)
        shown[curve] = writer, max(done, len(lines))


if __name__ == "__main__":
    raise SystemExit(main())
