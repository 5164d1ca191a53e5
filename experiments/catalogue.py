"""Which tables there are, and what was published for each row.

A line of lines.json names the record that fills it (folder of `gin_configs`, row,
quantity) and the number that was published for it. What no file here can run says what
it would need. What a table shows beside its lines is in `experiments.report.details`.
"""

from functools import cache
from pathlib import Path

from experiments.records import table
from experiments.records.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONFIGS = ROOT / "gin_configs"
FOLDERS = ("papers/leviathan", "papers/wagner", "papers/chen", "", "questions")


@cache
def tables() -> tuple[Table, ...]:
    """Every table and figure: those of papers, in their order, then our own."""
    return tuple(table.read([HERE / name / "lines.json" for name in FOLDERS]))


def named(name: str) -> Table:
    return next(table for table in tables() if table.name == name)


def published(folder: str, row: str) -> dict[str, float] | None:
    """The published numbers of a row by quantity, None if there are none."""
    numbers = {
        line.quantity: line.published
        for table in tables()
        for line in table.lines
        if (line.folder, line.row) == (folder, row) and line.published is not None
    }
    return numbers or None
