"""Tables of the records that no line of the catalogue names: a user's own rows.

Every scalar of `measured` is a line, with its standard error where the record has one
under the same name and `_se`. A folder of records is a table.
"""

from experiments import catalogue
from experiments.records.table import Line, Records, Table, command

ERROR = "_se"
NOTE = (
    "Rows that are not in the catalogue: every number that was measured, by the name"
    " that it has in the record. Nothing published stands beside them."
)


def tables(records: Records) -> list[Table]:
    """A table for each folder that has such rows, by name."""
    named = {(line.folder, line.row) for t in catalogue.tables() for line in t.lines}
    owned = []
    for folder, rows in sorted(records.items()):
        lines = [
            line
            for row, record in sorted(rows.items())
            if (folder, row) not in named
            for line in lines_of(folder, row, record["measured"])
        ]
        if lines:
            title = f"Own rows: {folder}"
            owned.append(Table(f"own_{folder}", title, NOTE, command(folder), lines))
    return owned


def lines_of(folder: str, row: str, measured: dict) -> list[Line]:
    """A line for each number; flags, texts, lists and errors are none."""
    numbers = [key for key, x in measured.items() if type(x) in (int, float)]
    return [
        Line(folder, row, f"{row}: {key}", key, error=error)
        for key in numbers
        if not (key.endswith(ERROR) and key.removesuffix(ERROR) in numbers)
        for error in [f"{key}{ERROR}" if f"{key}{ERROR}" in numbers else None]
    ]
