"""Measures rows: `python -m experiments.run [--out DIR] [--gin.X=Y] FILE.gin ...`

As `specjax run`, with what a checkout knows beside: the definitions that a number was
made by, the commit, the published numbers. A row that is there already, with the same
operative config and the same definitions, is kept.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments import catalogue
from experiments.records import compilation, records
from specjax import console
from specjax.commands import configs
from specjax.commands import run as commands
from specjax.commands.configs import Built, RowFile, flags
from specjax.commands.run import RowError, stopped_politely

__all__ = ["RowError", "build", "main", "measure", "run", "stopped_politely"]
ROOT = Path(__file__).resolve().parents[1]
KEYS = ("config", "fingerprint")
ORIGIN = commands.Origin(records.sources, KEYS, records.commit, catalogue.published)


def build(path: Path, bindings: Iterable[str] = ()) -> Built:
    """A row of a file, built; raises as `configs.build`."""
    return configs.build(RowFile(path, (), tuple(bindings)))


def run(files: Iterable[Path], out: Path, bindings: Iterable[str] = ()) -> None:
    """Measures every file that has no record yet. Raises RowError at the first failure.

    bindings: gin bindings, applied after each file.
    """
    measure([RowFile(path, (), tuple(bindings)) for path in files], out)


def measure(rows: Iterable[RowFile], out: Path) -> None:
    """As `run`, of rows that are read from more than a file."""
    compilation.keep()
    for _ in commands.run(rows, out, ORIGIN):
        pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the flags (of `sys.argv` if None) and measures."""
    parser = console.Parser(prog="python -m experiments.run")
    flags.add(parser)
    of_out = "folder of the records; default %(default)s"
    parser.add_argument("--out", type=Path, default=commands.OUT, help=of_out)
    argv = sys.argv[1:] if arguments is None else arguments
    chosen, rows = flags.parse(parser, argv)
    with stopped_politely():
        measure(rows, chosen.out)


if __name__ == "__main__":
    console.command(main)
