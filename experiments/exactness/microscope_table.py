"""Lines of what rounding does to greedy texts, by pair and dtype."""

from experiments.records import markup
from experiments.records.table import Line, Table, command

PAIRS = {
    "code": "code_target with code_small",
    "ende": "t5_target with t5_small (EnDe)",
}
DTYPES = ("float32", "bfloat16")
QUANTITIES = {
    "unexplained": "unexplained divergences",
    "matched_percent": "texts identical to those of calls of the same shape, per cent",
    "identical_percent": "texts identical to those of calls of one token, per cent",
    "eps_max_millionths": "largest difference of a logit, in millionths",
}
HEAD = ["what", "gamma", "same shape", "one token", "explained", "unexplained"]
HEAD += ["eps, largest", "eps, mean", "flips: at most", "expected", "observed"]
HEAD += ["total variation at T = 1", "at most"]


def microscope() -> Table:
    lines = [
        Line("microscope", f"{pair}_{dtype}", f"{models}, {dtype}: {what}", quantity)
        for pair, models in PAIRS.items()
        for dtype in DTYPES
        for quantity, what in QUANTITIES.items()
    ]
    note = (
        "Greedy texts with a draft beside those without, over every gamma that is"
        " measured. A call of gamma + 1 tokens rounds differently from a call of one,"
        " so that a text may part where two logits are nearly tied. Beside calls of"
        " gamma + 1 tokens whose extra ones are read by nobody every text is"
        " identical, on a CPU. Beside calls of one token a divergence is explained if"
        " the emitted token is within 2 eps of the largest logit, eps being the largest"
        " difference of a logit up to there. n counts the target's tokens."
    )
    title = "Greedy identity: what rounding does"
    return Table("microscope", title, note, command("microscope"), lines)


def wider(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """Every gamma of the records of folder microscope, by row."""
    return [("By gamma", HEAD, by_gamma(records))] if records else []


def by_gamma(records: dict[str, dict]) -> list[list[str]]:
    """A line of HEAD for each gamma of each record of folder microscope, by row."""
    lines = []
    for record in records.values():
        it = record["measured"]
        dtype = record["provenance"]["dtype"]
        what = f"{it['target']} with {it['draft']}, {dtype}"
        lines += [[what, str(gamma), *cells(it, f"_g{gamma}")] for gamma in it["gamma"]]
    return lines


def cells(it: dict, suffix: str) -> list[str]:
    shares = [
        f"{it[key + suffix]:.0f} %" for key in ("matched_percent", "identical_percent")
    ]
    counts = [str(it[key + suffix]) for key in ("explained", "unexplained")]
    eps = [f"{it[key + suffix]:.1e}" for key in ("eps_max", "eps_mean")]
    flips = [f"flips_{key}{suffix}" for key in ("bound", "expected", "observed")]
    law = [f"{it[key + suffix]:.1e}" for key in ("tv_max", "tv_bound")]
    return [*shares, *counts, *eps, *(markup.number(it[key]) for key in flips), *law]
