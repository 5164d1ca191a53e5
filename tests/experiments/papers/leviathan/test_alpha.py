"""The pipeline of Table 3 against what it should give, on tiny models.

Axes: B rows, T tokens, V vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import tasks
from specjax import probs, sides, zoo
from specjax.drafters import ngram
from specjax.inputs import make_request
from specjax.measure import pairs, scoring
from specjax.measure import texts as decoding
from specjax.measure.texts import Protocol
from specjax.types import Prompt, Sampling, State
from tests.support import tiny
from tests.support.tiny_pair import (
    PROMPTS,
    SMALL,
    generated,
    law,
    logits,
    pair,
)

VOCAB = tiny.TARGET.vocab


@pytest.fixture(scope="module")
def target():
    return pair()[0]


@pytest.fixture(scope="module")
def draft():
    return pair()[1]


@pytest.fixture(scope="module")
def bigram(tmp_path_factory):
    rng = np.random.default_rng(0)
    texts = [[1, *rng.integers(3, VOCAB, 30).tolist(), 2] for _ in range(20)]
    path = tmp_path_factory.mktemp("counts") / "counts.safetensors"
    zoo.save_ngrams(path, ngram.fit(texts, VOCAB))
    return sides.ngram(2, str(path))


@pytest.fixture(autouse=True)
def prompts(monkeypatch):
    """Four prompts of different lengths in the tiny vocabulary."""
    monkeypatch.setitem(tasks.TASKS, "tiny", lambda: tasks.Task(PROMPTS, [], ()))


@pytest.fixture(scope="module")
def greedy(target, draft) -> dict:
    """A row at temperature 0."""
    return pairs.measure_alpha((target, draft), PROMPTS, Protocol("tiny", 0.0, **SMALL))


@pytest.mark.parametrize(("temperature", "top_k"), [(0.0, None), (0.7, 4)])
def test_beta_is_what_one_computes_by_hand(target, draft, temperature, top_k):
    protocol = Protocol("tiny", temperature, **SMALL, top_k=top_k)
    text = decoding.write(target, PROMPTS, protocol)
    filters = decoding.truncation(protocol)
    scores = scoring.score(target, draft, text, temperature, **filters)
    p, q = (law(logits(side, text), temperature, top_k) for side in (target, draft))
    assert (p[np.arange(len(p)), text.tokens[generated(text)]] > 0).all()
    each, tokens = np.arange(len(p)), text.tokens[generated(text)]
    expected = np.minimum(p, q).sum(-1), p[each, tokens], q[each, tokens]
    assert len(scores.beta) == (text.length - text.start).sum()
    for values, wanted in zip(scores[:3], expected, strict=True):
        np.testing.assert_allclose(values, wanted, atol=1e-5)
    np.testing.assert_array_equal(scores.sequence, generated(text)[0])
    if temperature == 0:  # argmax agreement
        assert set(np.round(scores.beta, 6)) == {0.0, 1.0}


def measured(players, protocol) -> dict:
    return pairs.measure_alpha(players, tasks.distinct(protocol.task), protocol)


def test_a_draft_equal_to_its_target_is_always_right(target):
    row = measured((target, target), Protocol("tiny", 1.0, **SMALL))
    for name, estimate in row["estimates"].items():
        assert estimate["value"] == pytest.approx(1, abs=1e-4), name
    assert row["tokens_per_call"] > 2  # of 3, cut at the end of a text


def test_what_a_row_reports(greedy):
    assert greedy["sequences"] == greedy["same_greedy_texts"] == 4
    assert greedy["tokens"] == greedy["decoded_tokens"]
    calls = greedy["target_calls"]
    assert greedy["decoded_tokens"] / calls == greedy["tokens_per_call"] >= 1
    assert greedy["draft_regime"] == "sampled law"
    assert greedy["exactness"] == "exact law"
    assert greedy["protocol"] == Protocol("tiny", 0.0, **SMALL)._asdict()
    assert greedy["kernels"]["verify"] == "reference"
    each = greedy["alpha_by_text"]
    assert len(each["beta"]) == 4 and sum(each["tokens"]) == greedy["tokens"]
    assert sum(each["beta"]) / sum(each["tokens"]) == pytest.approx(greedy["alpha"])


def test_a_policy_drafts_less_and_has_no_estimate_that_needs_one_gamma(
    target, draft, greedy
):
    protocol = Protocol("tiny", 0.0, **SMALL, policy="adaptive:start=1")
    row = measured((target, draft), protocol)
    assert set(row["estimates"]) == {"rao_blackwell", "counts"}
    assert row["same_greedy_texts"] == row["sequences"]
    assert row["target_calls"] > greedy["target_calls"]


def first_laws(player, texts, sampling):
    """[B, T, V]: the law of the drafter's first token after each token of each text."""
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


@pytest.mark.parametrize("name", ["unigram", "bigram", "random", "model"])
def test_the_scored_law_is_the_one_drawn_from(name, bigram, draft):
    player = {
        "unigram": sides.ngram(1, str(bigram.files[0])),
        "bigram": bigram,
        "random": sides.random(VOCAB),
        "model": draft,
    }[name]
    texts = jnp.asarray([[1, 5, 9, 5, 20], [1, 5, 9, 5, 20], [1, 8, 8, 3, 28]])
    sampling = Sampling(jnp.asarray([0.0, 0.7, 1.0]))
    prompt = Prompt(texts, jnp.full(3, 5))
    scored = jax.jit(player.law)(player.params, prompt, sampling)
    drawn = first_laws(player, texts, sampling)
    np.testing.assert_allclose(probs.dense(scored), drawn, atol=1e-5)


def test_counts_by_path_are_the_bundled_ones(bigram):
    ours, bundled = sides.ngram(2).params, zoo.ngrams()
    jax.tree.map(np.testing.assert_array_equal, ours, bundled)
    assert bigram.vocab == VOCAB and sides.ngram(1).name == "unigram"


def test_uncut_calls_give_an_unbiased_alpha():
    """Where beta is one number, all estimators find it, ends of texts or not."""
    vocab, ending = 6, 0.12
    p = np.array([0, 0, ending, 0.5, 0.2, 0.18])
    q = np.array([0, 0, 0.3, 0.1, 0.3, 0.3])
    model = tiny.markov(vocab)
    both = [
        sides.of_model(
            name, model, jnp.tile(jnp.log(jnp.maximum(law, 1e-30)), (vocab, 1))
        )
        for name, law in (("p", p), ("q", q))
    ]
    whole = dict(tokens=4000, gamma=3, new_tokens=20, batch=512)
    protocol = Protocol("unconditional", 1.0, **whole)
    row = measured(both, protocol)
    truth = np.minimum(p, q).sum()
    assert row["alpha"] == pytest.approx(truth, abs=1e-5)
    for name in ("counts", "implied_alpha"):
        estimate = row["estimates"][name]
        assert abs(estimate["value"] - truth) < 4 * estimate["se"], name
    # Cutting at the end of a text is what would bias them.
    per_call = row["decoded_tokens"] / row["target_calls"]
    uncut = row["estimates"]["chen_r"]
    assert uncut["value"] * 4 - per_call > 4 * 4 * uncut["se"]


def test_a_text_ends_after_its_end_token():
    tokens = np.array([[1, 5, 2, 7, 7], [1, 2, 5, 5, 2], [1, 5, 5, 5, 5]])
    start, length = np.array([1, 2, 1]), np.array([5, 5, 4])
    ends = decoding.ends_of(tokens, start, length, np.array([2, 2, 2]))
    np.testing.assert_array_equal(ends, [3, 5, 5])


def test_coins_do_not_depend_on_the_batch(target):
    protocol = Protocol("tiny", 1.0, **SMALL)
    few = decoding.write(target, PROMPTS, protocol._replace(batch=2))
    many = decoding.write(target, PROMPTS, protocol)
    for row, wanted in zip(few.rows(), many.rows(), strict=False):
        np.testing.assert_array_equal(row, wanted)


def test_argmax_decoding_continues_a_prompt_once(target):
    protocol = Protocol("tiny", 0.0, tokens=10_000, new_tokens=4, batch=3)
    assert len(decoding.write(target, PROMPTS, protocol).start) == 4


@pytest.mark.parametrize("name", ["code", "unconditional", "openings"])
def test_tasks(name):
    known = tasks.distinct(name).tokens
    assert len(set(map(tuple, known))) == len(known)
    assert all(text[0] == zoo.START for text in known)
    assert len(known) == 1 or len(known) >= 64
    if name == "code":  # short and varied
        lengths = [len(text) for text in known]
        assert min(lengths) >= 5 and max(lengths) <= 40


def test_an_unknown_task_names_the_known_ones():
    with pytest.raises(ValueError, match="choose one of code, unconditional"):
        tasks.distinct("poems")


def test_pairs_without_an_alpha_are_refused(target, bigram):
    protocol = Protocol("tiny", 1.0, **SMALL)
    with pytest.raises(ValueError, match="only drafts"):
        pairs.alpha(bigram, target, protocol, tasks.of)
    with pytest.raises(ValueError, match="one tokenizer"):
        pairs.alpha(target, sides.random(8), protocol, tasks.of)


def test_a_draft_without_a_law_has_the_alpha_that_counts(target):
    protocol = Protocol("tiny", 0.0, **SMALL)
    run = pairs.alpha(target, "copying", protocol, tasks.of).run
    row = run()
    assert set(row["estimates"]) == {"counts"} and row["tokens"] > 0
    assert row["alpha"] == row["estimates"]["counts"]["value"] > 0
    assert row["same_greedy_texts"] == row["sequences"]


def test_unknown_weights_and_orders_are_refused():
    with pytest.raises(
        ValueError, match=r"runs/no\.safetensors.*make them with `make`"
    ):
        sides.model("runs/no.safetensors", made_by="make")
    with pytest.raises(ValueError, match="orders 1 to 2; got 3"):
        sides.ngram(3)


def test_rows_of_one_run_share_a_text(target, draft, tmp_path, monkeypatch):
    weights = tmp_path / "weights"
    weights.write_text("1")
    named = target._replace(files=(weights,))
    protocol = Protocol("tiny", 1.0, **SMALL)
    kept = {}
    first = pairs.written(named, PROMPTS, protocol, kept=kept)
    monkeypatch.setattr(pairs, "write", None)
    other = protocol._replace(gamma=5, rule="block", policy="adaptive")
    assert pairs.written(named, PROMPTS, other, kept=kept) is first
    weights.write_text("2")
    with pytest.raises(TypeError):
        pairs.written(named, PROMPTS, protocol, kept=kept)
