"""The measured rows of a file; every field that is compared is checked before use.

An error is one line with the file, the line and the field.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specjax.measure import jsonl
from specjax.runtime.console import shorten

Z = 1.96  # half a 95 % interval of a normal variable, in standard errors
LISTS = ("c", "v", "speedup")  # parallel to `gamma`, intervals in NAME_ci
SINGLE = ("best_speedup", "target_ms")  # intervals in NAME_ci
MENDED = "give files that `specjax measure --out` wrote, or results"


def read(path: Path) -> dict[str, dict]:
    """Returns the last record of each row, by name."""
    if not path.is_file():
        raise ValueError(f"no file {path}: `specjax measure --out {path}` makes one")
    rows = {}
    for number, record in jsonl.numbered_records(path):
        try:
            check(record)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: not a measured row: {error}; {MENDED}"
            ) from None
        rows[record["row"]] = record
    if not rows:
        raise ValueError(f"{path} has no record: `specjax measure --out` appends one")
    return rows


def is_whole(x: Any) -> bool:
    """Returns whether x is an int of at least 0."""
    return type(x) is int and x >= 0


def is_number(x: Any) -> bool:
    """Returns whether x is a finite int or float."""
    try:
        return type(x) in (int, float) and math.isfinite(x)
    except OverflowError:  # an int beyond every float
        return False


def is_interval(x: Any) -> bool:
    """Returns whether x is a list of two finite numbers in ascending order."""
    two = isinstance(x, list) and len(x) == 2 and all(map(is_number, x))
    return two and x[0] <= x[1]


# What a field may be: a test, and what is wanted.
TEXT = (lambda x: isinstance(x, str)), "a text"
OBJECT = (lambda x: isinstance(x, dict)), "an object"
NUMBER = is_number, "a finite number"
ERROR = (lambda x: is_number(x) and x >= 0), "a finite number, at least 0"
GAMMAS = (
    (lambda x: isinstance(x, list) and all(map(is_whole, x))),
    "a whole number or a list of them",
)
INTERVAL = is_interval, "two finite numbers, [low, high]"


def require(value: Any, place: str, kind: tuple[Callable, str]) -> None:
    """Raises ValueError, naming the field's place, for a value that is not of a
    kind."""
    fits, wanted = kind
    if not fits(value):
        raise ValueError(f"{place} must be {wanted}; got {shorten(ascii(value))}")


def check(record: dict) -> None:
    """Raises ValueError, naming the field, for a record that cannot be compared."""
    for name, kind in (("row", TEXT), ("measured", OBJECT), ("provenance", OBJECT)):
        require(record.get(name), name, kind)
    measured, place = record["measured"], "measured"
    each = measured.get("estimates") or {}
    require(each, "measured.estimates", OBJECT)
    pairs = [(measured, place, "alpha", "alpha_se", ERROR)]
    pairs += [(measured, place, name, f"{name}_ci", INTERVAL) for name in SINGLE]
    for name, estimate in each.items():
        place = f"measured.estimates.{name}"
        require(estimate, place, OBJECT)
        pairs.append((estimate, place, "value", "se", ERROR))
    for fields, place, name, error, kind in pairs:
        if None not in (fields.get(name), fields.get(error)):  # else not compared
            require(fields[name], f"{place}.{name}", NUMBER)
            require(fields[error], f"{place}.{error}", kind)
    check_lists(measured)
    require(measured.get("protocol", {}), "measured.protocol", OBJECT)
    require(record["provenance"].get("config") or "", "provenance.config", TEXT)


def check_lists(measured: dict) -> None:
    """Raises ValueError for a field that should have one value for every gamma and does
    not.

    The single gamma of a row without lists is a number.
    """
    gammas = measured.get("gamma")
    if gammas is None or is_whole(gammas):
        return
    require(gammas, "measured.gamma", GAMMAS)
    count = len(gammas)
    several = (lambda x: len(x) in (0, count)), f"one value for each of {count} gamma"
    for name in LISTS:
        for field, kind in ((name, NUMBER), (f"{name}_ci", INTERVAL)):
            values, place = measured.get(field) or [], f"measured.{field}"
            require(values, place, ((lambda x: isinstance(x, list)), "a list"))
            require(values, place, several)
            for at, value in enumerate(values):
                if value is not None:
                    require(value, f"{place}[{at}]", kind)


def error_of(interval: Sequence[float] | None) -> float | None:
    """Returns the standard error of a value with this 95 % interval; None without
    one."""
    return None if interval is None else (interval[1] - interval[0]) / (2 * Z)
