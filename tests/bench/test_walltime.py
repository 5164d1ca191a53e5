"""Walltime: what is timed is what decodes, and what is predicted follows from it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, keys, verifiers
from specjax.bench import costs, inside, parts, players, timing, walltime
from specjax.bench.parts import DECODE, DRAFT, LOOPS, PREFILL, SAMPLES, TARGET
from specjax.bench.texts import Prompts
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder, score
from specjax.theory import closed_forms
from specjax.types import Params, Request
from tests.support import tiny

pytestmark = pytest.mark.slow

PROMPTS = Prompts([[1], [1, 5, 9], [1, 20], [1, 7, 7, 8, 3], [1, 4], [1, 9, 9, 2]])
NEW = 32  # tokens of a text, enough to be timed
SETTING = walltime.WalltimeSetting(
    0.0, 2, (0, 1, 2, 3), NEW, texts=4, others=4, rounds=2
)
DRAFTING, OWN = 0.5e-3, 0.2e-3  # seconds that a draft adds to a step, that a token does


@pytest.fixture(scope="module")
def pair():
    world = tiny.transformers()
    return (
        players.of_model("target", world.target, world.target_weights),
        players.of_model("draft", world.draft, world.draft_weights),
    )


def by_the_clock(programs, rounds, label, warm, after=None):
    """Runs each program once; its seconds are made up, so that no other work on the
    machine can disturb a test."""
    del label, warm, after
    seconds = {}
    for (kind, gamma, index), program in programs.items():
        out = jax.block_until_ready(program())
        step = 2e-3 + OWN * gamma
        time = {PREFILL: 1e-3, TARGET: LOOPS * step / 2, DRAFT: LOOPS * 2e-4 * gamma}
        if kind == DECODE:
            drafted = bool(np.any(out.counts.drafted))
            whole = step + drafted * (1e-3 + DRAFTING * gamma)
            time[kind] = 1e-3 + whole * int(out.counts.calls.max())
        jitter = 1 + 0.01 * np.arange(rounds)
        seconds[kind, gamma, index] = time[kind] * jitter
    return seconds


@pytest.fixture(scope="module", params=[(0.0, None), (1.0, 12)])
def row(request, pair):
    temperature, top_k = request.param
    setting = SETTING._replace(temperature=temperature, top_k=top_k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "interleaved", by_the_clock)
        return walltime.measure(*pair, PROMPTS, setting)


def test_the_rounds_so_far_make_a_row(pair, monkeypatch):
    def one_after_the_other(programs, rounds, label, warm, after=None):
        seconds = by_the_clock(programs, rounds, label, warm)
        if after:
            after({name: each[:1] for name, each in seconds.items()})
        return seconds

    monkeypatch.setattr(timing, "interleaved", one_after_the_other)
    kept, setting = [], SETTING._replace(gammas=(0, 1), new_tokens=4)
    whole = walltime.measure(*pair, PROMPTS, setting, so_far=kept.append)
    (row,) = kept
    assert (row["rounds"], whole["rounds"]) == (1, 2) and row.keys() == whole.keys()
    same = "alpha", "steps", "best_gamma", "same_greedy_texts"
    assert [row[name] for name in same] == [whole[name] for name in same]
    assert row["seconds"][1] < whole["seconds"][1]  # whose median has a second round


def test_programs_run_in_turns_after_the_warm_ones():
    ran = []
    programs = {
        name: lambda name=name: ran.append(name) or jnp.zeros(()) for name in "ab"
    }
    rounds = []  # every one but the last is reported when it is done

    def after(seconds):
        rounds.append(seconds["a"].size)

    seconds = timing.interleaved(programs, 3, warm=[programs["b"]], after=after)
    assert "".join(ran) == "b" + "ab" * 3
    assert {name: len(each) for name, each in seconds.items()} == {"a": 3, "b": 3}
    assert all((each > 0).all() for each in seconds.values()) and rounds == [1, 2]
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        timing.interleaved(programs, 0)


def test_an_interval_draws_the_same_rounds_of_every_sample():
    slow = np.random.default_rng(0).uniform(1, 9, 40)

    def ratio(a, b):
        return np.sum(a) / np.sum(b)

    together = timing.interval(ratio, (2 * slow, slow))
    np.testing.assert_allclose(together, 2)
    low, high = timing.interval(ratio, (2 * slow, slow[::-1].copy()))
    assert low < 2 - 0.05 and high > 2 + 0.05
    # The percentile interval of a mean is about 1.96 standard errors to each side.
    low, high = timing.interval(np.mean, (slow,))
    se = slow.std() / np.sqrt(slow.size)
    np.testing.assert_allclose(
        [low, high], slow.mean() + 1.96 * se * np.array([-1, 1]), rtol=0.03
    )


@pytest.fixture(scope="module")
def begun(pair):
    setting = SETTING._replace(temperature=1.0)
    sides = costs.Pair(*pair, 44)
    (batch, *_), _ = walltime.batches(PROMPTS, setting)
    return sides, batch.request, costs.begin(sides, 3, *batch)


def turned(state, times, vocab):
    return state._replace(tokens=(state.tokens + times) % vocab)


def test_a_looped_target_call_is_a_target_call(pair, begun):
    sides, request, state = begun
    law = costs.target_calls(sides, 3, loops=2)(request, state)
    target, vocab = pair[0].model, pair[0].vocab
    for times in (1, 2):
        moved = turned(state, times, vocab)
        ids = moved.tokens[:, :3]
        wanted, cache = score(target, pair[0].params, request, moved, ids)
        state = state._replace(target_cache=cache)
    assert law.logits.shape == (2, 4, vocab)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), law, wanted)


def test_a_looped_draft_is_a_draft(pair, begun):
    sides, request, state = begun
    tokens, num, law = costs.drafts(sides, 3, loops=2)(request, state)
    drafter = pair[1].drafter(3)
    for times in (1, 2):
        moved = turned(state, times, pair[0].vocab)
        key = keys.purpose(keys.iteration(request.key, moved.tokens[:, 0]), keys.DRAFT)
        wanted, cache = drafter.draft(key, pair[1].params, request, moved)
        state = state._replace(draft_cache=cache)
    np.testing.assert_array_equal(tokens, wanted.tokens)
    np.testing.assert_array_equal(num, [3, 3])
    np.testing.assert_allclose(law.lse, wanted.law.lse, atol=1e-4)


def test_texts_are_decoded_by_the_rule_that_is_named(pair):
    """Gumbel's, whose drafts race: the texts of the same keys without a drafter."""
    rule = verifiers.named("gumbel")
    sides = costs.Pair(*pair, 44, players.reference(rule))
    assert sides.parts(3).verifier is rule
    prompt = make_prompt([[0, 1]] * 64)
    sampling = make_sampling(64, 1.0)
    request = make_request(jax.random.key(0), prompt, 16, sampling)
    drafted = costs.decode(sides, 3)(prompt, request)
    alone = generate.build(Decoder(pair[0].model, verifier=rule), 44)
    plain = alone(Params(pair[0].params), prompt, request)
    np.testing.assert_array_equal(drafted.tokens, plain.tokens)
    other = costs.decode(costs.Pair(*pair, 44), 3)(prompt, request)
    assert np.any(other.tokens != plain.tokens)


def test_at_temperature_0_calls_are_predicted_to_the_last(row):
    if row["temperature"]:
        for steps, wanted in zip(row["steps"], row["predicted_steps"], strict=True):
            assert wanted / 2 < steps < 2 * wanted
        assert row["steps_se"][0] == 0 < row["steps_se"][3]
        return
    np.testing.assert_allclose(row["steps"], row["predicted_steps"], atol=1e-9)
    np.testing.assert_allclose(row["tokens_per_call"], row["predicted_tokens_per_call"])
    np.testing.assert_allclose(row["steps_se"], 0, atol=1e-9)
    assert row["same_greedy_texts"] == row["texts"] == 4
    assert row["steps"][3] < row["steps"][1] < row["steps"][0] == 2 * NEW


def test_a_row_says_everything_of_every_gamma(row):
    assert row["gamma"] == [0, 1, 2, 3] and row["tokens"] == 4 * NEW
    for name in ("c", "v", "overhead", "exp", "predicted", "speedup", "residual"):
        assert len(row[name]) == 4, name
    assert row["kernels"]["verify"] == "reference"
    assert row["c"][0] is None and row["v"][0] == row["speedup"][0] == 1
    json.dumps(row, allow_nan=False)
    for low, value, high in [
        (ci[0], value, ci[1])
        for value, ci in zip(row["speedup"], row["speedup_ci"], strict=True)
    ]:
        assert low <= value + 1e-9 and value - 1e-9 <= high
    at = row["gamma"].index(row["best_gamma"])
    assert row["best_speedup"] == max(row["speedup"][1:]) == row["speedup"][at]
    wanted = closed_forms.walltime_factor(row["alpha"], 3, row["c"][3])
    assert row["exp"][3] == pytest.approx(wanted)


def test_the_gamma_between_the_fitted_is_predicted(row):
    """The made-up steps are a line: what is left is the luck in the number of calls."""
    assert row["fitted"] == [1, 3]
    assert [speed is None for speed in row["predicted"]] == [True, True, False, True]
    luck = row["steps"][2] / row["predicted_steps"][2]
    wanted = row["speedup"][2] * luck
    assert row["predicted"][2] == pytest.approx(wanted, rel=0.02)
    residual = row["predicted"][2] / row["speedup"][2] - 1
    assert row["residual"][2] == pytest.approx(residual)


def test_what_a_step_consists_of_is_measured_inside_it(row):
    """Texts by the target alone tell what its call takes; drafting adds the rest."""
    wanted = {"c": DRAFTING, "v0": 1.8e-3, "v1": OWN, "rest": 1e-3}
    for name, value in wanted.items():
        assert row["inside"][name] == pytest.approx(value / 2e-3, rel=0.05), name
        assert row["inside"][f"{name}_se"] < 0.02
    assert row["overhead"] == pytest.approx([0, *[0.5] * 3], abs=0.02)
    assert np.shape(row["target_step_ms"]) == (3,)
    assert inside.doubts(row) == []


def seconds_of(prefill, steps):
    """Two texts, whose steps take 2 ms alone and 5 and 8 ms with gamma = 1 and 3, and
    one other, whose target takes 2, 3 and 4 ms; a target call apart takes half of that,
    a draft 0.3 ms."""
    seconds = {}
    for gamma, step, own in ((0, 2e-3, 2e-3), (1, 5e-3, 3e-3), (3, 8e-3, 4e-3)):
        for i, time in enumerate((step, step, own)):
            seconds[DECODE, gamma, i] = np.full(2, prefill + time * steps[gamma][i])
        for i in range(SAMPLES):
            seconds[TARGET, gamma, i] = np.full(2, LOOPS * own / 2)
            seconds[PREFILL, gamma, i] = np.full(2, prefill)
            seconds[DRAFT, gamma, i] = np.full(2, LOOPS * 0.3e-3 * gamma)
    return seconds


def output(tokens, calls):
    """One row that begins with one token and gets `tokens` more."""
    counts = generate.Counts(np.array([calls]), 0, 0, 0)
    return generate.Output(None, np.array([1 + tokens]), counts)


def test_the_parts_of_a_step_by_hand():
    steps = {0: [8, 8, 8], 1: [5, 6, 8], 3: [3, 4, 8]}
    gammas = (0, 1, 3)
    setting = SETTING._replace(gammas=gammas, batch=1, texts=2, others=1)
    counts = {
        (gamma, i): output(tokens=9 if gamma else 8, calls=n)
        for gamma, each in steps.items()
        for i, n in enumerate(each)
    }
    seconds = seconds_of(0.01, steps)
    apart = parts.apart(gammas, seconds)
    assert apart["target_ms"] == pytest.approx(1)
    assert apart["c"] == [None, pytest.approx(0.3), pytest.approx(0.3)]
    assert apart["v"] == [1, pytest.approx(1.5), pytest.approx(2)]
    times = seconds, apart["prefill_ms"]
    row = parts.inside(gammas, times, counts, (2, 1))
    assert row["step_ms"] == pytest.approx([2, 5, 8])
    assert row["target_step_ms"] == pytest.approx([2, 3, 4])
    # Over 2 ms: 5 and 8 are 1 and 3 drafts of 0.5, 3 and 4 of the target, and 1.5.
    wanted = {"c": 0.5, "v0": 1, "v1": 0.25, "rest": 0.5}
    assert {name: row["inside"][name] for name in wanted} == pytest.approx(wanted)
    assert row["overhead"] == pytest.approx([0, 0.5, 0.5])
    begun = Request(None, None, np.array([1]), None, None)
    batches = [walltime.Batch(None, begun)] * 2
    speeds = walltime.speedups(setting, seconds, counts, batches)
    per_token = (20 + 32) / 16, (20 + 8 * 7) / 18
    assert speeds["speedup"][2] == pytest.approx(per_token[0] / per_token[1])


def test_a_round_spreads_every_kind_of_text_over_it():
    names = [(DECODE, gamma, i) for gamma in (0, 1) for i in range(12)]
    names += [(TARGET, gamma, i) for gamma in (0, 1) for i in range(SAMPLES)]
    order = parts.turn(names, 8, 4)
    assert sorted(order) == sorted(names)
    places = [order.index((DECODE, 0, i)) / len(order) for i in range(8, 12)]
    assert np.all(np.abs(places - np.array([1, 3, 5, 7]) / 8) < 0.07)
    for i in range(12):  # what is compared is close in time
        assert order.index((DECODE, 1, i)) == order.index((DECODE, 0, i)) + 1


def test_a_target_alone_reads_the_drafts_slots_and_writes_its_own_text(pair):
    (batch, *_), others = walltime.batches(PROMPTS, SETTING)
    assert len(others) == 2 and others[0].prompt.tokens.shape[0] == 2
    sides = costs.Pair(*pair, 44)
    wanted = generate.autoregressive(pair[0].model, 44)(Params(pair[0].params), *batch)
    for decode in (inside.target_alone(sides, 3), costs.decode(sides, 0)):
        output = decode(*batch)
        np.testing.assert_array_equal(output.tokens, wanted.tokens)
        np.testing.assert_array_equal(output.counts.calls, wanted.counts.calls)
    text = str(jax.make_jaxpr(inside.target_alone(sides, 3))(*batch))
    assert "f32[2,4,16]" in text or f"f32[2,4,{pair[0].vocab}]" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "tokens"}, "no rule 'tokens': choose one of block"),
        ({"gammas": (1, 2)}, "gammas must ascend from 0"),
        ({"gammas": (0,)}, "gammas must ascend from 0"),
        ({"gammas": (0, 3, 1)}, "gammas must ascend from 0"),
        ({"texts": 3}, "texts must fill batches of 2; got 3"),
        ({"others": 0}, "others must fill batches of 2; got 0"),
        ({"rounds": 0}, "must be at least 1"),
        ({"top_k": 0}, "top_k must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(pair, change, message):
    with pytest.raises(ValueError, match=message):
        walltime.measure(*pair, PROMPTS, SETTING._replace(**change))
