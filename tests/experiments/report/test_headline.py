"""The table at the top of README shows the right records of a pair."""

import copy

from experiments.report import headline, runs, spec_bench, tables
from specjax.measure import jsonl

RECORD = {
    "measured": {
        **{"target": "t", "draft": "d", "task": "code", "temperature": 0.0},
        **{"rule": "token", "policy": "none", "batch": 1, "best_speedup": 2.0},
    },
    "provenance": {"products": "thin"},
}


def change_products(products="thin", **changed):
    record = copy.deepcopy(RECORD)
    record["measured"] |= changed
    record["provenance"]["products"] = products
    return record


def test_all_runs_are_those_of_the_same_pair_in_the_same_way():
    results = {
        "a": {"r": RECORD},
        "b": {
            "r": change_products(best_speedup=3.0),
            "batch": change_products(batch=8, best_speedup=9.0),
        },
        "c": {
            "rule": change_products(rule="block", best_speedup=9.0),
            "policy": change_products(policy="adaptive", best_speedup=9.0),
            "short": change_products(new_tokens=8, best_speedup=9.0),
            "cut": change_products(top_k=40, best_speedup=9.0),
            "warm": change_products(temperature=1.0, best_speedup=9.0),
            "xla": change_products("xla", best_speedup=9.0),
            "counts": {"measured": {"alpha": 0.5}, "provenance": {}},
        },
    }
    assert runs.spread(results, RECORD) == "2.00 to 3.00 in 2 runs"
    assert runs.spread({"a": {"r": RECORD}}, RECORD) == "1 run"
    assert runs.median_record(results, RECORD) == RECORD  # the lower of two
    results["d"] = {"r": change_products(best_speedup=2.5)}
    assert runs.median_record(results, RECORD) == results["d"]["r"]
    assert runs.median_record({}, RECORD) == RECORD


def measured_task(draft, seconds):
    """Returns a record of two questions of 10 tokens, which take so long alone and with
    a draft."""
    alone, drafted = seconds
    turn = {"lengths": [4, 6], "accepted": [3, 2], "tested": [4, 4]}
    turn |= {"tokens": {"alone": 10, "drafted": 10}}
    turn |= {"seconds": {"alone": [alone], "drafted": [drafted]}}
    it = {
        "target": "t",
        "draft": draft,
        "temperature": 0.0,
        "gamma": 4,
        "rule": "token",
    }
    it |= {"turns": [turn | {"id": i} for i in (1, 2)], "repeated": 0.0}
    it |= {"calls": 4, "tokens_per_call": 5.0, "speed_by_calls": 2.0}
    return {"measured": it, "provenance": {"date": "2026-11-29"}}


def test_tasks_of_the_published_pair_are_put_together_without_those_of_copying():
    rows = {"coding_t0": measured_task("d", (2.0, 1.0))}
    rows |= {"math_t0": measured_task("d", (2.0, 1.0))}
    rows |= {"coding_copied_t0": measured_task("copying", (1.0, 2.0))}
    rows |= {"coding_t1": measured_task("d", (1.0, 2.0)), "walltime_t0": {}}
    folder = spec_bench.CODER
    it = headline.find_record({folder: rows}, folder, 0)["measured"]
    assert (it["best_speedup"], it["questions"], it["tasks"]) == (2.0, 4, 2)
    assert it["alpha"] == 5 / 8 and (folder, 0) in headline.ROWS
    assert headline.find_record({}, folder, 0) is None


def test_a_further_run_of_spec_bench_counts_where_it_has_all_tasks(tmp_path):
    def run_at(folder, seconds, tasks=("coding_t0", "math_t0")):
        for task in tasks:
            record = measured_task("d", seconds) | {"row": task}
            jsonl.append(folder / f"{spec_bench.CODER}.jsonl", record)

    run_at(tmp_path, (2.0, 1.0))
    run_at(tmp_path / "runs" / "noon", (3.0, 1.0))
    run_at(tmp_path / "runs" / "night", (5.0, 1.0))
    run_at(tmp_path / "runs" / "stopped", (9.0, 1.0), ("coding_t0",))
    results = tables.collect(tmp_path)
    assert set(results) == {
        spec_bench.CODER,
        *(f"{name}/{spec_bench.CODER}" for name in ("noon", "night", "stopped")),
    }
    ours = headline.find_record(results, spec_bench.CODER, 0)
    assert runs.spread(results, ours) == "2.00 to 5.00 in 3 runs"
    shown = headline.headline_records(results)[(spec_bench.CODER, 0)]
    assert shown["measured"]["best_speedup"] == 3.0
