"""The number that a line of the catalogue names, from its record."""

from collections.abc import Mapping

from experiments.records.table import Line
from experiments.records.words import FAILED, SKIPPED, UNCLEAR
from experiments.report import walltime

REASONS = (FAILED, SKIPPED, UNCLEAR, *walltime.WHY)


def value(measured: Mapping, quantity: str) -> float | str | None:
    """Returns a number of a record, or the reason why there is none; "key@a" is the
    point of curve `key` at alpha = a.
    """
    name, _, point = quantity.partition("@")
    if quantity == "best_predicted" and measured[quantity] is None:
        return walltime.missing_prediction(measured, measured["best_gamma"])
    if quantity in measured or not point:
        return measured[quantity]
    return measured[name][measured["alpha"].index(float(point))]


def format_published(line: Line) -> str:
    """Returns the published number with the decimals that were printed; "" if there is
    none."""
    return "" if line.published is None else f"{line.published:.{line.decimals}f}"


def contradicts_published(line: Line, record: Mapping) -> bool:
    """Returns whether a number that must round to the published one does not."""
    if not line.exact or line.published is None:
        return False
    off = abs(value(record["measured"], line.quantity) - line.published)
    return off > 0.5 * 10**-line.decimals + 1e-9
