"""The certificate of a rule as a record: the rule's law is enumerated again."""

from functools import partial

from specjax import verifiers
from specjax.exactness import certify
from specjax.measure.row import Measurement

WORST = ("float32", "float64", "TV")


def build(rule: str) -> Measurement:
    """Returns the measurement of one rule. Raises ValueError for an unknown rule."""
    verifiers.find(rule)
    return Measurement(partial(measure, rule), __name__, dtype="float32, float64")


def measure(rule: str) -> dict:
    """Returns every case of `specjax certify --rule` by column, and a summary of them.

    The summary has the number of cases (`total`), how many of them are exact, and the
    largest value of three columns: `worst_float32`, `worst_float64`, `worst_TV`.
    """
    names = certify.NAMES
    cases = [dict(zip(names, cells, strict=True)) for cells in certify.lines([rule])]
    worst = {}
    for name in WORST:
        numbers = [it[name] for it in cases if it[name] not in ("", None)]
        worst[f"worst_{name}"] = max(map(float, numbers))
    exact = sum(case["verdict"] == "exact" for case in cases)
    summary = {"rule": rule, "guarantee": verifiers.find(rule).guarantee}
    return {**summary, "cases": cases, "total": len(cases), "exact": exact, **worst}
