"""Tables with columns: columns.json has the head of each table and the cells of a line.

`keys` of them, 1 if it is not given, name a line.

An item holds the numbers of a row, or of a part of it. A cell is a template of its
values; after the name of a value may stand one of WAYS to write it: "{alpha ±}" is
alpha with its error.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from experiments.records.markup import (
    interval,
    number,
    number_or_blank,
    number_with_error,
)
from experiments.records.table import Records
from experiments.report.typeset import Grid

Item = Mapping[str, Any]
Columns = dict[str, str]
FILE = Path(__file__).with_name("columns.json")


def interval_ends(it: Item, key: str) -> Any:
    """Returns the ends of the interval of a number."""
    return it[f"{key}_ci" if f"{key}_ci" in it else f"{key}_interval"]


def format_count(x: float | None) -> str:
    """Returns a count as text."""
    return "" if x is None else f"{x:g}" if x < 1e4 else f"{x:,}"


WAYS = {
    "n": lambda it, key: number_or_blank(it.get(key)),
    "±": lambda it, key: number_with_error(it[key], it[f"{key}_se"]),
    "ci": lambda it, key: interval(it[key], interval_ends(it, key)),
    "to": lambda it, key: " to ".join(map(number, it[key] or ())),
    "count": lambda it, key: format_count(it.get(key)),
}


class FormattedItem(dict):
    """A dictionary for templates, in which a value can be named together with its
    format."""

    def __missing__(self, key: str) -> str:
        name, _, way = key.rpartition(" ")
        if way not in WAYS:
            raise KeyError(key)
        return WAYS[way](self, name)


@cache
def read_columns() -> dict[str, dict]:
    """Returns the tables of columns.json."""
    return json.loads(FILE.read_text("utf-8"))


def read_template(name: str) -> Columns:
    """Returns the head of each column of a table, and its template."""
    return dict(read_columns()[name]["columns"])


def grid(name: str, items: Iterable[Item], **titled: str) -> list[Grid]:
    """Returns the table with this name in columns.json, with a line for each item; []
    without items.

    Args:
        titled: the values that its title names.
    """
    it = read_columns()[name]
    title = it["title"].format(**titled)
    return table(title, read_template(name), items, keys=it.get("keys", 1))


def grid_of_file(end: str, name: str, items: Iterable[Item]) -> dict[str, Grid]:
    """Returns the table with this name in columns.json for a file, by the ending of the
    file's name; {} without items."""
    grids = grid(name, items)
    return {end: grids[0]} if grids else {}


def table(
    title: str, columns: Columns, items: Iterable[Item], *, keys: int = 1
) -> list[Grid]:
    """Returns a table with a line for each item; [] without items.

    Args:
        keys: the number of first columns that name a line.
    """
    written = map(FormattedItem, items)
    lines = [
        [unsigned_zero(of.format_map(item)) for of in columns.values()]
        for item in written
    ]
    return [Grid(title, list(columns), lines, keys)] if lines else []


def unsigned_zero(text: str) -> str:
    """Returns a share that was rounded to zero without its sign; other text as it
    is."""
    return re.sub(r"^-(0(\.0+)?%)$", r"\1", text)


def numbers_by_row(records: Records, *folders: str) -> dict[str, dict]:
    """Returns the numbers of the records of some folders, by row."""
    rows = [item for name in folders for item in records.get(name, {}).items()]
    return {row: record["measured"] for row, record in rows}


def part(it: Item, end: str) -> dict:
    """Returns the numbers of one part of a row, whose names end in `end`, with the
    ending removed."""
    end = f"_{end}"
    return {key.removesuffix(end): x for key, x in it.items() if key.endswith(end)}
