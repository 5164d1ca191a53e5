"""The measurement of Table 3 gives the known answer on tiny models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import tasks
from specjax import probs, zoo
from specjax.checkpoints import Pretrained
from specjax.decode_config import change
from specjax.drafters import ngram
from specjax.drafts import counts
from specjax.drafts.source import DraftSource
from specjax.inputs import make_request
from specjax.measure import pairs, scoring
from specjax.measure import texts as decoding
from specjax.measure.texts import Protocol
from specjax.types import Prompt, Sampling, State
from tests.support import bare, tiny
from tests.support.settings import make
from tests.support.tiny_pair import PROMPTS, SMALL, generated_places, law, logits, pair

VOCAB = tiny.TARGET.vocab
GREEDY = make(Protocol, task="tiny", temperature=0.0, **SMALL)
WARM = change(GREEDY, temperature=1.0)


def chains() -> tuple[Pretrained, DraftSource]:
    """Returns a target and a draft with the same ids, which compile fast; the draft is
    right two times in three."""
    world = tiny.tables(VOCAB)
    draft = tiny.add_share(world.target_weights, world.draft_weights, 0.3)
    target = bare.target("target", world.target, world.target_weights)
    return target, bare.draft("draft", world.target, draft)


def test_beta_is_what_one_computes_by_hand():
    """At temperatures 0 and 1 the tests of `kinds` compute it."""
    text = decoding.write(
        pair()[0], PROMPTS, make(Protocol, task="", temperature=0.7, **SMALL, top_k=4)
    )
    scores = scoring.score(*pair(), text, 0.7, top_k=4)
    p, q = (law(logits(side, text), 0.7, 4) for side in pair())
    each, tokens = np.arange(len(p)), text.tokens[generated_places(text)]
    assert (p[each, tokens] > 0).all()
    expected = np.minimum(p, q).sum(-1), p[each, tokens], q[each, tokens]
    assert len(scores.beta) == (text.length - text.start).sum()
    for values, wanted in zip(scores[:3], expected, strict=True):
        np.testing.assert_allclose(values, wanted, atol=1e-5)
    np.testing.assert_array_equal(scores.sequence, generated_places(text)[0])


def test_what_a_row_reports():
    row = pairs.measure_alpha(chains(), PROMPTS, GREEDY)
    assert row["sequences"] == row["same_greedy_texts"] == 4
    assert row["tokens"] == row["decoded_tokens"]
    calls = row["target_calls"]
    assert row["decoded_tokens"] / calls == row["tokens_per_call"] >= 1
    tests = np.array(row["tested_by_position"])
    rates = np.array([row[f"alpha_{i}"] for i in range(1, len(tests) + 1)])
    counted = row["estimates"]["counts"]
    assert len(tests) == GREEDY.decode.gamma and (np.diff(tests) <= 0).all()
    assert tests.sum() == counted["count"]
    assert tests @ rates / tests.sum() == pytest.approx(counted["value"], abs=1e-3)
    np.testing.assert_allclose(tests[1:], (tests * rates)[:-1])
    assert (row["draft_regime"], row["exactness"]) == ("sampled law", "exact law")
    each = row["alpha_by_text"]
    assert len(each["beta"]) == 4 and sum(each["tokens"]) == row["tokens"]
    assert sum(each["beta"]) / sum(each["tokens"]) == pytest.approx(row["alpha"])
    # A policy drafts less, and has no estimate that needs one gamma.
    adaptive = change(GREEDY, policy="adaptive:start=1")
    row = pairs.measure_alpha(chains(), PROMPTS, adaptive)
    assert set(row["estimates"]) == {"rao_blackwell", "counts"}
    assert row["same_greedy_texts"] == 4 and row["target_calls"] > calls


def test_alpha_is_that_of_the_rule():
    """For a rule that keeps other shares than min(1, p / q), alpha is what it kept."""
    row = pairs.measure_alpha(chains(), PROMPTS, change(WARM, rule="match"))
    assert [*row["estimates"]] == ["counts"] and "alpha_by_text" not in row
    assert row["alpha"] == row["estimates"]["counts"]["value"]
    text = decoding.write(chains()[0], PROMPTS, WARM)
    scores = scoring.score(*chains(), text, WARM.decode.temperature)
    assert 0 < row["alpha"] < scores.beta.mean() - 0.05  # sum p q, not sum min(p, q)


def test_a_draft_without_a_law_has_the_alpha_that_counts():
    task = tasks.Task(PROMPTS, [], ())
    row = pairs.alpha(chains()[0], "copying", GREEDY, lambda *_: task).run()
    assert set(row["estimates"]) == {"counts"} and row["tokens"] > 0
    assert row["alpha"] == row["estimates"]["counts"]["value"] > 0
    assert row["same_greedy_texts"] == row["sequences"]


def first_laws(player, texts, sampling):
    """Returns [B, T, V], the law of the drafter's first token after each token of each
    text."""
    drafter, (batch, width) = player.drafter(2), texts.shape
    length = jnp.tile(jnp.arange(1, width + 1), batch)
    prompt = Prompt(jnp.repeat(texts, width, axis=0), length)
    each = jax.tree.map(lambda setting: jnp.repeat(setting, width), sampling)
    request = make_request(jax.random.key(0), prompt, 4, each)

    @jax.jit
    def laws(params):
        cache = drafter.init(params, prompt, width + 4)
        buffer = jnp.pad(prompt.tokens, ((0, 0), (0, 4)))
        state = State(buffer, length, None, cache, jnp.full(length.size, 2))
        drafted, _ = drafter.draft(request.key, params, request, state)
        return probs.dense(drafted.law)[:, 0]

    return np.asarray(laws(player.params)).reshape(batch, width, -1)


@pytest.mark.parametrize("name", ["bigram", "draft"])
def test_the_scored_law_is_the_one_drawn_from(name, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "counts.safetensors"
    written = [[1, *rng.integers(3, VOCAB, 30).tolist(), 2] for _ in range(20)]
    zoo.save_ngrams(path, ngram.fit(written, VOCAB))
    player = pair()[1] if name == "draft" else counts.ngram(2, str(path))
    texts = jnp.asarray([[1, 5, 9, 5, 20], [1, 5, 9, 5, 20], [1, 8, 8, 3, 28]])
    sampling = Sampling(jnp.asarray([0.0, 0.7, 1.0]))
    prompt = Prompt(texts, jnp.full(3, 5))
    scored = jax.jit(player.law)(player.params, prompt, sampling)
    drawn = first_laws(player, texts, sampling)
    np.testing.assert_allclose(probs.dense(scored), drawn, atol=1e-5)


def test_counts_have_orders():
    with pytest.raises(ValueError, match="orders 1 to 2; got 3"):
        counts.ngram(3)


def test_uncut_calls_give_an_unbiased_alpha():
    """Where beta is one number, all estimators find it, whether texts end or not."""
    vocab, ending = 6, 0.12
    p = np.array([0, 0, ending, 0.5, 0.2, 0.18])
    q = np.array([0, 0, 0.3, 0.1, 0.3, 0.3])
    p_table, q_table = (
        jnp.tile(jnp.log(jnp.maximum(x, 1e-30)), (vocab, 1)) for x in (p, q)
    )
    chain = tiny.markov(vocab)
    both = bare.target("x", chain, p_table), bare.draft("x", chain, q_table)
    prompts = tasks.distinct("unconditional")
    protocol = make(
        Protocol,
        task="",
        temperature=1.0,
        tokens=4000,
        gamma=3,
        new_tokens=20,
        batch=512,
    )
    row = pairs.measure_alpha(both, prompts, protocol)
    truth = np.minimum(p, q).sum()
    assert row["alpha"] == pytest.approx(truth, abs=1e-5)
    for name in ("counts", "implied_alpha"):
        estimate = row["estimates"][name]
        assert abs(estimate["value"] - truth) < 4 * estimate["se"], name


def test_coins_do_not_depend_on_the_batch_and_argmax_texts_are_written_once():
    few, many = (
        decoding.write(chains()[0], PROMPTS, change(WARM, batch=batch))
        for batch in (2, 4)
    )
    for row, wanted in zip(few.rows(), many.rows(), strict=False):
        np.testing.assert_array_equal(row, wanted)
    long = change(GREEDY, tokens=10_000, batch=3)
    assert len(decoding.write(chains()[0], PROMPTS, long).start) == 4


def test_rows_of_one_run_share_a_text(tmp_path, monkeypatch):
    weights = tmp_path / "weights"
    weights.write_text("1")
    named, kept = chains()[0]._replace(files=(weights,)), {}
    monkeypatch.setattr(pairs, "write", lambda *arguments: object())
    first = pairs.target_text(named, PROMPTS, WARM, kept=kept)
    other = change(WARM, gamma=5, rule="block", policy="adaptive")
    assert pairs.target_text(named, PROMPTS, other, kept=kept) is first
    weights.write_text("2")
    assert pairs.target_text(named, PROMPTS, WARM, kept=kept) is not first
