"""Lines of the certificate: the law of every rule, enumerated."""

from experiments.records.markup import number
from experiments.records.table import Line, Table, command


def certificate() -> Table:
    quantities = {
        "total": "cases",
        "exact": "cases that are exact",
        "worst_float32": "largest error of a text's probability, float32",
        "worst_float64": "largest error of a text's probability, float64",
    }
    lines = [
        Line("certificate", rule, f"{rule}: {what}", quantity)
        for rule in ("token", "block", "rejection", "match", "gumbel")
        for quantity, what in quantities.items()
    ]
    note = (
        "The law of every verifier's own compiled code, enumerated on vocabularies of 2"
        " to 8 and compared with the target's: `specjax certify`. A case is exact if no"
        " text of n tokens is off by more than 1e-6 in float32 and 1e-12 in float64,"
        " and every check of `specjax/exactness/certify.py` holds."
    )
    title = "The certificate: the output follows the target's own law"
    return Table("certificate", title, note, command("certificate"), lines)


def wider(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """Every case of the records of folder certificate, by rule."""
    cases = [
        case for record in records.values() for case in record["measured"]["cases"]
    ]
    head = list(dict.fromkeys(key for case in cases for key in case))
    lines = [[cell(case.get(key)) for key in head] for case in cases]
    title = f"The law of the verifiers' output, enumerated: {len(cases)} cases"
    return [(title, head, lines)] if cases else []


def cell(value: str | float | None) -> str:
    return "" if value is None else value if isinstance(value, str) else number(value)
