"""Tables of columns: of columns.json, a head and what is written there of an item.

An item is what was measured in a row, or a part of that. A cell is a template of its
values; after one of WAYS the value is written so: "{alpha ±}" is alpha and its error.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from experiments.records.markup import interval, number, number_or_blank, uncertain
from experiments.records.table import Records

Item = Mapping[str, Any]
Columns = dict[str, str]
Grid = tuple[str, list[str], list[list[str]]]  # title, head, rows
FILE = Path(__file__).with_name("columns.json")


def ends_of(it: Item, key: str) -> Any:
    return it[f"{key}_ci" if f"{key}_ci" in it else f"{key}_interval"]


def whole(x: float | None) -> str:
    """A count."""
    return "" if x is None else f"{x:g}" if x < 1e4 else f"{x:,}"


WAYS = {
    "n": lambda it, key: number_or_blank(it.get(key)),
    "±": lambda it, key: uncertain(it[key], it[f"{key}_se"]),
    "ci": lambda it, key: interval(it[key], ends_of(it, key)),
    "to": lambda it, key: " to ".join(map(number, it[key])),
    "count": lambda it, key: whole(it.get(key)),
}


class Written(dict):
    """An item in which a value can be named with the way to write it."""

    def __missing__(self, key: str) -> str:
        name, _, way = key.rpartition(" ")
        if way not in WAYS:
            raise KeyError(key)
        return WAYS[way](self, name)


@cache
def known() -> dict[str, dict]:
    return json.loads(FILE.read_text("utf-8"))


def columns_of(name: str) -> Columns:
    return known()[name]["columns"]


def grid(name: str, items: Iterable[Item], **titled: str) -> list[Grid]:
    """The table of columns.json of this name, a line an item; none without items.
    titled: what its title names."""
    return table(known()[name]["title"].format(**titled), columns_of(name), items)


def table(title: str, columns: Columns, items: Iterable[Item]) -> list[Grid]:
    written = map(Written, items)
    lines = [[of.format_map(item) for of in columns.values()] for item in written]
    return [(title, list(columns), lines)] if lines else []


def measured(records: Records, *folders: str) -> dict[str, dict]:
    """What was measured in folders, by row."""
    rows = [item for name in folders for item in records.get(name, {}).items()]
    return {row: record["measured"] for row, record in rows}


def part(it: Item, end: str) -> dict:
    """What was measured of one part of a row, under names without their end."""
    end = f"_{end}"
    return {key.removesuffix(end): x for key, x in it.items() if key.endswith(end)}
