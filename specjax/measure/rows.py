"""Measured rows of a file, each field that is compared checked before it is read.

A mistake is one line that names the file, the line and the field.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specjax.measure import jsonl

Z = 1.96  # half a 95 % interval of a normal variable, in standard errors
LISTS = ("c", "v", "speedup")  # parallel to `gamma`, intervals in NAME_ci
SINGLE = ("best_speedup", "target_ms")  # intervals in NAME_ci
PARTS = {"row": str, "measured": dict, "provenance": dict}
MENDED = "give files that `specjax measure --out` wrote, or results"


def read(path: Path) -> dict[str, dict]:
    """The last record of each row, by name."""
    if not path.is_file():
        raise ValueError(f"no file {path}: `specjax measure --out {path}` makes one")
    rows = {}
    for number, record in jsonl.numbered(path):
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


def check(record: dict) -> None:
    """Raises ValueError, naming the field, for what cannot be compared."""
    for name, kind in PARTS.items():
        require(isinstance(record.get(name), kind), name, NAMES[kind], record.get(name))
    measured, provenance = record["measured"], record["provenance"]
    check_estimates(measured)
    for name in SINGLE:
        check_single(measured, name, f"{name}_ci", is_interval, INTERVAL)
    check_lists(measured)
    protocol, config = measured.get("protocol", {}), provenance.get("config") or ""
    require(isinstance(protocol, dict), "measured.protocol", "an object", protocol)
    require(isinstance(config, str), "provenance.config", "a text", config)


def check_estimates(measured: dict) -> None:
    """alpha by each estimator, with its standard error."""
    check_single(measured, "alpha", "alpha_se", is_error, ERROR)
    each, place = measured.get("estimates") or {}, "measured.estimates"
    require(isinstance(each, dict), place, "an object", each)
    for name, estimate in each.items():
        require(isinstance(estimate, dict), f"{place}.{name}", "an object", estimate)
        check_single(estimate, "value", "se", is_error, ERROR, f"{place}.{name}")


def check_single(
    fields: dict, name: str, error: str, fits, wanted: str, place: str = "measured"
) -> None:
    """A number and its error, where both are there: without one it is not compared."""
    value, spread = fields.get(name), fields.get(error)
    if value is None or spread is None:
        return
    require(is_number(value), f"{place}.{name}", NUMBER, value)
    require(fits(spread), f"{place}.{error}", wanted, spread)


def check_lists(measured: dict) -> None:
    """What there is at every gamma. One gamma, of a row without lists, is a number."""
    gammas = measured.get("gamma")
    if gammas is None or is_whole(gammas):
        return
    fits = isinstance(gammas, list) and all(map(is_whole, gammas))
    require(fits, "measured.gamma", "a whole number or a list of them", gammas)
    kinds = {"": (is_number, NUMBER), "_ci": (is_interval, INTERVAL)}
    for name in (f"{name}{end}" for name in LISTS for end in kinds):
        values, place = measured.get(name) or [], f"measured.{name}"
        require(isinstance(values, list), place, "a list", values)
        several = f"one value for each of {len(gammas)} gamma"
        require(len(values) in (0, len(gammas)), place, several, values)
        fits, wanted = kinds["_ci" if name.endswith("_ci") else ""]
        for at, value in enumerate(values):
            require(value is None or fits(value), f"{place}[{at}]", wanted, value)


def require(fits: bool, place: str, wanted: str, value: Any) -> None:
    if not fits:
        got = ascii(value)
        got = got if len(got) <= 40 else f"{got[:37]}..."
        raise ValueError(f"{place} must be {wanted}; got {got}")


NAMES = {str: "a text", dict: "an object"}
NUMBER = "a finite number"
ERROR = "a finite number, at least 0"
INTERVAL = "two finite numbers, [low, high]"


def is_whole(x: Any) -> bool:
    return type(x) is int and x >= 0


def is_number(x: Any) -> bool:
    if type(x) not in (int, float):
        return False
    try:
        return math.isfinite(x)
    except OverflowError:  # an int beyond every float
        return False


def is_error(x: Any) -> bool:
    return is_number(x) and x >= 0


def is_interval(x: Any) -> bool:
    return (
        isinstance(x, list) and len(x) == 2 and all(map(is_number, x)) and x[0] <= x[1]
    )


def error_of(interval: Sequence[float] | None) -> float | None:
    """The standard error of what has this 95 % interval."""
    return None if interval is None else (interval[1] - interval[0]) / (2 * Z)
