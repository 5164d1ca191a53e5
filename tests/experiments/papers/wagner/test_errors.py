"""What times of texts of different lengths say, and errors of a single prompt or
round."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.papers.chen import decoding, humaneval
from experiments.papers.chen.sandbox import Outcome
from experiments.papers.chen.setting import ChenSetting
from experiments.papers.wagner import runs, timing
from experiments.report import methods
from specjax.prompts import Prompts


def test_texts_of_half_the_length_are_no_faster_by_the_token():
    rng = np.random.default_rng(0)
    tokens = rng.integers(20, 40, 12).astype(float)
    base = {"tokens": tokens, "seconds": 2e-3 * tokens}
    run = {"tokens": tokens / 2, "seconds": 1e-3 * tokens}
    found = runs.reductions(run, base, prompts=12)
    assert found["reduction"][0] == pytest.approx(0.5)
    assert found["token_reduction"] == (pytest.approx(0), pytest.approx(0, abs=1e-12))
    same = runs.reductions(base, base, prompts=12)
    assert same == {"reduction": (0, 0), "token_reduction": (0, 0)}


def test_errors_of_reductions_are_over_prompts():
    """Texts of a prompt that are all alike tell as much as one of them."""
    rng = np.random.default_rng(0)
    once = [
        {"tokens": rng.uniform(20, 40, 5), "seconds": rng.uniform(1, 2, 5)}
        for _ in range(2)
    ]
    often = [{name: np.tile(x, 10) for name, x in it.items()} for it in once]
    wanted = runs.reductions(*once, prompts=5)
    for name, (value, error) in runs.reductions(*often, prompts=5).items():
        assert (value, error) == pytest.approx(wanted[name]) and error > 0
    alone = runs.reductions(*often, prompts=1)
    assert alone["reduction"][1] is None and alone["token_reduction"][1] is None


def test_the_interval_of_chens_speed_is_over_prompts(monkeypatch):
    rng = np.random.default_rng(0)
    once = [
        {"tokens": rng.uniform(20, 40, 4), "seconds": rng.uniform(1, 2, 4)}
        for _ in range(2)
    ]

    def interval(repeats: int, prompts: int) -> list[float]:
        measured = [{k: np.tile(x, repeats) for k, x in it.items()} for it in once]
        ways = dict(zip(decoding.WAYS, measured, strict=True))
        monkeypatch.setattr(decoding, "measure_in_turns", lambda *_: ways)
        monkeypatch.setattr(decoding, "task_batch", lambda *_: None)
        monkeypatch.setattr(decoding.costs, "decode", lambda *_: None)
        setting = ChenSetting("", "rouge", timed=4 * repeats)
        task = SimpleNamespace(prompts=Prompts([[1]] * prompts))
        told = decoding.walltimes(None, task, setting, 4 * repeats)
        return told["speed_interval"]

    assert interval(6, 4) == pytest.approx(interval(1, 4))
    assert np.ptp(interval(6, 24)) < 0.5 * np.ptp(interval(6, 4))


def test_a_record_without_times_of_a_token_gets_them():
    older = {"wall_ms_a_token_baseline": 4.0, "wall_ms_a_token_exact": 3.0}
    newer = {"wall_token_reduction_exact": 24.0}
    assert methods.update_record(older)["wall_token_reduction_exact"] == 25
    assert methods.update_record(older | newer)["wall_token_reduction_exact"] == 24
    assert methods.update_record({"alpha": 0.5}) == {"alpha": 0.5}
    # The same texts have the error of their whole times, others have none.
    same = older | {"wall_reduction_exact": 25.0, "wall_reduction_exact_se": 0.5}
    assert methods.update_record(same)["wall_token_reduction_exact_se"] == 0.5
    other = same | {"wall_reduction_exact": 40.0}
    assert "wall_token_reduction_exact_se" not in methods.update_record(other)


def test_a_single_prompt_or_round_has_no_error():
    sample = runs.Sample(
        Prompts([[1]]), ["a b"], 1.0, repeats=2, seed=0, new_tokens=2,
        decode=lambda ids: "a b" if ids[0] else "c",
    )  # fmt: skip
    run = runs.Run(None, [np.array([1]), np.array([0])])
    told = runs.rouge1(run, sample)
    assert told == {"rouge1": 0.5, "rouge1_se": None, "rouge1_by_prompt": [0.5]}
    assert timing.spread(np.array([2.0]))["deviation"] is None
    outcomes = [Outcome(True, ""), Outcome(False, "x: y")]
    assert humaneval.pass_at_1(outcomes, 1)["pass1_se"] is None
    assert humaneval.pass_at_1(outcomes, 2)["pass1_se"] == pytest.approx(0.5)
