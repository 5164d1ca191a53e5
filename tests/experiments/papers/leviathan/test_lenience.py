"""alpha as a function of lenience: Table 5 and Appendix A.5, on tiny models."""

import functools
import json

import numpy as np
import pytest

from experiments import tasks
from experiments.papers.leviathan import lenience
from experiments.records import records, table
from specjax import configs
from specjax.drafts import retrieval
from specjax.measure import lenience as bench
from specjax.measure import scoring, texts
from specjax.measure.texts import Protocol
from tests.support.settings import make
from tests.support.tiny_pair import PROMPTS, SMALL, generated_places, law, logits, pair

pytestmark = pytest.mark.slow

LEVELS = (1.0, 0.5, 0.3, 0.1)
COLD = (1.0, 0.3)  # enough at temperature 0
PAPER = table.published_values()["leviathan2023"]["table5_lenience"]


@pytest.fixture(autouse=True)
def prompts(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "tiny", lambda: tasks.Task(PROMPTS, [], ()))


@functools.cache
def write_texts(temperature: float) -> texts.Text:
    return texts.write(
        pair()[0],
        PROMPTS,
        make(Protocol, task="tiny", temperature=temperature, **SMALL),
    )


def test_what_is_implied_at_the_ends_and_what_is_refused():
    assert bench.implied_optimum(1.0, 0.02) == (None, 50.0)
    assert bench.implied_optimum(1.0, 0.0) == (None, None)
    assert bench.implied_optimum(1 + 1e-6, 0.0, 8).speed == 9
    with pytest.raises(ValueError, match="1 is strict; got 2"):
        bench.score(pair(), write_texts(1.0), 1.0, [1.0, 2.0])


def compute_in_float64(temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns beta_l [M, K] and log p_raw [M] of each token, in float64."""
    text = write_texts(temperature)
    z_p, z_q = (logits(side, text) for side in pair())
    each, tokens = np.arange(len(z_p)), text.tokens[generated_places(text)]
    log_p = np.log(law(z_p, 1.0)[each, tokens])
    if temperature == 0:
        near = np.exp(z_p - z_p.max(-1, keepdims=True))[each, z_q.argmax(-1)]
        return np.stack([near >= level for level in LEVELS], -1), log_p
    p, q = (law(z, temperature) for z in (z_p, z_q))
    betas = [np.minimum(p / level, q).sum(-1) for level in LEVELS]
    return np.stack(betas, -1), log_p


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_scores_are_what_one_computes_by_hand(temperature):
    scores = bench.score(pair(), write_texts(temperature), temperature, LEVELS)
    betas, log_p = compute_in_float64(temperature)
    np.testing.assert_allclose(scores.beta, betas, atol=2e-5)
    np.testing.assert_allclose(scores.log_p, log_p, atol=1e-4)
    plain = scoring.score(*pair(), write_texts(temperature), temperature)
    np.testing.assert_allclose(scores.strict, plain.beta, atol=1e-6)
    np.testing.assert_array_equal(scores.sequence, plain.sequence)
    mean = bench.log_probability(scores)
    assert mean.value == pytest.approx(log_p.mean(), abs=1e-4) and mean.se > 0


@functools.cache
def measure_lenience(temperature: float) -> dict:
    protocol = make(Protocol, task="tiny", temperature=temperature, **SMALL)
    levels, gamma = (LEVELS, None) if temperature else (COLD, 8)
    return lenience.measure(pair(), protocol, levels=levels, c=0.015, gamma=gamma)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_row_reports(temperature):
    row, levels = measure_lenience(temperature), LEVELS if temperature else COLD
    json.dumps(row, allow_nan=False)
    alphas = [row[f"alpha_l{level:g}"] for level in levels]
    assert alphas[-1] > alphas[0] and row["tv_l1"] == 0
    apart = row[f"tv_l{levels[-1]:g}"]
    assert apart == pytest.approx(alphas[-1] - alphas[0], abs=1e-6)
    for level, alpha in zip(levels, alphas, strict=True):
        implied = bench.implied_optimum(alpha, 0.015, None if temperature else 8)
        assert row[f"implied_gamma_l{level:g}"] == implied.gamma
        assert row[f"implied_speed_l{level:g}"] == implied.speed
    assert [ran["lenience"] for ran in row["runs"]] == list(levels)
    for ran in row["runs"]:
        assert ran["counts"]["value"] == ran["accepted"] / ran["tested"]
    own = [ran["alpha_own_text"]["value"] for ran in row["runs"]]
    assert own[-1] > own[0]
    if temperature == 0:  # the text is the target's own
        assert own[0] == pytest.approx(alphas[0], abs=1e-6)
        log_p = row["runs"][0]["log_p"]["value"]
        assert log_p == pytest.approx(row["log_p_target"]["value"], abs=1e-5)


@pytest.mark.parametrize("levels", [(0.5,), (1.0, 0.5, 0.5), (), (1.0, 0.0)])
def test_wrong_levels_are_refused(levels):
    protocol = make(Protocol, task="tiny", temperature=1.0, **SMALL)
    with pytest.raises(ValueError, match=r"fall from 1|in \(0, 1\]"):
        lenience.build(*pair(), protocol, levels=levels, c=0.015, gamma=None)
    with pytest.raises(ValueError, match="no law at every position"):
        lenience.build(
            pair()[0], retrieval.copying(), protocol, levels=LEVELS, c=0.015, gamma=None
        )


def test_rows_are_of_the_papers_levels_and_c():
    for row in records.rows("table5").values():
        built = configs.build(row)
        run, cold = built.row.measurement.run, PAPER["temperature_0"]
        assert [*run.keywords["levels"]] == PAPER["lenience"]
        assert run.keywords["c"] == cold["c"]
        hot = run.args[1].decode.temperature == 1
        assert run.keywords["gamma"] == (None if hot else cold["gamma"])
