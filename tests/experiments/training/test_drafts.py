"""Drafts learn from correct losses and gradients, and from the target's texts, answers
and laws, which equal those of the model in one call."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.training import pairs, pipeline
from experiments.training.drafts import answers, reduced_vocab
from experiments.training.drafts import lessons as learning
from experiments.training.drafts.answers import Plan
from experiments.training.drafts.reduced_vocab import Lesson
from experiments.training.pipeline import Stage
from specjax.checkpoints import Pretrained
from specjax.models import gpt, llama, t5
from specjax.training import forward, loop, losses, written
from specjax.training.written import Written

V, K = 12, 4


def laws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns log p, and the logits of q, [3, V]."""
    p, q = np.random.default_rng(seed).normal(size=(2, 3, V)) * 2
    return np.array(jax.nn.log_softmax(p)), q.astype(np.float32)


def gradients(log_p, z) -> dict[str, np.ndarray]:
    """Returns the gradients with respect to the logits z, in closed form."""
    p, q = np.exp(log_p), np.array(jax.nn.softmax(z))
    log_q, total = np.array(jax.nn.log_softmax(z)), dict(axis=-1, keepdims=True)
    kl = (q * (log_q - log_p)).sum(**total)
    away = log_q - np.log((p + q) / 2)
    below = q < p
    tvd = -q * (below - (q * below).sum(**total))
    alpha = np.minimum(p, q).sum(**total)
    share = np.exp(-losses.ADAPTED * alpha)
    return {
        "kl": q - p,
        "reverse_kl": q * (log_q - log_p - kl),
        "jsd": q * (away - (q * away).sum(**total)) / 2,
        "tvd": tvd,
        "log_alpha": tvd / alpha,
        "hybrid": share * (q - p) + (1 - share) * tvd,
    }


@pytest.mark.parametrize("name", losses.LOSSES)
def test_gradients_are_those_of_the_closed_forms(name):
    log_p, z = laws(0)
    ids = np.argsort(-log_p)[:, : V - 1]  # all but one: the classes are the ids

    def loss(z):
        log_q = losses.classes(z, ids)
        return losses.LOSSES[name](losses.classes(log_p, ids), log_q).sum()

    expected = gradients(log_p, z)[name]
    np.testing.assert_allclose(jax.grad(loss)(z), expected, atol=1e-4)


def test_ids_that_a_draft_lacks_are_not_accepted():
    """A divergence leaves them out, and alpha counts nothing for them."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.6, 0.4])
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    kl = (p[1:] * np.log(p[1:] / q[1:])).sum()
    share = np.exp(-losses.ADAPTED * 0.5)
    for name, wanted in (
        ("kl", kl),
        ("tvd", 0.5),
        ("log_alpha", -np.log(0.5)),
        ("hybrid", share * kl + (1 - share) * 0.5),
    ):
        got = losses.divergence(name, jnp.asarray(log_p), jnp.asarray(log_q))
        assert got == pytest.approx(wanted, rel=1e-5)


CONFIG = gpt.Config(V, 8, 16, 1, 2)


def text(count: int = 6, length: int = 7) -> written.Texts:
    rng = np.random.default_rng(0)
    tokens, lengths = rng.integers(1, V, (count, length)), rng.integers(3, 8, count)
    return written.without_inputs(tokens, lengths, np.arange(count) % 3 + 1)


ABOUT = {"target": "its digest", "texts": 6}


@pytest.fixture(scope="module")
def params():
    return forward.fresh(CONFIG)(jax.random.key(0))


@pytest.fixture(scope="module")
def path(tmp_path_factory, params):
    """A file of texts with the law of a tiny target."""
    path, model = tmp_path_factory.mktemp("kept") / "texts.npz", gpt.build(CONFIG)
    target = Pretrained("tiny", CONFIG, model, params, start=1, ends=(2,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "KEPT", K)
        written.keep(path, target, texts=text, about=ABOUT)
    return path


@pytest.fixture
def data(path, monkeypatch) -> Written:
    """Read again: nobody is asked."""
    monkeypatch.setattr(written, "KEPT", K)
    return written.keep(path, None, texts=None, about=ABOUT)


def test_texts_are_kept_with_the_law_after_each_token(data, params):
    jax.tree.map(np.testing.assert_array_equal, data.texts, text())
    logits = forward.logits(CONFIG, params, text().tokens[:, :-1])
    best, ids = jax.lax.top_k(jax.nn.log_softmax(logits), K)
    np.testing.assert_allclose(data.log_p[..., :K], best, atol=2e-3)
    np.testing.assert_array_equal(data.ids, ids)


def test_texts_of_other_settings_are_refused(path, data, tmp_path):
    message = f"{path} was written by another target or other settings: delete it"
    for changed in ({"target": "another"}, {"texts": 7}, {"seed": 0}):
        with pytest.raises(ValueError, match=re.escape(message)):
            written.keep(path, None, texts=None, about=ABOUT | changed)
    arrays = dict(np.load(path))
    np.savez(tmp_path / "a.npz", **{it: arrays[it] for it in arrays if it != "about"})
    with pytest.raises(ValueError, match="other settings: delete it"):
        written.keep(tmp_path / "a.npz", None, texts=None, about=ABOUT)


def test_a_draft_that_learned_from_another_target_is_not_gone_on_with(tmp_path, data):
    recipe = loop.Recipe(1, 0, batch=2, warmup=1)
    stage = Stage("draft", CONFIG, recipe, "lessons", "kl")
    lessons = learning.Lessons({"": (data, 1.0, None)}, {"t0": data}, "a target")

    def train_draft():
        return pipeline.run(tmp_path, [stage], {"lessons": learning.data(lessons)})

    jax.tree.map(np.testing.assert_array_equal, train_draft(), train_draft())
    lessons = lessons._replace(target="another")
    with pytest.raises(ValueError, match="another recipe"):
        train_draft()


def test_what_follows_a_text_does_not_count(data, params):
    loss = jax.jit(written.distillation("kl", CONFIG))
    rows = data.rows(np.arange(4))
    assert abs(float(loss(params, rows))) < 1e-3  # its own law
    beyond = ~np.array(written.scored_positions(rows.texts))
    wrong = np.where(beyond[..., None], -3.0, rows.log_p)
    assert abs(float(loss(params, rows._replace(log_p=wrong)))) < 1e-3
    within = rows._replace(log_p=np.where(beyond[..., None], rows.log_p, -3.0))
    assert abs(float(loss(params, within))) > 1e-2


def test_accepted_is_of_what_the_target_wrote(data, params):
    """The draft's law is wrong in the prompt and right in the continuation, and then
    the other way round."""
    prompt = np.arange(1, 7) < np.asarray(data.texts.begun)[:, None]
    assert prompt.any() and not prompt.all()
    for wrong, least, most in (prompt, 0.99, 1.01), (~prompt, 0.0, 0.5):
        where = wrong[..., None]
        ids = np.where(where, data.ids[..., ::-1], data.ids)
        log_p = np.where(where, -9.0, data.log_p)
        part = data._replace(ids=ids, log_p=log_p)
        rates = written.acceptance(CONFIG, params, {"t0": part, "t1": part})
        assert rates.keys() == {"alpha_t0", "alpha_t1"}
        assert all(least <= rate <= most for rate in rates.values())


def test_what_is_copied_cannot_be_guessed():
    rows = pairs.random_rows((0, 1), 600, (24, 48))
    np.testing.assert_array_equal(rows.inputs, rows.labels)
    ids = rows.inputs[:, :-1]
    assert ids.min() > t5.END and ids.max() < 600 and len(np.unique(ids)) > 300
    assert (rows.inputs != pairs.random_rows((0, 2), 600, (24, 48)).inputs).mean() > 0.9


# Answers, and a draft of some ids.

ANSWERING = llama.Config(90, 16, 24, 2, 2, 1, 8, tied=True)
PLAN = Plan(new=6, kept=5, batch=3)
PROMPTS = [[3, 4, 5], [7, 8, 9, 10, 11, 12, 13], [80, 2]]
logits_of = jax.jit(forward.logits, static_argnums=0)


@functools.cache
def answer_prompts(ends: tuple[int, ...] = ()):
    fresh = forward.fresh(ANSWERING)(jax.random.key(0))
    params, model = jax.tree.map(lambda leaf: 9 * leaf, fresh), llama.build(ANSWERING)
    target = Pretrained("tiny", ANSWERING, model, params, ends=ends)
    answer = answers.build(target, PLAN)
    return target, answer(jax.random.key(1), PROMPTS, np.array([0, 1, 0]))


def test_answers_and_laws_are_the_targets():
    target, (texts, ids, log_p) = answer_prompts()
    assert texts.begun.tolist() == [3, 5, 2] and texts.length.tolist() == [9, 11, 8]
    for row, prompt in enumerate(PROMPTS):
        begun, length = texts.begun[row], texts.length[row]
        text = texts.tokens[row]
        assert text[:begun].tolist() == prompt[-5:] and not text[length:].any()
        whole = jnp.asarray([prompt[: len(prompt) - begun] + text[:length].tolist()])
        z = logits_of(ANSWERING, target.params, whole.astype(jnp.int32))[0]
        law = np.asarray(jax.nn.log_softmax(z))[len(prompt) - begun : -1]
        if row != 1:  # greedy
            assert law[begun - 1 :].argmax(-1).tolist() == text[begun:length].tolist()
        own = ids[row, : length - 1].astype(int)
        np.testing.assert_array_equal(own[:, 0], law.argmax(-1))
        kept = np.take_along_axis(law, own, axis=-1)
        of_row = log_p[row, : length - 1]
        np.testing.assert_allclose(of_row[:, :-1], kept, atol=1e-2)
        others = np.log(np.maximum(1 - np.exp(kept).sum(-1), losses.LEAST))
        np.testing.assert_allclose(of_row[:, -1], others, atol=0.1)


def test_an_answer_ends_with_what_ends_the_targets_texts():
    _, (texts, *_) = answer_prompts()
    third = int(texts.tokens[0, 5])
    _, (ended, *_) = answer_prompts(ends=(third,))
    first = texts.tokens[0, 3:9].tolist().index(third) + 1
    assert ended.length[0] == 3 + first
    assert ended.tokens[0, ended.length[0] - 1] == third


def test_a_draft_of_some_ids_is_judged_by_the_ids_that_it_lacks():
    target, answer = answer_prompts()
    ids = reduced_vocab.most_frequent_ids([answer], 40, vocab=ANSWERING.vocab)
    said = answer.texts.tokens[0, 3:9]
    assert (np.diff(ids) > 0).all() and np.isin(said, ids).mean() > 0.5
    among = reduced_vocab.relabel_ids(answer, ids, ANSWERING.vocab)
    embedding = target.params["embedding"]
    lesson = Lesson(among.rows(np.arange(3)), embedding)
    config = ANSWERING._replace(vocab=ids.size)
    params = reduced_vocab.prune(config, (0, 1), params=target.params, ids=ids)
    # Whole layers and the rows of its table: it is the target, but for what it lacks.
    log_q, _, rows = reduced_vocab.compare(config, params, lesson)
    tokens = lesson.whole.texts.tokens[:, :-1]
    z = np.asarray(logits_of(ANSWERING, target.params, tokens))
    law = np.asarray(jax.nn.log_softmax(jnp.asarray(z[..., ids])))
    place = np.asarray(lesson.whole.ids)
    filled = np.pad(law, [(0, 0), (0, 0), (0, 1)], constant_values=-np.inf)
    expected = np.take_along_axis(filled, place, axis=-1)
    np.testing.assert_allclose(log_q[..., :-1], expected, rtol=2e-5, atol=2e-5)
    assert np.isneginf(log_q[..., :-1]).any()
    loss = written.distillation("kl", config, reduced_vocab.compare)(params, lesson)
    assert np.isfinite(loss) and rows.log_p.shape == log_q.shape
    # A unit that weighs nothing is the one that is cut.
    weak = jax.tree.map(jnp.array, target.params)
    kernel = weak["layers_0"]["mlp"]["out"]["kernel"]
    weak["layers_0"]["mlp"]["out"]["kernel"] = kernel.at[7].set(0.0)
    cut = reduced_vocab.prune(config._replace(mlp_dim=23), (0,), params=weak, ids=ids)
    whole = np.delete(np.asarray(weak["layers_0"]["mlp"]["in"]["kernel"]), 7, axis=1)
    np.testing.assert_array_equal(cut["layers_0"]["mlp"]["in"]["kernel"], whole)
