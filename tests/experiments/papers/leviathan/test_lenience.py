"""alpha as a function of lenience: Table 5 and Appendix A.5, on tiny models.

Axes: V vocabulary, N pairs of laws, K values of l.
"""

import functools
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue, tasks
from experiments.papers.leviathan import lenience
from experiments.records import markup, records, table
from experiments.report import details
from specjax import configs, sides
from specjax.measure import lenience as bench
from specjax.measure import scoring, texts
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.theory import closed_forms
from specjax.verifiers import lenient
from tests.support import gin_rows, tiny
from tests.support.tiny_pair import (
    PROMPTS,
    SMALL,
    generated,
    law,
    logits,
    pair,
    relative,
)

pytestmark = pytest.mark.slow

LEVELS = (1.0, 0.5, 0.3, 0.1)
COLD = (1.0, 0.3)  # enough at temperature 0
PAPER = table.papers()["leviathan2023"]["table5_lenience"]
ROWS_WITH_SPEEDS = [f"{it}_small_t{heat}" for it in ("ende", "gpt") for heat in (0, 1)]
ROWS = records.rows("table5")


@pytest.fixture(autouse=True)
def prompts(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "tiny", lambda: tasks.Task(PROMPTS, [], ()))


@functools.cache
def written(temperature: float) -> texts.Text:
    return texts.write(pair()[0], PROMPTS, Protocol("tiny", temperature, **SMALL))


def random_laws(seed: int, count: int = 400, vocab: int = 6):
    rng = np.random.default_rng(seed)
    p, q = rng.gamma(0.5, size=(2, count, vocab))
    return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)


@pytest.mark.parametrize("level", [0.7, 0.1])
def test_the_law_of_a_drafted_token(level):
    """At most p / l; beta_l - beta_1 from p, and never less by another residual."""
    p, q = random_laws(1)
    beta = bench.acceptance(p, q, level)
    least = beta - closed_forms.acceptance(p, q)
    law = bench.output_law(p, q, level)
    np.testing.assert_allclose(law.sum(-1), 1)
    assert np.all(law <= p / level + 1e-12)
    np.testing.assert_allclose(closed_forms.divergence(law, p), least, atol=1e-12)
    scaled = bench.output_law(p, q, level, "scaled")
    assert np.all(scaled <= p / level + 1e-12)
    apart = closed_forms.divergence(scaled, p)
    assert np.all(apart >= least - 1e-12) and np.any(apart > least + 0.01)
    # A draw from p after a rejection breaks the bound.
    broken = np.minimum(p / level, q) + (1 - beta)[:, None] * p
    assert np.mean(np.any(broken > p / level + 1e-9, axis=-1)) > 0.2


def test_closed_forms_at_the_ends():
    p, q = random_laws(2)
    np.testing.assert_allclose(bench.output_law(p, q, 1.0), p)
    np.testing.assert_allclose(bench.output_law(p, q, 1e-9), q, atol=1e-4)
    strict = bench.acceptance(p, q, 1.0)
    np.testing.assert_array_equal(strict, closed_forms.acceptance(p, q))
    assert bench.acceptance([0.5, 0.5], [1.0, 0.0], 0.5) == 1.0
    np.testing.assert_allclose(bench.output_law(p, p, 0.5), p)


def test_what_is_no_law_or_no_lenience_is_refused():
    with pytest.raises(ValueError, match="must sum to 1"):
        bench.acceptance([0.5, 0.4], [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match=r"lenience must be in \(0, 1\]"):
        bench.acceptance([0.5, 0.5], [0.5, 0.5], 0.0)
    with pytest.raises(ValueError, match="residual must be one of"):
        bench.output_law([0.5, 0.5], [0.5, 0.5], 0.5, "p")
    with pytest.raises(ValueError, match="1 is strict; got 2"):
        bench.score(pair(), written(1.0), 1.0, [1.0, 2.0])


def test_speeds_at_the_papers_gamma_and_at_the_best():
    cold = PAPER["temperature_0"]
    c, gamma = cold["c"], cold["gamma"]
    implied = [bench.implied(alpha, c, gamma) for alpha in cold["alpha_t5_small"]]
    assert [round(it.speed, 1) for it in implied] == cold["improvement"]
    assert {it.gamma for it in implied} == {8}
    best = [bench.implied(alpha, 0.015) for alpha in PAPER["alpha"]["t5_small"]]
    assert [it.gamma for it in best] == [7, 9, 10, 15]
    assert bench.implied(0.01, 0.015) == (0, 1.0)
    assert bench.implied(1.0, 0.02) == (None, 50.0)
    assert bench.implied(1.0, 0.0) == (None, None)
    assert bench.implied(1 + 1e-6, 0.0, 8).speed == 9


def by_hand(temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """beta_l [M, K] and log p_raw [M] of each token, in float64."""
    text = written(temperature)
    z_p, z_q = (logits(side, text) for side in pair())
    each, tokens = np.arange(len(z_p)), text.tokens[generated(text)]
    log_p = np.log(law(z_p, 1.0)[each, tokens])
    if temperature == 0:
        near = relative(z_p)[each, z_q.argmax(-1)]
        return np.stack([near >= level for level in LEVELS], -1), log_p
    p, q = (law(z, temperature) for z in (z_p, z_q))
    betas = [np.minimum(p / level, q).sum(-1) for level in LEVELS]
    return np.stack(betas, -1), log_p


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_scores_are_what_one_computes_by_hand(temperature):
    scores = bench.score(pair(), written(temperature), temperature, LEVELS)
    betas, log_p = by_hand(temperature)
    np.testing.assert_allclose(scores.beta, betas, atol=2e-5)
    np.testing.assert_allclose(scores.log_p, log_p, atol=1e-4)
    plain = scoring.score(*pair(), written(temperature), temperature)
    np.testing.assert_allclose(scores.strict, plain.beta, atol=1e-6)
    np.testing.assert_array_equal(scores.sequence, plain.sequence)
    assert scores.beta[:, -1].mean() > scores.beta[:, 0].mean() + 0.05


def test_alpha_of_one_level_and_log_probability():
    text = written(1.0)
    scores = bench.score(pair(), text, 1.0, LEVELS)
    alone, among = bench.alpha(*pair(), text, 1.0, 0.3), bench.alphas(scores)[2]
    assert alone == pytest.approx(among, abs=1e-6)
    log_p = bench.log_probability(scores)
    assert log_p.value == pytest.approx(scores.log_p.mean(), rel=1e-6)
    naive = scores.log_p.std(ddof=1) / np.sqrt(scores.log_p.size)
    assert log_p.naive_se == pytest.approx(naive, rel=1e-5) and log_p.se > 0


def test_what_a_run_wrote_stands_after_its_prompts():
    text, protocol = written(0.0), Protocol("tiny", 0.0, **SMALL)
    inputs = np.arange(12).reshape(4, 3), np.full(4, 3)
    calls = texts.speculate(pair(), PROMPTS, 4, protocol)
    whole = bench.outputs(text._replace(inputs=inputs), calls)
    for row, prompt, output in zip(range(4), PROMPTS.tokens, calls.texts, strict=True):
        start, length = whole.start[row], whole.length[row]
        assert whole.tokens[row, :start].tolist() == prompt
        np.testing.assert_array_equal(whole.tokens[row, start:length], output)
    np.testing.assert_array_equal(whole.length, text.length)  # the argmax text
    np.testing.assert_array_equal(whole.inputs[0], inputs[0])


def test_a_greedy_run_keeps_to_its_guarantee():
    """Every token that is emitted has at least l times the largest probability."""
    level, protocol = 0.3, Protocol("tiny", 0.0, **SMALL)
    kernels = sides.reference(lenient.build(level))
    calls = texts.speculate(pair(), PROMPTS, 4, protocol, kernels)
    text = bench.outputs(written(0.0), calls)
    shares = relative(logits(pair()[0], text))
    shares = shares[np.arange(len(shares)), text.tokens[generated(text)]]
    assert min(shares) >= level - 1e-4 and min(shares) < 1


# A pair whose acceptances are independent: every context has the same laws.
P = np.array([1e-4, 1e-4, 0.1, 0.45, 0.25, 0.15, 0.0498])
Q = np.array([1e-4, 1e-4, 0.2, 0.05, 0.05, 0.0998, 0.6])


@functools.cache
def independent() -> tuple:
    model = tiny.markov(P.size)
    logits = [jnp.tile(jnp.log(law), (P.size, 1)) for law in (P, Q)]
    named = zip("pq", logits, strict=True)
    return tuple(sides.of_model(name, model, z) for name, z in named)


@functools.cache
def independent_run(temperature: float, level: float):
    """Counts of a run with the model q, or at temperature 0 with uniform drafts."""
    target, draft = independent()
    draft = draft if temperature else sides.random(P.size)
    protocol = Protocol("", temperature, 2000, 3, 0, 20, 256)
    many = Prompts([[1]] * 256)
    text = texts.write(target, many, protocol)
    alpha = bench.alpha(target, draft, text, temperature, level)
    kernels, count = sides.reference(lenient.build(level)), len(text.start)
    calls = texts.speculate((target, draft), many, count, protocol, kernels)
    return alpha.value, lenience.counts(calls.accepted, calls.tested)


@pytest.mark.parametrize(("level", "other"), [(1.0, 0.5), (0.5, 0.1), (0.1, 0.5)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_run_accepts_alpha_l_of_what_it_tests(temperature, level, other):
    """And not alpha of another lenience."""
    alpha, counted = independent_run(temperature, level)
    near = np.sum(P / P.max() >= level) / P.size
    truth = near if temperature == 0 else np.minimum(P / level, Q).sum()
    assert alpha == pytest.approx(truth, abs=1e-5)
    assert counted.count > 1000
    assert abs(counted.value - alpha) < 4 * counted.se
    assert abs(counted.value - independent_run(temperature, other)[0]) > 6 * counted.se


@functools.cache
def measured(temperature: float) -> dict:
    protocol = Protocol("tiny", temperature, **SMALL)
    if temperature == 0:
        return lenience.measure(pair(), protocol, COLD, 0.015, 8)
    return lenience.measure(pair(), protocol, LEVELS, 0.015, None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_row_reports(temperature):
    row, levels = measured(temperature), LEVELS if temperature else COLD
    json.dumps(row, allow_nan=False)
    alphas = [row[f"alpha_l{level:g}"] for level in levels]
    assert alphas[-1] > alphas[0] and row["tv_l1"] == 0
    apart = row[f"tv_l{levels[-1]:g}"]
    assert apart == pytest.approx(alphas[-1] - alphas[0], abs=1e-6)
    for level, alpha in zip(levels, alphas, strict=True):
        implied = bench.implied(alpha, 0.015, None if temperature else 8)
        assert row[f"implied_gamma_l{level:g}"] == implied.gamma
        assert row[f"implied_speed_l{level:g}"] == implied.speed
    assert [ran["lenience"] for ran in row["runs"]] == list(levels)
    assert all(it["kernels"]["verify"] == "reference" for it in (row, *row["runs"]))
    for ran in row["runs"]:
        assert ran["counts"]["value"] == ran["accepted"] / ran["tested"]
        assert ran["target_calls"] <= ran["decoded_tokens"]
    own = [ran["alpha_own_text"]["value"] for ran in row["runs"]]
    assert own[-1] > own[0]
    if temperature == 0:  # the text is the target's own
        assert own[0] == pytest.approx(alphas[0], abs=1e-6)
        log_p = row["runs"][0]["log_p"]["value"]
        assert log_p == pytest.approx(row["log_p_target"]["value"], abs=1e-5)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((0.5, 0.1), "fall from 1"),
        ((1.0, 0.5, 0.5), "fall from 1"),
        ((1.0, 0.1, 0.5), "fall from 1"),
        ((), "fall from 1"),
        ((1.0, 0.0), r"in \(0, 1\]"),
    ],
)
def test_wrong_levels_are_refused(levels, message):
    protocol = Protocol("tiny", 1.0, **SMALL)
    with pytest.raises(ValueError, match=message):
        lenience.build(*pair(), protocol, levels, 0.015, None)
    with pytest.raises(ValueError, match="no law at every position"):
        lenience.build(pair()[0], sides.copied(), protocol, LEVELS, 0.015, None)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_what_was_published(row):
    built = configs.build(ROWS[row])
    _, protocol, levels, c, gamma = built.row.measurement.run.args
    assert built.row.measurement.module == "experiments.papers.leviathan.lenience"
    assert list(levels) == PAPER["lenience"] and c == PAPER["temperature_0"]["c"]
    hot = protocol.temperature == 1
    assert gamma == (None if hot else PAPER["temperature_0"]["gamma"])
    speeds = []
    if row.startswith("ende_small"):
        warm = PAPER["improvement_t5_small_c_0.015"]
        speeds = warm if hot else PAPER["temperature_0"]["improvement"]
    printed = gin_rows.printed(ROWS[row])
    told = re.findall(r"implied_speed_l[\d.]*\d = ([\d.]*\d)", printed)
    assert [float(speed) for speed in told] == speeds


def test_the_lines_are_those_of_the_paper_and_of_the_rows():
    """What is published stands beside its own task alone."""
    lines = catalogue.named("table5").lines
    ours = [line for line in lines if line.folder == "table5"]
    papers = [line for line in lines if line.folder == "table5_paper"]
    assert all(line.needs for line in papers) and not any(line.needs for line in ours)
    for line in ours:
        beside = line.quantity.startswith("alpha") and not line.row.startswith("gpt")
        assert (line.published is not None) == beside
    row = measured(1.0)
    assert all(line.quantity in row for line in lines)
    assert all(f"{line.quantity}_se" in row for line in lines)
    alphas = [*PAPER["alpha"].values(), PAPER["temperature_0"]["alpha_t5_small"]]
    printed = [line.published for line in papers]
    assert sorted(printed) == sorted(np.ravel(alphas).tolist())


def test_a_speed_at_a_c_that_is_not_ours_is_never_among_what_was_measured():
    """It stands apart, by its name, without a state such as `ok`."""
    table5 = {row: {"measured": measured(1.0)} for row in ROWS_WITH_SPEEDS}
    lines = catalogue.named("table5").lines
    assert not any("speed" in line.quantity + line.what for line in lines)
    parts = details.of("table5", {"table5": table5})
    (title, head, rows), (runs_title, runs_head, runs) = parts
    assert title.startswith("Hypothetical") and runs_title.startswith("Decoding runs")
    assert [line[1] for line in runs[:4]] == ["1", "0.5", "0.3", "0.1"]
    assert all(len(line) == len(runs_head) for line in runs)
    assert runs[0][0] == "target with draft, T = 1"
    speed, printed = head.index("speed if c were the paper's"), len(head) - 1
    shown = [row for row in rows if row[speed] != "not run"]
    assert len(shown) == 4 * len(ROWS_WITH_SPEEDS) and len(rows) == len(shown) + 8
    assert shown[0][speed] == markup.number(measured(1.0)["implied_speed_l1"])
    code = [row for row in rows if row[0].startswith("code_target")]
    assert len(code) == 8 and all(row[printed] == "" for row in code)
    speeds = [float(row[printed]) for row in rows if row not in code]
    hot = PAPER["improvement_t5_small_c_0.015"]
    assert speeds == [*hot, *hot, *2 * PAPER["temperature_0"]["improvement"]]
    assert not any("ok" in cell for row in rows for cell in row[1:])
