"""Walltime of an encoder-decoder whose texts end: encoders are timed separately, the
number of calls is predicted exactly, and drafts without a law are counted."""

import jax
import numpy as np
import pytest

from specjax import generate
from specjax.decode_config import change
from specjax.drafts import retrieval
from specjax.drafts.source import check_pair
from specjax.measure import counts, timing, walltime
from specjax.measure.timing import DECODE, PREFILL, SAMPLES
from specjax.models import t5
from specjax.prompts import Prompts
from specjax.types import Params
from tests.measure.test_walltime import run_with_fixed_times
from tests.support import bare, tiny_t5
from tests.support.settings import make

pytestmark = pytest.mark.slow

INPUTS = [[5, 9, 2, 17, 11, 3, 1], [7, 7, 20, 1], [4, 1], [12, 25, 6, 8, 1]]
PROMPTS = Prompts([[t5.PAD]] * 4, INPUTS, (t5.END,))
NEW = 24
SETTING = make(
    walltime.WalltimeSetting,
    new_tokens=NEW,
    batch=2,
    gammas=(0, 3),
    texts=4,
    others=2,
    rounds=2,
)
SETTING = SETTING._replace(ends=True)


def make_ending_weights(config, seed):
    """Returns weights whose texts end early: the end id is more likely than by
    chance."""
    params = tiny_t5.weights(config, seed)
    kernel = params["decoder"]["logits_dense"]["kernel"]
    readout = {"kernel": kernel.at[:, t5.END].multiply(1.3)}
    return params | {"decoder": params["decoder"] | {"logits_dense": readout}}


@pytest.fixture(scope="module")
def target():
    config = tiny_t5.TARGET
    return bare.target("target", t5.build(config), make_ending_weights(config, 21))


@pytest.fixture(scope="module")
def draft():
    config = tiny_t5.TARGET
    near, other = make_ending_weights(config, 21), make_ending_weights(config, 22)
    params = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, near, other)
    return bare.draft("draft", t5.build(config), params)


def run_with_encoder_times(programs, rounds, label, warm, after=None):
    """Does as `run_with_fixed_times`, with 1 ms for reading the input, and 4 ms for two
    inputs; runs only what decodes."""
    idle = {n: (lambda: None) for n in programs if n[0] != DECODE}
    seconds = run_with_fixed_times({**programs, **idle}, rounds, label, warm)
    for kind, gamma, _ in seconds:
        if kind == PREFILL:
            for index in range(SAMPLES):
                seconds[kind, gamma, index] = np.full(rounds, 4e-3 if gamma else 1e-3)
    return seconds


def measure_pair(target, draft, **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "time_in_turns", run_with_encoder_times)
        return walltime.measure(target, draft, PROMPTS, change(SETTING, **changes))


@pytest.fixture(scope="module")
def row(target, draft):
    return measure_pair(target, draft)


def lengths(target, ends):
    """Returns the lengths of what the target writes alone, in its own loop."""
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
    assert row["steps"][1] < row["steps"][0]
    np.testing.assert_allclose(row["steps"], row["predicted_steps"], atol=1e-9)
    # Encoders are timed apart.
    assert row["encodes"] and row["prefill_ms"] == pytest.approx([1, 4])
    assert row["prefill_target_ms"] == pytest.approx(1)
    assert row["prefill_draft_ms"] == pytest.approx(3)


def test_a_copying_draft_that_never_matches_has_alpha_0_of_0():
    """No draft was tested, so there is no share of accepted ones, and no error."""

    def make_output(words):
        zero = np.zeros(2, int)
        return generate.Output(None, None, generate.Counts(zero + 9, zero, words, zero))

    alpha = counts.acceptance(None, [make_output(np.zeros(2, int))] * 2)
    assert alpha.value == alpha.count == alpha.sequences == 0
    assert np.isnan(alpha.se) and np.isnan(alpha.naive_se)
    alpha = counts.acceptance(None, [make_output(np.array([4, 5]))] * 2)
    assert (alpha.value, alpha.count, alpha.sequences) == (0, 18, 4)


def test_alpha_of_a_draft_without_a_law_is_refused(target):
    with pytest.raises(ValueError, match="no law at every position"):
        check_pair(target, retrieval.copying())
