"""What the lesson's pages show, as plain numbers: constants, laws, rows and traces.

p is the target's law, q the drafter's, alpha, gamma and c are those of Leviathan et al.
(2023). Nothing is measured here: speeds are those of the records.
Axes: V vocabulary.
"""

import numpy as np

from experiments.records import records
from experiments.records.table import Records
from experiments.report.curves import TASKS
from experiments.report.walltime import XLA
from specjax.theory import closed_forms

TOKENS = ("cat", "dog", "fox", "owl", "bee")
PAIRS = {  # weights of p and q, out of 100
    "a usual pair": ((40, 25, 20, 10, 5), (20, 40, 10, 25, 5)),
    "p = q": ((40, 25, 20, 10, 5), (40, 25, 20, 10, 5)),
    "nothing in common": ((60, 40, 0, 0, 0), (0, 0, 50, 30, 20)),
    "a draft too sure of itself": ((40, 25, 20, 10, 5), (96, 1, 1, 1, 1)),
    "a draft of random tokens": ((88, 6, 3, 2, 1), (20, 20, 20, 20, 20)),
}
GAMMA, C = 4, 0.05


def hand() -> dict:
    """p and q moved by hand: where they begin, and what the exercises ask."""
    p, q = laws("a usual pair")
    return {
        "tokens": TOKENS,
        "presets": [{"name": name, "p": p, "q": q} for name, (p, q) in PAIRS.items()],
        "gamma": GAMMA,
        "c": C,
        "alpha": closed_forms.acceptance(p, q),
        "given": [x for x, more in zip(TOKENS, p > q, strict=True) if more],
        "nothing": closed_forms.walltime_factor(0.0, 4, 0.1),
        "rejection": float(1 / (p / q).max()),  # Appendix A.2
    }


def laws(name: str) -> tuple[np.ndarray, np.ndarray]:
    """p and q [V] of a pair."""
    p, q = np.array(PAIRS[name], float) / 100
    return p, q


TIMED = "table2", "table2_data"  # folders of rows of walltime
OPENED = "small_t0_b1"  # the row that a page opens with
CROWDED = "small_t0_b32"  # the same pair with the most texts at a time


def speed(results: Records) -> dict:
    """alpha, gamma, c and v against speed, with every pair that was timed."""
    pairs = timed(results)
    each = [
        (speed, ci)
        for it in pairs
        for speed, ci in zip(it["speed"][1:], it["ci"][1:], strict=True)
    ]
    best = [it for it in pairs if it["best_ci"] and it["best_ci"][1] < 1]
    return {
        "pairs": pairs,
        "timings": len(each),
        "slower": sum(bool(ci) and ci[1] < 1 for _, ci in each),
        "never": [it["name"] for it in best],
        "rule": closed_forms.optimal_gamma(0.7, 0.1),
        "cheap": closed_forms.optimal_gamma(0.7, 0.01),
        "one": pairs[0]["slope"],
        "many": next(it["slope"] for it in pairs if it["row"] == CROWDED),
    }


def timed(results: Records) -> list[dict]:
    """Rows of walltime, the one that pages open with first. Lists are by gamma."""
    found = [
        pair(folder, row, record)
        for folder in TIMED
        for row, record in sorted(results.get(folder, {}).items())
        if not row.endswith(XLA)
    ]
    for row in (OPENED, CROWDED):
        if not any(it["row"] == row for it in found):
            raise ValueError(f"no record {row} of table2: run gin_configs/table2/*.gin")
    return sorted(found, key=lambda it: it["row"] != OPENED)


def pair(folder: str, row: str, record: dict) -> dict:
    it = record["measured"]
    gamma, v = np.array(it["gamma"][1:]), np.array(it["v"][1:])
    drafts = [x or 0.0 for x in it["c"]]
    return {
        "row": row,
        "name": named(row, it),
        "folder": folder,
        "where": f"{records.device(record)}, {record['provenance']['date'][:10]}",
        "batch": it["batch"],
        "heat": it["temperature"],
        "alpha": it["alpha"],
        "gamma": it["gamma"],
        "c": drafts,
        "v": it["v"],
        "speed": it["speedup"],
        "ci": it["speedup_ci"],
        "tokens": it["tokens_per_call"],
        "target_ms": it["target_ms"],
        "step_ms": it["step_ms"],
        "best_gamma": it["best_gamma"],
        "best": it["best_speedup"],
        "best_ci": it["best_speedup_ci"],
        # v = 1 + slope gamma, by least squares, and c in the mean: what sliders show.
        "slope": float(gamma @ (v - 1) / (gamma @ gamma)),
        "cost": float(np.mean(drafts[1:])),
    }


def named(row: str, it: dict) -> str:
    """A row in words: what is written, who drafts, how and how many at a time."""
    task = TASKS.get(it.get("task", "code"), row.partition("_")[0])
    trained = it["target"] == "target"
    sides = "a trained Llama pair" if trained else f"{it['draft']} for {it['target']}"
    many = f"{it['batch']} text{'s' * (it['batch'] > 1)} at a time"
    return f"{task}: {sides}, T = {it['temperature']:g}, {many}"
