"""A row of a tiny pair: predicted of other prompts, then measured, and shown."""

import numpy as np
import pytest

from experiments.serving import expect, measure
from experiments.serving.parts import LoadSetting
from specjax.measure.pairs import Task
from specjax.prompts import Prompts
from tests.support.tiny_pair import pair

PROMPTS = Prompts([[1, i] for i in range(10)])
SMALL = LoadSetting(gammas=(0, 2), batches=(2,), rows=2, requests=12, rounds=1)
SMALL = SMALL._replace(least=2, most=12, others=4)


def build(setting: LoadSetting, prompts: Prompts = PROMPTS):
    return measure.build(*pair(), setting, "mine", lambda *_: Task(prompts, ()))


@pytest.mark.slow
def test_a_row():
    it = build(SMALL).run()
    assert it["gamma"] == 2 and 24 <= it["tokens"] <= 144
    for mode in ("refill", "wait", "open"):
        for who in ("plain", "drafted"):
            name = f"{mode}_{who}"
            assert it[f"{name}_p50"] <= it[f"{name}_p95"]
            ratio = it[f"{name}_rate"] / it[f"{name}_rate_predicted"]
            assert it[f"{name}_rate_ratio"] == pytest.approx(ratio)
            assert 0.01 < ratio < 100  # seconds, and not milliseconds
    plain, drafted = it["by_batch"]
    assert plain["given"] == 1 < drafted["given"] <= 3
    assert (plain["speedup"], plain["v"], plain["c"]) == (1.0, 1.0, None)
    assert len(it["loads"]) == 2 * len(expect.SHARES)
    asked = measure.requests(PROMPTS, np.array([3, 4]), SMALL)[0]
    assert asked.tokens[:, :2].tolist() == PROMPTS.tokens[4:6]  # of no other prompt


@pytest.mark.parametrize(
    ("setting", "prompts", "why"),
    [
        (SMALL._replace(gammas=(1, 2)), PROMPTS, "gammas must ascend from 0"),
        (SMALL._replace(rows=4), PROMPTS, "rows be one of them"),
        (SMALL._replace(requests=11), PROMPTS, "requests must fill batches of 2"),
        (SMALL._replace(others=10), PROMPTS, "more than 10 prompts of at most"),
        (SMALL._replace(longest=1), PROMPTS, "prompts of at most 1 tokens"),
        (SMALL, PROMPTS._replace(inputs=[[1]] * 10), "for a decoder alone"),
    ],
)
def test_what_cannot_be_measured_is_told_at_once(setting, prompts, why):
    with pytest.raises(ValueError, match=why):
        build(setting, prompts)
