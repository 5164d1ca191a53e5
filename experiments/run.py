"""Measures rows: `python -m experiments.run [--out DIR] [--gin.X=Y] FILE.gin[:ROW] ...`

It is `specjax run`, but records also have the published numbers, and compiled programs
are kept on disk.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments import catalogue
from experiments.records import compilation
from specjax import configs
from specjax.configs import BuiltRow, RowFile, flags
from specjax.configs import run as loop
from specjax.configs.run import RowError, handle_stops, join
from specjax.runtime import console, hosts

__all__ = ["RowError", "build", "handle_stops", "main", "measure", "run"]
ROOT = Path(__file__).resolve().parents[1]


def build(path: Path, bindings: Iterable[str] = (), row: str | None = None) -> BuiltRow:
    """Builds a row of a file. Raises ConfigError as `configs.build` does."""
    return configs.build(RowFile(path, (), tuple(bindings), row=row))


def run(files: Iterable[Path], out: Path, bindings: Iterable[str] = ()) -> None:
    """Measures every row of files that has no record yet.

    Args:
        bindings: gin bindings, applied after each file.

    Raises:
        RowError: at the first failure.
    """
    measure([RowFile(path, (), tuple(bindings)) for path in files], out)


def measure(rows: Iterable[RowFile], out: Path, again: bool = False) -> None:
    """Measures rows that may come from several files, as `run` does.

    Args:
        again: measure all rows, also those that have a record.
    """
    compilation.keep()
    for _ in loop.run(rows, out, again, catalogue.published_numbers):
        pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the flags (of `sys.argv` if None) and measures."""
    parser = console.Parser(prog="python -m experiments.run")
    flags.add(parser)
    flags.add_out(parser, loop.OUT)
    hosts.add(parser)
    argv = sys.argv[1:] if arguments is None else arguments
    chosen, rows = flags.parse(parser, argv)
    with handle_stops(), join(parser, chosen.distributed, rows):
        measure(rows, chosen.out, chosen.again)


if __name__ == "__main__":
    console.command(main)
