"""Tasks of Spec-Bench put together."""

import pytest

from experiments.report import spec_bench


def turn(id: int, seconds: float, lengths: list[int]) -> dict:
    """Alone it took a second; a draft of two tokens a call."""
    tokens = sum(lengths)
    times = {"alone": [1.0, 3.0, 1.0], "drafted": [seconds, 9.0, seconds]}
    written = dict(alone=tokens, drafted=tokens)
    kept = dict(accepted=[n - 1 for n in lengths], tested=[2 for _ in lengths])
    return {"id": id, "seconds": times, "lengths": lengths, "tokens": written, **kept}


def row(*turns: dict, by_calls: float) -> dict:
    calls = sum(len(it["lengths"]) for it in turns)
    tokens = sum(sum(it["lengths"]) for it in turns)
    measured = {"target": "a", "draft": "b", "temperature": 0.0, "gamma": 2}
    measured |= {"calls": calls, "tokens_per_call": tokens / calls, "repeated": 0.25}
    measured |= {"turns": turns, "speed_by_calls": by_calls}
    return {"measured": measured, "provenance": {"date": "2026-01-01"}}


RECORDS = {
    "spec_bench": {
        "qa_t0": row(turn(1, 0.5, [3, 1]), turn(1, 0.5, [2]), by_calls=1.5),
        "rag_t0": row(turn(7, 1.0, [1, 1]), by_calls=1.0),
    }
}


def test_every_question_weighs_the_same():
    whole = spec_bench.whole(RECORDS, 0)["measured"]
    # Question 1: six tokens in two seconds and in one; question 7: two in one.
    assert whole["best_speedup"] == pytest.approx((6 + 2) / (3 + 2))
    assert whole["questions"] == 2 and whole["texts"] == 3 and whole["tasks"] == 2
    assert whole["tokens_per_call"] == 8 / 5 and whole["alpha"] == 3 / 10
    assert whole["speed_by_calls"] == pytest.approx(8 / (6 / 1.5 + 2 / 1.0))
    assert spec_bench.whole(RECORDS, 1) is None
