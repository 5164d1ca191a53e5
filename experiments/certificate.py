"""The certificate as a record: the law of every verifier, enumerated again."""

from experiments.row import Measurement
from specjax import certify

NAMES = "verifier fixture V gamma n max_error tv tokens closed verdict".split()


def build() -> Measurement:
    return Measurement(measure, __name__, dtype="float32")


def measure() -> dict:
    """Every line of `specjax certify`, by column, and how many of them are exact."""
    cases = [dict(zip(NAMES, cells, strict=True)) for cells in certify.lines()]
    exact = sum(case["verdict"] == "exact" for case in cases)
    return {"cases": cases, "total": len(cases), "exact": exact}
