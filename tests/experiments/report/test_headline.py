"""The table at the top of README shows the right records of a pair."""

import copy

from experiments.report import headline, names, runs, spec_bench, tables
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
    assert runs.spread(runs.all_records(results), RECORD) == "2.00 to 3.00 in 2 runs"
    assert runs.spread(runs.all_records({"a": {"r": RECORD}}), RECORD) == "1 run"
    lower = runs.median_record(runs.all_records(results), RECORD)  # of two
    assert lower == RECORD
    results["d"] = {"r": change_products(best_speedup=2.5)}
    assert runs.median_record(runs.all_records(results), RECORD) == results["d"]["r"]
    assert runs.median_record(runs.all_records({}), RECORD) == RECORD


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
    assert runs.spread(runs.all_records(results), ours) == "2.00 to 5.00 in 3 runs"
    shown = headline.headline_records(results)[(spec_bench.CODER, 0)]
    assert shown["measured"]["best_speedup"] == 3.0


def test_memory_stands_beside_speed_where_every_task_has_it():
    def tasks(*sizes):
        rows = {}
        for name, size in zip(("coding_t0", "math_t0"), sizes, strict=True):
            rows[name] = measured_task("d", (2.0, 1.0))
            rows[name]["measured"] |= {"memory_mb": size} if size else {}
        return {spec_bench.CODER: rows}

    at = spec_bench.CODER, 0
    assert headline.memory(tasks([900.0, 1200.4], [910.4, 1100.0]), at) == "1,200 (910)"
    assert headline.memory(tasks([900.0, 1200.4], None), at) == ""


def test_all_tasks_together_have_a_line_for_each_pair_and_run():
    """README's first number is among them."""
    tasks = {"coding_t0": measured_task("d", (2.0, 1.0))}
    tasks["math_t0"] = tasks["coding_t0"]
    again = {row: measured_task("d", (3.0, 1.0)) for row in tasks}
    small = {"qa_t1": measured_task("e", (1.0, 1.0))}
    small["qa_t1"]["measured"]["temperature"] = 1.0
    folder = spec_bench.CODER
    results = {folder: tasks, f"noon/{folder}": again, spec_bench.FOLDER: small}
    (grid,) = spec_bench.details(results)
    cells = [dict(zip(grid.head, row, strict=True)) for row in grid.rows]
    keys = "pair", "T", "run", "tasks", "questions"
    assert [tuple(it[key] for key in keys) for it in cells] == [
        ("t with e", "1", "", "1", "2"),
        ("t with d", "0", "", "2", "4"),
        ("t with d", "0", "noon", "2", "4"),
    ]
    assert [it["speed [95 %]"][:1] for it in cells] == ["1", "2", "3"]


def test_published_models_have_readable_names():
    coder = "qwen2.5-coder-{}b-instruct-q4_k_m"
    for pair, words in (
        ((coder.format("1.5"), coder.format("0.5")), "Qwen2.5-Coder 1.5B with 0.5B"),
        (("smollm2", "smollm2_draft"), "SmolLM2-135M with smollm2_draft"),
        (
            ("smollm2", "smollm2, int8 cache"),
            "SmolLM2-135M with itself, int8 cache",
        ),
        (
            ("whisper-base", "whisper-base, 4 layers"),
            "Whisper base with its first 4 layers",
        ),
    ):
        target, draft = pair
        assert names.pair_of_models(target, draft) == words


def test_rows_of_questions_are_runs_of_each_other_only_under_one_name():
    questions = copy.deepcopy(RECORD) | {"row": "news_t0"}
    questions["measured"]["group"] = questions["measured"].pop("task")
    other = questions | {"row": "passages_t0"}
    results = {"a": {"news_t0": questions, "passages_t0": other}}
    assert runs.spread(runs.all_records(results), questions) == "1 run"
    results["noon/a"] = {"news_t0": questions}
    assert runs.spread(runs.all_records(results), questions) == "2.00 to 2.00 in 2 runs"


def test_the_note_names_every_machine():
    device = {"platform": "cpu", "kind": "cpu", "count": 1, "host_cores": 2}
    origin = {"date": "2026-11-29", "versions": {}}
    record = copy.deepcopy(RECORD) | {"scale": "laptop", "row": "r"}
    other = copy.deepcopy(record)
    record["provenance"] |= origin | {"device": device}
    known = device | {"processor": {"model": "AMD EPYC"}}
    other["provenance"] |= origin | {"device": known}
    found = {("a", "r"): record, ("b", "r"): other}
    said = "AMD EPYC, 2 cores and a CPU of 2 cores whose model was not recorded, 2026"
    assert said in headline.note({}, found)
