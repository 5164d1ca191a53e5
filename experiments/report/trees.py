"""The trees of a pair, compared with its chain on the same texts.

Each row was timed in turns with the target alone, so that changes of the machine
between rows cancel. Axes: N texts, or questions.
"""

from collections.abc import Iterator

import numpy as np

from experiments.records.table import Records
from experiments.report import spec_bench
from experiments.report.columns import grid, numbers_by_row
from experiments.report.typeset import Grid
from specjax.theory import speedup

FOLDERS = "trees", "trees_questions"
TASKS = {
    "code": "Python",
    "ende": "English to German",
    "correct": "corrections",
    "smollm2": "SmolLM2 on questions",
}
CHAIN = "_chain"  # how its row ends; the rows of the pair's trees begin as it does


def details(records: Records) -> list[Grid]:
    rows = numbers_by_row(records, *FOLDERS).items()
    return grid(
        "trees", compare_trees({k: it for k, it in rows if "best_speedup" in it})
    )


def compare_trees(rows: dict[str, dict]) -> Iterator[dict]:
    """Yields the speed of each timed tree, divided by the speed of its chain."""
    for name, chain in sorted(rows.items()):
        pair = name.removesuffix(CHAIN)
        trees = [it for row, it in sorted(rows.items()) if row.startswith(pair + "_")]
        for tree in trees if name.endswith(CHAIN) else ():
            if tree is chain:
                continue
            above, below = parts(tree)
            slower, faster = parts(chain)
            value, error = speedup.ratio([*above, *faster], [*below, *slower])
            yield {
                "pair": describe(pair),
                **{f"chain_{key}": x for key, x in chain.items()},
                **{f"tree_{key}": x for key, x in tree.items()},
                "over": value,
                "over_ci": speedup.interval(value, error, len(above[0])),
            }


def describe(row: str) -> str:
    """Returns the task and the temperature that the name of a row begins with."""
    task, _, temperature = row.rpartition("_t")
    return f"{TASKS.get(task, task)}, T = {temperature}"


def parts(it: dict) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns the numerator and the denominator of a speedup, each [N]."""
    if "turns" in it:
        alone, drafted = (spec_bench.question_rates(it, way) for way in spec_bench.WAYS)
        return [drafted], [alone]
    seconds = np.median(it["timed"]["texts"]["seconds"], axis=-1)
    tokens = np.array(it["timed"]["texts"]["tokens"])
    best = it["gamma"].index(it["best_gamma"])
    return [seconds[0], tokens[best]], [seconds[best], tokens[0]]
