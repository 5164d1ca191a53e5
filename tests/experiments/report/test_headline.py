"""The table at the top of README shows the right records of a pair."""

import copy

from experiments.report import runs

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
