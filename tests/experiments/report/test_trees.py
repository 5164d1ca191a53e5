"""Trees beside chains."""

import pytest

from experiments.report import trees


def timed(draft: str, alone: list[float], drafted: list[float]) -> dict:
    seconds = [[[x] * 3 for x in each] for each in (alone, drafted)]
    texts = {"seconds": seconds, "tokens": [[8, 8], [8, 8]]}
    best = {"best_gamma": 4, "best_speedup": 1.0, "best_speedup_ci": [1.0, 1.0]}
    return {"draft": draft, "gamma": [0, 4], "timed": {"texts": texts}, **best}


def test_a_tree_is_told_over_its_own_chain_whatever_the_machine_did():
    rows = {
        "code_t0_chain": timed("small", [2.0, 2.0], [1.0, 1.0]),
        "code_t0_best": timed("tree", [5.0, 3.0], [1.5, 0.5]),  # four times as fast
        "ende_t0_chain": timed("other", [1.0, 1.0], [1.0, 1.0]),
    }
    (it,) = trees.compared(rows)
    assert it["pair"] == "code_t0" and it["tree_draft"] == "tree"
    assert it["over"] == pytest.approx(4 / 2)
    low, high = it["over_ci"]
    assert low < it["over"] < high
