"""The number that a line of the catalogue names, from its record."""

from collections.abc import Mapping, Sequence

from experiments.records.table import Line
from experiments.records.words import FAILED, SKIPPED, UNCLEAR
from experiments.report import walltime

DEVIATION = "_sd"  # how the name of a standard deviation ends
RATIO = "over_"  # how the name of a speed over that of an engine begins
REASONS = (FAILED, SKIPPED, UNCLEAR, *walltime.WHY)


def value(measured: Mapping, quantity: str) -> float | str | None:
    """Returns a number of a record, or the reason why there is none; "key@a" is the
    point of curve `key` at alpha = a. The reason may be that of an engine that a bench
    could not run.
    """
    name, _, point = quantity.partition("@")
    if quantity == "best_predicted" and measured[quantity] is None:
        return walltime.missing_prediction(measured, measured["best_gamma"])
    refusals, engine = measured.get("refusals", {}), quantity.removeprefix(RATIO)
    if quantity not in measured and engine in refusals:
        return refusals[engine]
    if quantity in measured or not point:
        return measured[quantity]
    return measured[name][measured["alpha"].index(float(point))]


def interval(measured: Mapping, quantity: str) -> Sequence[float] | None:
    """Returns the ends of the interval of a number; of "speedup_b1" they may stand
    under "speedup_ci_b1"."""
    words = quantity.split("_")
    names = [f"{quantity}_ci", f"{quantity}_interval"]
    names += ["_".join([*words[:at], "ci", *words[at:]]) for at in range(1, len(words))]
    return next((measured[name] for name in names if measured.get(name)), None)


def error_of(line: Line, measured: Mapping) -> float | None:
    """Returns the standard error of a number, if the record has one."""
    key = line.error or f"{line.quantity}_se"
    return None if key.endswith(DEVIATION) else measured.get(key)


def deviation(line: Line, measured: Mapping) -> float | None:
    """Returns the standard deviation of one measurement of a number, if the record has
    it in place of an error."""
    key = line.error or ""
    return measured.get(key) if key.endswith(DEVIATION) else None


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
