"""The table that opens README: what it shows of all records of a pair."""

import copy

from experiments.report import runs

RECORD = {
    "measured": {
        **{"target": "t", "draft": "d", "task": "code", "temperature": 0.0},
        **{"rule": "token", "policy": "none", "batch": 1, "best_speedup": 2.0},
    },
    "provenance": {"products": "thin"},
}


def other(products="thin", **changed):
    record = copy.deepcopy(RECORD)
    record["measured"] |= changed
    record["provenance"]["products"] = products
    return record


def test_all_runs_are_those_of_the_same_pair_in_the_same_way():
    results = {
        "a": {"r": RECORD},
        "b": {"r": other(best_speedup=3.0), "batch": other(batch=8, best_speedup=9.0)},
        "c": {
            "rule": other(rule="block", best_speedup=9.0),
            "policy": other(policy="adaptive", best_speedup=9.0),
            "short": other(new_tokens=8, best_speedup=9.0),
            "cut": other(top_k=40, best_speedup=9.0),
            "warm": other(temperature=1.0, best_speedup=9.0),
            "xla": other("xla", best_speedup=9.0),
            "counts": {"measured": {"alpha": 0.5}, "provenance": {}},
        },
    }
    assert runs.spread(results, RECORD) == "2.00 to 3.00 in 2 runs"
    assert runs.spread({"a": {"r": RECORD}}, RECORD) == "1 run"
