"""Records of walltime in the shape of the paper's tables: a line a pair or a gamma."""

from experiments.markup import number
from experiments.records import device

HEAD = ["draft", "T", "batch", "gamma", "alpha", "c", "v", "overhead", "EXP"]
HEAD += ["exact prediction", "EMP [95 %]", "prediction / EMP - 1", "hardware"]
EVERY = ["gamma", "c [95 %]", "v [95 %]", "overhead", "step, ms", "tokens a call"]
EVERY += ["predicted", "EXP", "exact prediction", "EMP [95 %]", "prediction / EMP - 1"]


def best(records: dict[str, dict]) -> list[list[str]]:
    """A line a record: Table 4's columns, and what it lacks."""
    return [_best(record) for record in records.values()]


def _best(record: dict) -> list[str]:
    it = record["measured"]
    names = ("alpha", "best_c", "best_v", "best_overhead", "best_exp")
    return [
        named(it),
        f"{it['temperature']:g}",
        str(it["batch"]),
        str(it["best_gamma"]),
        *map(given, (it[name] for name in (*names, "best_predicted"))),
        interval(it["best_speedup"], it["best_speedup_ci"]),
        percent(it["best_residual"]),
        device(record),
    ]


def named(it: dict) -> str:
    """The draft of a walltime record, and its task where that is not code."""
    task = it.get("task", "code")
    return it["draft"] if task == "code" else f"{it['draft']} ({task})"


def every_gamma(record: dict) -> list[list[str]]:
    """A line a gamma of one record."""
    return [_at(record["measured"], at) for at in range(len(record["measured"]["c"]))]


def _at(it: dict, at: int) -> list[str]:
    names = ("tokens_per_call", "predicted_tokens_per_call", "exp", "predicted")
    return [
        str(it["gamma"][at]),
        interval(it["c"][at], it["c_ci"][at]),
        interval(it["v"][at], it["v_ci"][at]),
        number(it["overhead"][at]),
        number(it["step_ms"][at]),
        *map(given, (it[name][at] for name in names)),
        interval(it["speedup"][at], it["speedup_ci"][at]),
        percent(it["residual"][at]),
    ]


def title(record: dict) -> str:
    it = record["measured"]
    pair = f"{it['target']} with {named(it)}"
    return f"{pair}, T = {it['temperature']:g}, batch {it['batch']}: every gamma"


def interval(value: float | None, ends: list[float] | None) -> str:
    if value is None:
        return ""
    return f"{number(value)} [{', '.join(map(number, ends))}]"


def given(x: float | None) -> str:
    """A number, or nothing where there is none, such as a call not to be predicted."""
    return "" if x is None else number(x)


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:+.1f} %"
