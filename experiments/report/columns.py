"""A table of columns: each is a head, and what is written there of an item.

An item is what was measured in a row, or a part of that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from experiments.records.markup import interval, number_or_blank, uncertain
from experiments.records.table import Records

Item = Mapping[str, Any]
Columns = dict[str, Callable[[Any], str] | str]
Grid = tuple[str, list[str], list[list[str]]]  # title, head, rows


def grid(title: str, columns: Columns, items: Iterable[Item]) -> Grid:
    """A line an item. A column that is a text is a template of the item's values."""
    write = [of.format_map if isinstance(of, str) else of for of in columns.values()]
    return title, list(columns), [[of(item) for of in write] for item in items]


def some(*grids: Grid) -> list[Grid]:
    """Those that have a line."""
    return [it for it in grids if it[-1]]


def plain(key: str) -> Callable[[Item], str]:
    """A number, blank where there is none."""
    return lambda it: number_or_blank(it.get(key))


def erring(key: str, error: str | None = None) -> Callable[[Item], str]:
    """A number ± its error."""
    return lambda it: uncertain(it[key], it[error or f"{key}_se"])


def ends(key: str, between: str | None = None) -> Callable[[Item], str]:
    """A number and its interval."""
    return lambda it: interval(it[key], it[between or f"{key}_ci"])


def measured(records: Records, *folders: str) -> dict[str, dict]:
    """What was measured in folders, by row."""
    rows = [item for name in folders for item in records.get(name, {}).items()]
    return {row: record["measured"] for row, record in rows}
