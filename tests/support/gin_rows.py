"""The rows of `gin_configs`, and what their files say of them."""

import re
from pathlib import Path

from experiments.records import records
from specjax.configs import RowFile

CONFIGS = Path(__file__).resolve().parents[2] / "gin_configs"
PARTS = {"runs", "models", "checkpoints", "drafters", "tasks", "faults"}
TABLES = sorted({path.name for path in CONFIGS.iterdir()} - PARTS)


def every(*tables: str) -> dict[str, RowFile]:
    """By TABLE/ROW the rows of some tables."""
    rows = ((table, records.rows(table)) for table in tables)
    return {f"{table}/{name}": row for table, of in rows for name, row in of.items()}


def printed(row: RowFile) -> str:
    """The comment before a row in ROWS, or the head of a file that is one row."""
    text = row.path.read_text("utf-8")
    found = re.search(rf"((?: *#.*\n)*)    '{re.escape(row.row)}': ", text)
    comment = found[1] if found else text.partition("\ninclude")[0]
    return re.sub(r"\s*\n *# *", " ", comment)
