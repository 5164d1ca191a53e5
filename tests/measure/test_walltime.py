"""Walltime times what decodes, and predicts speeds from what it timed."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import fused, keys, verifiers
from specjax.decode_config import change
from specjax.measure import costs, timing, walltime
from specjax.measure.timing import DECODE, DRAFT, LOOPS, PREFILL, TARGET
from specjax.prompts import Prompts
from specjax.step import score
from specjax.theory import closed_forms, speedup
from tests.support import tiny_pair
from tests.support.settings import make

pytestmark = pytest.mark.slow

PAIR = tiny_pair.pair()
PROMPTS = Prompts([[1], [1, 5, 9], [1, 20], [1, 7, 7, 8, 3], [1, 4], [1, 9, 9, 2]])
NEW = 32  # tokens of a text, enough to be timed
# Four others: of six prompts one batch is new at T = 0.
SETTING = make(
    walltime.WalltimeSetting,
    new_tokens=NEW,
    batch=2,
    gammas=(0, 1, 3),
    texts=4,
    others=2,
    rounds=2,
)
DRAFTING, OWN = 0.5e-3, 0.2e-3  # seconds that a draft adds to a step, that a token does


def run_with_fixed_times(programs, rounds, label, warm, after=None):
    """Runs each program, and returns invented seconds, so that no other work on the
    machine can disturb a test."""
    del label, warm
    seconds = {name: np.zeros(rounds) for name in programs}
    for turn in range(rounds):
        for (kind, gamma, index), program in programs.items():
            if kind != DECODE and turn:
                seconds[kind, gamma, index][turn] = seconds[kind, gamma, index][0]
                continue
            out = jax.block_until_ready(program())
            step = 2e-3 + OWN * gamma
            time = {PREFILL: 1e-3, TARGET: LOOPS * step}
            time[DRAFT] = LOOPS * DRAFTING * gamma
            if kind == DECODE:
                whole = step + (gamma > 0) * (1e-3 + DRAFTING * gamma)
                time[kind] = 1e-3 + whole * int(out.counts.calls.max())
            seconds[kind, gamma, index][turn] = time[kind] * (1 + 0.01 * turn)
        if after and turn + 1 < rounds:
            after({name: each[: turn + 1] for name, each in seconds.items()})
    return seconds


@pytest.fixture(scope="module", params=[(0.0, None), (1.0, 12)])
def measured(request):
    """The row of one round and the whole one, and the programs that were timed."""
    temperature, top_k = request.param
    setting, kept = change(SETTING, temperature=temperature, top_k=top_k), []
    every: dict = {}

    def run(programs, *arguments, **named):
        every.update(programs)
        return run_with_fixed_times(programs, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "time_in_turns", run)
        whole = walltime.measure(*PAIR, PROMPTS, setting, so_far=kept.append)
    return [*kept, whole], every


@pytest.fixture(scope="module")
def rows(measured):
    return measured[0]


@pytest.fixture(scope="module")
def row(rows):
    return rows[-1]


def test_the_rounds_so_far_make_a_row_and_a_row_says_everything(rows):
    first, row = rows
    assert (first["rounds"], row["rounds"]) == (1, 2) and first.keys() == row.keys()
    same = "alpha", "steps", "best_gamma", "c"
    assert [first[name] for name in same] == [row[name] for name in same]
    assert first["seconds"][1] < row["seconds"][1]  # whose median has a second round
    assert first["predicted"] == [None] * 3
    assert row["gamma"] == [0, 1, 3] and row["tokens"] == 4 * NEW
    for name in ("v", "exp", "predicted", "speedup"):
        assert len(row[name]) == 3, name
    assert row["c"][0] is None and row["v"][0] == row["speedup"][0] == 1
    assert row["c"][2] == pytest.approx(DRAFTING / 2e-3)
    assert row["overhead"] == pytest.approx([0, 0.5, 0.5], abs=0.02)
    wanted = closed_forms.walltime_factor(row["alpha"], 3, row["c"][2])
    assert row["exp"][2] == pytest.approx(wanted)
    assert row["residual"][2] == row["predicted"][2] / row["speedup"][2] - 1


def test_a_row_says_what_memory_a_pair_holds_and_a_shared_array_counts_once(row):
    alone, *drafted = row["memory_mb"]
    weights = [costs.count_bytes(side.params) / 2**20 for side in PAIR]
    assert alone > weights[0]
    laws = [3 * 4 * gamma * PAIR[0].model.vocab / 2**20 for gamma in row["gamma"][1:]]
    assert all(
        size > alone + weights[1] + more
        for size, more in zip(drafted, laws, strict=True)
    )
    at = row["gamma"].index(row["best_gamma"])
    assert row["best_memory_mb"] == row["memory_mb"][at]
    table = jnp.zeros((3, 5))
    assert costs.count_bytes({"embed": table, "readout": table}) == 4 * 15


def test_a_row_holds_what_its_speeds_are_made_of(row):
    """A row that is read back from a file gives the same numbers and intervals."""
    again = json.loads(json.dumps(row, allow_nan=False))
    for numbers in (
        timing.part_costs(again["gamma"], again["timed"]),
        speedup.speedup_from(again),
    ):
        assert {name: row[name] for name in numbers} == numbers
    texts = row["timed"]["texts"]
    assert np.shape(texts["seconds"]) == (3, 2, 2)
    assert np.sum(texts["tokens"], axis=1).tolist() == [4 * NEW] * 3
    assert np.sum(texts["steps"], axis=1).tolist() == row["steps"]


def test_other_texts_are_others(row):
    """Each round has its own texts; at T = 0 no prompt is used twice."""
    measured, others = walltime.batches(PROMPTS, SETTING)
    prompts = [np.asarray(batch.prompt.tokens) for batch in (*measured, *others)]
    assert len(others) == 2
    assert all(np.any(prompts[2] != each) for each in prompts[:2])
    np.testing.assert_array_equal(prompts[2], prompts[3])  # two prompts are left
    new = 4 if row["temperature"] else 2
    assert row["chosen_on"] == new and row["prompts"] == 6
    assert np.shape(row["timed"]["others"]["expected_steps"]) == (3, new // 2)
    assert speedup.doubts(row) == []


def test_programs_run_in_turns_after_the_warm_ones():
    ran = []
    programs = {
        name: lambda name=name: ran.append(name) or jnp.zeros(()) for name in "ab"
    }
    rounds = []  # every one but the last is reported when it is done

    def note_round(seconds):
        rounds.append(seconds["a"].size)

    seconds = timing.time_in_turns(programs, 3, warm=[programs["b"]], after=note_round)
    assert "".join(ran) == "b" + "ab" * 3
    assert {name: len(each) for name, each in seconds.items()} == {"a": 3, "b": 3}
    assert all((each > 0).all() for each in seconds.values()) and rounds == [1, 2]
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        timing.time_in_turns(programs, 0)


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


def test_what_is_looped_is_a_target_call_and_a_draft():
    rule = verifiers.find("gumbel")
    assert costs.Pair(*PAIR, 44, fused.reference(rule)).decoder(3).verifier is rule
    both, drafter = costs.Pair(*PAIR, 44), PAIR[1].drafter(3)
    (batch, *_), _ = walltime.batches(PROMPTS, change(SETTING, temperature=1.0))
    request, state = batch.request, costs.begin(both, 3, *batch)
    law = costs.target_calls(both, 3, loops=2)(request, state)
    tokens, num, drawn = costs.drafts(both, 3, loops=2)(request, state)
    for times in (1, 2):
        moved = state._replace(tokens=(state.tokens + times) % PAIR[0].vocab)
        ids = moved.tokens[:, :3]
        wanted, cache, _ = score(PAIR[0].model, PAIR[0].params, request, moved, ids)
        key = keys.purpose(keys.iteration(request.key, moved.tokens[:, 0]), keys.DRAFT)
        draft, draft_cache = drafter.draft(key, PAIR[1].params, request, moved)
        state = state._replace(target_cache=cache, draft_cache=draft_cache)
    assert law.logits.shape == (2, 4, PAIR[0].vocab)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), law, wanted)
    np.testing.assert_array_equal(tokens, draft.tokens)
    np.testing.assert_array_equal(num, [3, 3])
    np.testing.assert_allclose(drawn.lse, draft.law.lse, atol=1e-4)


def test_at_temperature_0_calls_are_predicted_to_the_last(row):
    if row["temperature"]:
        for steps, wanted in zip(row["steps"], row["predicted_steps"], strict=True):
            assert wanted / 2 < steps < 2 * wanted
        assert row["steps_se"][0] == 0 < row["steps_se"][2]
        return
    np.testing.assert_allclose(row["steps"], row["predicted_steps"], atol=1e-9)
    np.testing.assert_allclose(row["tokens_per_call"], row["predicted_tokens_per_call"])
    np.testing.assert_allclose(row["steps_se"], 0, atol=1e-9)
    assert row["same_greedy_texts"] == row["texts"] == 4
    assert row["steps"][2] < row["steps"][1] < row["steps"][0] == 2 * NEW


def test_the_share_kept_is_that_of_the_longest_drafts(measured):
    """The draws of these texts depend on no time, so they are decoded again."""
    rows, programs = measured
    counts = [programs[DECODE, 3, index]().counts for index in (0, 1)]
    kept, tested = (
        sum(np.asarray(getattr(it, name)).sum() for it in counts)
        for name in ("accepted", "tested")
    )
    assert rows[-1]["share_kept"] == pytest.approx(kept / tested)
    assert 0 < kept < tested and rows[-1]["share_kept_se"] > 0
    assert rows[-1]["alpha_estimator"] == "rao_blackwell"


def test_settings_that_mean_nothing_are_refused():
    for changed, message in (
        ({"gammas": (0, 3, 1)}, "gammas must ascend from 0"),
        ({"others": 0}, "others must fill batches of 2; got 0"),
        ({"rounds": 0}, "must be at least 1"),
        ({"top_k": 0}, "top_k must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            walltime.measure(*PAIR, PROMPTS, change(SETTING, **changed))
