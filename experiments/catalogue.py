"""The list of all tables, and the published numbers of each row.

A line of lines.json names the record that fills it (folder of `gin_configs`, row,
quantity) and the number that was published for it. A line that no file here can run
names what it would need. The details that a table shows beside its lines are in
`experiments.report.details`.
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
    """Returns every table and figure: those of the papers, in their order, then our
    own.
    """
    return tuple(table.read([HERE / name / "lines.json" for name in FOLDERS]))


def find_table(name: str) -> Table:
    """Returns the table of a name."""
    return next(table for table in tables() if table.name == name)


def published_numbers(folder: str, row: str) -> dict[str, float] | None:
    """Returns the published numbers of a row by quantity, None if there are none."""
    numbers = {
        line.quantity: line.published
        for table in tables()
        for line in table.lines
        if (line.folder, line.row) == (folder, row) and line.published is not None
    }
    return numbers or None
