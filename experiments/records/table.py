"""What the lines of a table are: whose record fills them, and the published number."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

Records = dict[str, dict[str, dict]]  # folder -> row -> its latest record
PUBLISHED = Path(__file__).with_name("published_values.json")


class Line(NamedTuple):
    """quantity: its key in `measured`; "key@0.8" is a curve's value at alpha 0.8.

    error: the key of its standard error. decimals: as printed; exact: ours must round
    to the published. needs: what is missing where no record is.
    """

    folder: str
    row: str
    what: str
    quantity: str
    published: float | None = None
    error: str | None = None
    decimals: int = 2
    exact: bool = False
    needs: str | None = None


class Table(NamedTuple):
    """`note`: what a reader must know to compare; `command`: what makes it."""

    name: str
    title: str
    note: str
    command: str
    lines: list[Line]


@cache
def leviathan() -> dict:
    return json.loads(PUBLISHED.read_text("utf-8"))["leviathan2023"]


def rows_of(key: str) -> list[dict]:
    table = leviathan()[key]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def command(folder: str) -> str:
    return f"python -m experiments.run gin_configs/{folder}/*.gin"
