"""The certificate as a record: the law of a verifier, enumerated again."""

from functools import partial

from specjax import verifiers
from specjax.exactness import certify
from specjax.measure.row import Measurement

WORST = ("float32", "float64", "TV")


def build(rule: str) -> Measurement:
    """Raises ValueError for an unknown rule."""
    verifiers.find(rule)
    return Measurement(partial(measure, rule), __name__, dtype="float32, float64")


def measure(rule: str) -> dict:
    """Every line of `specjax certify --rule`, by column; how many of them are exact;
    `worst_float32`, `worst_float64`, `worst_TV`: the largest of these columns."""
    names = certify.NAMES
    cases = [dict(zip(names, cells, strict=True)) for cells in certify.lines([rule])]
    worst = {}
    for name in WORST:
        numbers = [it[name] for it in cases if it[name] not in ("", None)]
        worst[f"worst_{name}"] = max(map(float, numbers))
    exact = sum(case["verdict"] == "exact" for case in cases)
    summary = {"rule": rule, "guarantee": verifiers.find(rule).guarantee}
    return {**summary, "cases": cases, "total": len(cases), "exact": exact, **worst}
