"""Claims of Wagner et al. (2024) about verification, by what wagner_text and
wagner_scale say: theirs is of GPUs and larger models, ours in kind.

`baseline` writes out every matrix, `exact` is Algorithm 1 as XLA fuses it, and both
have the target's law; `sigmoid` approximates softmax and is lossy.
"""

from collections.abc import Callable

from experiments.records.markup import number
from experiments.records.table import Records
from experiments.report.claims.verdicts import (
    Case,
    Outcome,
    critical,
    judge,
    together,
    untestable,
)

SIGMOID = "sigmoid_1e4"
LOSS = 0.06  # of ROUGE-1: the most that the text tells
SAME = 0.05  # ours: shares of drafts kept that are called the same
POINTS = 5.0  # ours: percentage points of time within which two scales are the same
NEEDS = "no record of folder wagner_text"

Test = Callable[[dict], Case | None]


def each(records: Records, test: Test, folder: str = "wagner_text") -> Outcome:
    """One comparison for every pair of models that has its numbers."""
    rows = [record["measured"] for record in records.get(folder, {}).values()]
    cases = (test(m) for m in sorted(rows, key=pair))
    return judge(
        [comparison for comparison in cases if comparison],
        f"no record of folder {folder}",
    )


def pair(m: dict) -> str:
    return f"{m['target']} with {m['draft']}"


def slower(m: dict, method: str, other: str) -> Case:
    """That `method` takes longer than `other`; error: of medians of the rounds."""
    us, others = m[f"us_{method}"], m[f"us_{other}"]
    errors = (time_error(m, name) for name in (method, other))
    told = f"{pair(m)}: {other} {number(others)} us a step, {method} {number(us)}"
    return Case(told, us - others, together(*errors))


def time_error(m: dict, method: str) -> float:
    median = 1.2533  # its standard error over that of a mean, for a normal law
    return median * m[f"us_{method}_sd"] / m["rounds"] ** 0.5


def exact_time(records: Records) -> Outcome:
    return each(records, lambda m: slower(m, "baseline", "exact"))


def sigmoid_time(records: Records) -> Outcome:
    return each(records, lambda m: slower(m, "exact", SIGMOID))


def exact_output(records: Records) -> Outcome:
    """Calls and kept drafts of all texts, drawn with the same noise."""

    def test(m: dict) -> Case:
        calls = [m[f"calls_{method}"] for method in ("baseline", "exact")]
        kept = [number(m[f"acceptance_{method}"]) for method in ("baseline", "exact")]
        told = f"{pair(m)}: calls {calls[0]} and {calls[1]}, drafts kept {kept[0]} and"
        return Case(f"{told} {kept[1]}", -abs(calls[0] - calls[1]))

    return each(records, test)


def rouge(m: dict, *methods: str) -> tuple[float, float]:
    """How much of ROUGE-1 the second method loses beside the first, and its error."""
    first, second = (m[f"rouge1_{method}"] for method in methods)
    errors = (m[f"rouge1_se_{method}"] for method in methods)
    return first - second, together(*errors)


def sigmoid_loss(records: Records) -> Outcome:
    """ROUGE-1 must see a loss to bound it: a control that keeps every draft shows."""

    def test(m: dict) -> Case | None:
        if "rouge1_baseline" not in m:
            return None
        loss, error = rouge(m, "baseline", SIGMOID)
        most, doubt = rouge(m, "baseline", "always")
        lacks = ""
        if abs(most) <= critical(1) * doubt:
            lacks = (
                f"keeping every draft loses {number(most)} ± {number(doubt)} as well"
            )
        told = f"{pair(m)}: loses {number(loss)} ± {number(error)}"
        return Case(told, LOSS - loss, error, lacks)

    return each(records, test)


def same_share(records: Records) -> Outcome:
    def test(m: dict) -> Case:
        kept, others = (m[f"acceptance_{name}"] for name in (SIGMOID, "exact"))
        errors = (m[f"acceptance_se_{name}"] for name in (SIGMOID, "exact"))
        told = f"{pair(m)}: sigmoid {number(kept)}, exact {number(others)}"
        return Case(told, SAME - abs(kept - others), together(*errors))

    return each(records, test)


def memory(records: Records) -> Outcome:
    def test(m: dict) -> Case:
        peak = {k: m[f"peak_kib_{k}"] for k in ("baseline", "exact", SIGMOID)}
        told = ", ".join(f"{name} {number(kib)} KiB" for name, kib in peak.items())
        most = max(peak["exact"], peak[SIGMOID])
        return Case(f"{pair(m)}: {told}", peak["baseline"] - most)

    return each(records, test)


def scales(records: Records) -> Outcome:
    """+-1e3 beside +-1e4, in time saved."""

    def test(m: dict) -> Case:
        saved = [m[f"step_reduction_sigmoid_{scale}"] for scale in ("1e3", "1e4")]
        errors = (time_error(m, f"sigmoid_{scale}") for scale in ("1e3", "1e4"))
        told = f"{pair(m)}: {saved[0]:.1f} % and {saved[1]:.1f} % less time a step"
        gap = POINTS - abs(saved[0] - saved[1])
        return Case(told, gap, 100 * together(*errors) / m["us_baseline"])

    return each(records, test, "wagner_scale")


def half_precision(records: Records) -> Outcome:
    """At +-1e5: drafts kept in float32 beside float16, where nothing is left."""

    def test(m: dict) -> Case:
        names = ("sigmoid_1e5", "sigmoid_1e5_half")
        full, half = (m[f"acceptance_{name}"] for name in names)
        errors = (m[f"acceptance_se_{name}"] for name in names)
        told = f"{pair(m)}: float32 keeps {number(full)} of drafts, float16"
        gap = full - half - SAME
        return Case(f"{told} {number(half)}", gap, together(*errors))

    return each(records, test, "wagner_scale")


def bandwidth(records: Records) -> Outcome:
    return untestable("needs a GPU and its counters; XLA counts no traffic to memory")


def speech(records: Records) -> Outcome:
    return untestable(
        "needs Whisper's weights and its speech; a pair of ours is in the table of"
        " speech"
    )
