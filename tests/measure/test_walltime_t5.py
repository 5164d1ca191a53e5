"""Walltime of an encoder-decoder whose texts end: encoders are timed apart, calls
predicted to the last, and drafts that have no law counted."""

import jax
import numpy as np
import pytest

from specjax import generate, sides
from specjax.measure import costs, counts, timing, walltime
from specjax.measure.timing import DECODE, PREFILL, SAMPLES
from specjax.models import t5
from specjax.prompts import Prompts
from specjax.types import Params
from tests.measure.test_walltime import by_the_clock
from tests.support import tiny_t5

pytestmark = pytest.mark.slow

INPUTS = [[5, 9, 2, 17, 11, 3, 1], [7, 7, 20, 1], [4, 1], [12, 25, 6, 8, 1]]
PROMPTS = Prompts([[t5.PAD]] * 4, INPUTS, (t5.END,))
NEW = 24
SETTING = walltime.WalltimeSetting(0.0, 2, (0, 3), NEW, texts=4, others=2, rounds=2)
SETTING = SETTING._replace(ends=True)


def ending(config, seed):
    """Weights of which texts end early: the end id is likelier than by chance."""
    params = tiny_t5.weights(config, seed)
    kernel = params["decoder"]["logits_dense"]["kernel"]
    return {
        **params,
        "decoder": {
            **params["decoder"],
            "logits_dense": {"kernel": kernel.at[:, t5.END].multiply(1.3)},
        },
    }


@pytest.fixture(scope="module")
def target():
    config = tiny_t5.TARGET
    return sides.of_model("target", t5.build(config), ending(config, 21))


@pytest.fixture(scope="module")
def draft():
    config = tiny_t5.TARGET
    near, other = ending(config, 21), ending(config, 22)
    params = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, near, other)
    return sides.of_model("draft", t5.build(config), params)


def clock(programs, rounds, label, warm, after=None):
    """`by_the_clock`, in which reading the input takes 1 ms, and 4 ms for two; only
    what decodes is run."""
    idle = {n: (lambda: None) for n in programs if n[0] != DECODE}
    seconds = by_the_clock({**programs, **idle}, rounds, label, warm)
    for kind, gamma, _ in seconds:
        if kind == PREFILL:
            for index in range(SAMPLES):
                seconds[kind, gamma, index] = np.full(rounds, 4e-3 if gamma else 1e-3)
    return seconds


def measured(target, draft, **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "interleaved", clock)
        return walltime.measure(target, draft, PROMPTS, SETTING._replace(**changes))


@pytest.fixture(scope="module")
def row(target, draft):
    return measured(target, draft)


def lengths(target, ends):
    """What the target writes alone, by its own loop."""
    setting = SETTING._replace(ends=ends)
    batches, _ = walltime.batches(PROMPTS, setting)
    run = generate.autoregressive(target.model, 30)
    outs = [run(Params(target.params), *batch) for batch in batches]
    return np.concatenate([np.asarray(out.length) - 1 for out in outs])


def test_texts_end_where_they_end(target, row):
    alone = lengths(target, ends=True)
    assert alone.min() < NEW  # else nothing here would be seen
    assert row["tokens"] == alone.sum() < lengths(target, ends=False).sum()
    assert row["steps"][0] == alone.reshape(2, 2).max(axis=1).sum()
    assert row["same_greedy_texts"] == 4


def test_calls_are_predicted_to_the_last_where_texts_end(row):
    assert row["steps"][1] < row["steps"][0]
    np.testing.assert_allclose(row["steps"], row["predicted_steps"], atol=1e-9)


def test_encoders_are_timed_apart(row):
    assert row["encodes"]
    assert row["prefill_target_ms"] == pytest.approx(1)
    assert row["prefill_draft_ms"] == pytest.approx(3)
    assert row["prefill_ms"] == pytest.approx([1, 4])


def test_a_drafts_input_is_in_its_cache(target, draft):
    """With another input the same text has another law: the encoder is not left out."""
    pair = costs.Pair(target, draft, 30)
    (batch, *_), _ = walltime.batches(PROMPTS, SETTING)
    state = costs.begin(pair, 3, *batch)
    tokens, length = batch.prompt.inputs
    other = batch.prompt._replace(inputs=(tokens.at[:, 0].add(1), length))
    again = costs.begin(pair, 3, other, batch.request)
    for name in ("target_cache", "draft_cache"):
        first, second = getattr(state, name), getattr(again, name)
        assert np.abs(first.read[0].keys - second.read[0].keys).max() > 1e-3


def test_copied_drafts_are_timed_and_counted_and_not_predicted(target):
    draft = sides.copied()
    row = measured(target, draft, ends=False)
    assert row["predicted"] == row["residual"] == [None] * 2
    assert row["best_predicted"] is None and row["draft"] == "copying"
    assert len(row["speedup"]) == 2 and row["same_greedy_texts"] == 4
    pair = costs.Pair(target, draft, walltime.width(PROMPTS) + NEW + 4)
    counts = [
        costs.decode(pair, 3)(*batch).counts
        for batch in walltime.batches(PROMPTS, SETTING._replace(ends=False))[0]
    ]
    accepted, tested = (
        sum(np.asarray(getattr(each, name)).sum() for each in counts)
        for name in ("accepted", "tested")
    )
    assert row["tokens"] == tested > 0
    assert row["alpha"] == pytest.approx(accepted / tested)


def unmatched(words):
    """Counts of a run whose copying draft tests `words` tokens and keeps none."""
    zero = np.zeros(2, int)
    return generate.Output(None, None, generate.Counts(zero + 9, zero, words, zero))


def test_a_copying_draft_that_never_matches_has_alpha_0_of_0():
    """No draft was tested at all: no share of them, and no error."""
    alpha = counts.accepted(None, [unmatched(np.zeros(2, int))] * 2)
    assert alpha.value == alpha.count == alpha.sequences == 0
    assert np.isnan(alpha.se) and np.isnan(alpha.naive_se)
    alpha = counts.accepted(None, [unmatched(np.array([4, 5]))] * 2)
    assert (alpha.value, alpha.count, alpha.sequences) == (0, 18, 4)


def test_a_pair_whose_drafts_never_match_is_measured(target):
    """Inputs of one token leave nothing to copy."""
    prompts = Prompts([[t5.PAD]] * 4, [[1]] * 4, (t5.END,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "interleaved", clock)
        row = walltime.measure(target, sides.copied(), prompts, SETTING)
    assert row["alpha"] == row["tokens"] == 0 and row["alpha_se"] is None
    assert row["exp"][-1] < 1 and len(row["speedup"]) == 2


def test_alpha_of_a_draft_without_a_law_is_refused(target):
    with pytest.raises(ValueError, match="no law at every position"):
        sides.check(target, sides.copied())
