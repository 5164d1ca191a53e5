"""Rows for several tasks of Spec-Bench, put together from the records of the tasks."""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.records.table import Records
from experiments.report import names
from experiments.report.columns import grid
from experiments.report.typeset import Grid
from specjax.theory import estimate, speedup

FOLDER = "spec_bench"
WAYS = "alone", "drafted"
WAY = "target", "draft", "temperature", "gamma", "rule"


# The tasks of another folder whose rows have the same form, drafted by one model.
CODER, CODER_TASKS = "real_pair", ("coding", "math")
FOLDERS = FOLDER, CODER


def combine_tasks(
    records: Records, temperature: int, folder: str = FOLDER
) -> dict | None:
    """Returns a record of all tasks at a temperature, dated as the first of them; None
    if none was measured.

    folder: FOLDER, or CODER, of which the tasks are CODER_TASKS; or one of a further
      run (`tables.collect`).
    """
    ending = f"_t{temperature}"
    wanted = {f"{task}{ending}" for task in CODER_TASKS}
    rows = [
        record
        for name, record in sorted(records.get(folder, {}).items())
        if (name.endswith(ending) if folder.endswith(FOLDER) else name in wanted)
    ]
    return combine(rows) if rows else None


def combine(rows: Sequence[dict]) -> dict:
    """Returns a record of all tasks that these records measured, dated as the first of
    them.

    Every question has the same weight, whatever its task.
    """
    each = [record["measured"] for record in rows]
    speeds = {
        way: np.concatenate([question_rates(it, way) for it in each]) for way in WAYS
    }
    turns = [turn for it in each for turn in it["turns"]]
    value, error = speedup.ratio([speeds["drafted"]], [speeds["alone"]])
    sums = (
        np.array([sum(turn[key]) for turn in turns]) for key in ("accepted", "tested")
    )
    alpha = estimate.counts(*sums)
    calls = sum(len(turn["lengths"]) for turn in turns)
    written = sum(sum(turn["lengths"]) for turn in turns)
    # What it would be by calls alone: their times are those of each task's row.
    spent = sum(
        it["calls"] * it["tokens_per_call"] / it["speed_by_calls"] for it in each
    )
    first, sizes = each[0], [it.get("memory_mb") for it in each]
    return {
        **rows[0],
        "measured": {
            **{key: first[key] for key in WAY},
            "tasks": len(rows),
            "texts": len(turns),
            "questions": len(speeds["alone"]),
            "best_speedup": value,
            "best_speedup_ci": speedup.interval(value, error, len(speeds["alone"])),
            "speed_by_calls": written / spent,
            "tokens_per_call": written / calls,
            "tokens_per_second": {way: rate(turns, way) for way in WAYS},
            "alpha": alpha.value,
            "alpha_se": alpha.se,
            "memory_mb": None if None in sizes else np.max(sizes, axis=0).tolist(),
            "repeated": float(np.average([it["repeated"] for it in each])),
        },
    }


def rate(turns: list[dict], way: str) -> float:
    """Returns the tokens per second over all questions, each at its median over
    rounds."""
    seconds = sum(float(np.median(turn["seconds"][way])) for turn in turns)
    return sum(turn["tokens"][way] for turn in turns) / seconds


def question_rates(measured: dict, way: str) -> np.ndarray:
    """Returns the tokens per second of each question of a row, medians over rounds."""
    spent, tokens = {}, {}
    for turn in measured["turns"]:
        named = turn["id"]
        median = float(np.median(turn["seconds"][way]))
        spent[named] = spent.get(named, 0.0) + median
        tokens[named] = tokens.get(named, 0) + turn["tokens"][way]
    return np.array([tokens[named] / spent[named] for named in spent])


def details(records: Records) -> list[Grid]:
    """Returns the table of all tasks together of each pair, which belongs to the lines
    of the tasks; further runs of a pair have lines of their own."""
    return grid("spec_bench", all_tasks(records))


def all_tasks(records: Records) -> Iterator[dict]:
    """Yields the numbers of all tasks together, of each pair, run and temperature."""
    for name in FOLDERS:
        further = (key for key in records if key.endswith(f"/{name}"))
        for folder in (name, *sorted(further)):
            for temperature in (0, 1):
                record = combine_tasks(records, temperature, folder)
                if record is not None:
                    it = record["measured"]
                    pair = names.pair_of_models(it["target"], it["draft"])
                    yield it | {"pair": pair, "run": folder.rpartition("/")[0]}
