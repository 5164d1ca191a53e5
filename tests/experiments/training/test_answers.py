"""What a target answers and its law there, against the model asked in one call; and
what a draft of some ids learns from it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.training import forward
from experiments.training.drafts import answers, losses, some_ids
from experiments.training.drafts.answers import Plan
from experiments.training.drafts.some_ids import Lesson
from experiments.training.drafts.written import KEPT
from specjax import checkpoints
from specjax.models import llama

CONFIG = llama.Config(90, 16, 24, 2, 2, 1, 8, tied=True)
PLAN = Plan(new=6, kept=5, batch=3)
PROMPTS = [[3, 4, 5], [7, 8, 9, 10, 11, 12, 13], [80, 2]]


logits_of = jax.jit(forward.logits, static_argnums=0)


@functools.cache
def answered(ends: tuple[int, ...] = ()):
    params = jax.tree.map(
        lambda leaf: 9 * leaf, forward.fresh(CONFIG)(jax.random.key(0))
    )
    model = llama.build(CONFIG)
    target = checkpoints.Pretrained("tiny", CONFIG, model, params, ends=ends)
    written = answers.build(target, PLAN)(
        jax.random.key(1), PROMPTS, np.array([0, 1, 0])
    )
    return target, written


def test_answers_and_laws_are_the_targets():
    target, (texts, ids, log_p) = answered()
    assert texts.begun.tolist() == [3, 5, 2] and texts.length.tolist() == [9, 11, 8]
    for row, prompt in enumerate(PROMPTS):
        begun, length = texts.begun[row], texts.length[row]
        text = texts.tokens[row]
        assert text[:begun].tolist() == prompt[-5:] and not text[length:].any()
        whole = jnp.asarray([prompt[: len(prompt) - begun] + text[:length].tolist()])
        z = logits_of(CONFIG, target.params, whole.astype(jnp.int32))[0]
        law = np.asarray(jax.nn.log_softmax(z))[len(prompt) - begun : -1]
        if row != 1:  # greedy
            assert law[begun - 1 :].argmax(-1).tolist() == text[begun:length].tolist()
        own = ids[row, : length - 1].astype(int)
        np.testing.assert_array_equal(own[:, 0], law.argmax(-1))
        kept = np.take_along_axis(law, own, axis=-1)
        of_row = log_p[row, : length - 1]
        np.testing.assert_allclose(of_row[:, :KEPT], kept, atol=1e-2)
        others = np.log(np.maximum(1 - np.exp(kept).sum(-1), losses.LEAST))
        np.testing.assert_allclose(of_row[:, KEPT], others, atol=0.1)


def test_an_answer_ends_with_what_ends_the_targets_texts():
    _, (texts, *_) = answered()
    third = int(texts.tokens[0, 5])
    _, (ended, *_) = answered(ends=(third,))
    first = texts.tokens[0, 3:9].tolist().index(third) + 1
    assert ended.length[0] == 3 + first
    assert ended.tokens[0, ended.length[0] - 1] == third


def test_a_draft_of_some_ids_is_judged_by_the_ids_that_it_lacks():
    target, written = answered()
    ids = some_ids.frequent([written], 40, CONFIG.vocab)
    said = written.texts.tokens[0, 3:9]
    assert (np.diff(ids) > 0).all() and np.isin(said, ids).mean() > 0.5
    among = some_ids.among(written, ids, CONFIG.vocab)
    embedding = target.params["embedding"]
    lesson = Lesson(among.rows(np.arange(3)), embedding)
    config = CONFIG._replace(vocab=ids.size)
    params = some_ids.pruned(config, (0, 1), target.params, ids)
    # Whole layers and the rows of its table: it is the target, but for what it lacks.
    log_p, log_q = some_ids.compared(config, params, lesson)
    tokens = lesson.whole.texts.tokens[:, :-1]
    z = np.asarray(logits_of(CONFIG, target.params, tokens))
    law = np.asarray(jax.nn.log_softmax(jnp.asarray(z[..., ids])))
    place = np.asarray(lesson.whole.ids)
    filled = np.pad(law, [(0, 0), (0, 0), (0, 1)], constant_values=-np.inf)
    expected = np.take_along_axis(filled, place, axis=-1)
    np.testing.assert_allclose(log_q[..., :KEPT], expected, rtol=2e-5, atol=2e-5)
    assert np.isneginf(log_q[..., :KEPT]).any()
    loss = some_ids.distillation("kl", config)(params, lesson)
    assert np.isfinite(loss) and log_p.shape == log_q.shape
    # A unit that weighs nothing is the one that is cut.
    weak = jax.tree.map(jnp.array, target.params)
    kernel = weak["layers_0"]["mlp"]["out"]["kernel"]
    weak["layers_0"]["mlp"]["out"]["kernel"] = kernel.at[7].set(0.0)
    cut = some_ids.pruned(config._replace(mlp_dim=23), (0,), weak, ids)
    whole = np.delete(np.asarray(weak["layers_0"]["mlp"]["in"]["kernel"]), 7, axis=1)
    np.testing.assert_array_equal(cut["layers_0"]["mlp"]["in"]["kernel"], whole)
