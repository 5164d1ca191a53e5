"""The spread of a pair's speed over all of its records.

A row is measured again at another hour by `python -m experiments.run --out
results/runs/NAME FILE.gin:ROW`: a folder for each run.
"""

from collections.abc import Mapping, Sequence

from experiments.records.table import Records
from experiments.report import spec_bench
from specjax.measure.texts import CUTS


def spread(every: Sequence[dict], record: dict) -> str:
    """Returns in words the lowest and the highest speed in all records of a pair, and
    the number of records.

    every: of `all_records`, here and below.
    """
    found = speeds(every, record)
    if len(found) == 1:
        return "1 run"
    return f"{found[0]:.2f} to {found[-1]:.2f} in {len(found)} runs"


def median_record(every: Sequence[dict], record: dict) -> dict:
    """Returns the record of a pair whose speed is the median of all, the lower of two
    in the middle."""
    found = [each for each in every if same_setup(each, record)] or [record]
    found.sort(key=lambda each: record_speed(each["measured"]) or 0)
    return found[(len(found) - 1) // 2]


def speeds(every: Sequence[dict], record: dict) -> list[float]:
    """Returns the speeds in all records of a pair, the lowest first.

    They have the same models, task, length of texts, temperature, truncation, rule,
    policy and batch, each at its best gamma. They differ in the machine, the day and
    the texts.
    """
    found = [each["measured"] for each in every if same_setup(each, record)]
    known = map(record_speed, found or [record["measured"]])
    return sorted(x for x in known if x is not None)


def all_records(results: Records) -> list[dict]:
    """Returns every record, and one of all tasks for each run of Spec-Bench."""
    found = [each for rows in results.values() for each in rows.values()]
    for folder in results:
        if folder.rpartition("/")[2] in spec_bench.FOLDERS:
            whole = (spec_bench.combine_tasks(results, heat, folder) for heat in (0, 1))
            found += [record for record in whole if record is not None]
    return found


def same_setup(record: dict, other: dict) -> bool:
    """Returns whether two records timed the same pair in the same way."""
    if record_speed(record["measured"]) is None:
        return False
    products = (each["provenance"].get("products") for each in (record, other))
    return len(set(products)) == 1 and setup_key(record) == setup_key(other)


def setup_key(record: dict) -> tuple:
    """Returns what was decoded and how, without gamma, machine, date and number of
    texts. Rows of questions differ in what is asked, which their names say.
    """
    it = record["measured"]
    models = str(it.get("target")), str(it.get("draft"))
    rule, policy = it.get("rule", "token"), it.get("policy", "none")
    task, batch = it.get("task") or it.get("group"), it.get("batch", 1)
    texts = (it.get(key) for key in ("tasks", "new_tokens", "ends", *CUTS))
    asked = record.get("row") if "group" in it and "tasks" not in it else None
    return *models, task, asked, *texts, it.get("temperature"), rule, policy, batch


def record_speed(it: Mapping) -> float | None:
    return it.get("best_speedup", it.get("speed"))
