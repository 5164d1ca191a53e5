"""Lines of the rows at the sizes of T5-XXL, whose acceptance is drawn and not measured.

Beside them is Table 4 of Leviathan et al. (2023), whose alpha and gamma they take.
"""

from experiments.records.table import Line, Table, command, rows_of

NEEDS = "one GPU with 80 GB (`experiments/gpu/run_all.sh`)"
TASKS = {"ende": "EnDe", "cnndm": "CNN/DM"}
# Quantity of a record, its name, its published column, its error.
QUANTITIES = (
    ("c", "c", "c", None),
    ("exp", "EXP", "expected", None),
    ("predicted", "exact prediction", None, None),
    ("speedup", "EMP", "measured", "speedup_se"),
    ("best_gamma", "gamma predicted to be best", None, None),
    ("best_speedup", "EMP at that gamma", None, "best_speedup_se"),
    ("token_ms", "T5-XXL alone, ms a token", None, None),
    ("floor_ms", "its floor by the memory's speed, ms a token", None, None),
)


def chip() -> Table:
    title = "Table 4 at the sizes of T5-XXL: random weights, acceptance drawn"
    note = (
        "Walltime with models of the paper's sizes and random bfloat16 weights, batch"
        " 1. Acceptance is not measured: it is drawn, by independent coins at the"
        " published alpha, while drafts, target calls and verification are really"
        " computed. c and EMP are measured; EXP is Theorem 3.8 and the exact prediction"
        " that of `specjax.theory.predict`, both at the published alpha and gamma with"
        " our times. The floor is the bytes that a step must read over the speed of a"
        " copy."
        " The error of EMP is over texts, the luck of the coins in it. The published"
        " numbers are those of one TPU-v4. n counts the tokens of the measured texts."
    )
    lines = [line for row in published() for line in lines_of(row)]
    return Table("chip", title, note, command("chip"), lines)


def published() -> list[dict]:
    return rows_of("table4_expected_vs_measured")


def name_of(row: dict) -> str:
    """The row's file in `gin_configs/chip`."""
    return f"{row['task']}_{size(row)}_t{row['temperature']}"


def size(row: dict) -> str:
    return row["draft"].removeprefix("t5_")


def lines_of(row: dict) -> list[Line]:
    pair = f"sizes of T5-XXL ({TASKS[row['task']]}) with T5-{size(row)}"
    drawn = f"drawn at alpha = {row['alpha']}, gamma = {row['gamma']}"
    lines = []
    for quantity, name, column, error in QUANTITIES:
        what = f"{pair}, T = {row['temperature']}, {drawn}: {name}"
        value = row[column] if column else None
        decimals = 2 if quantity == "c" else 1
        options = dict(published=value, error=error, decimals=decimals, needs=NEEDS)
        lines.append(Line("chip", name_of(row), what, quantity, **options))
    return lines
