"""What drafts learn by: the losses and their gradients, and what targets wrote."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from experiments.training import language, loop
from experiments.training.drafts import code, copying, losses, written
from experiments.training.drafts.written import Written
from specjax.models import gpt, t5

V, K = 12, 4


def laws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """log p and logits of q, [3, V]."""
    p, q = np.random.default_rng(seed).normal(size=(2, 3, V)) * 2
    return np.array(jax.nn.log_softmax(p)), q.astype(np.float32)


def gradients(log_p, z) -> dict[str, np.ndarray]:
    """By logits z, in closed form."""
    p, q = np.exp(log_p), np.array(jax.nn.softmax(z))
    log_q = np.array(jax.nn.log_softmax(z))
    total = dict(axis=-1, keepdims=True)
    kl = (q * (log_q - log_p)).sum(**total)
    middle = np.log((p + q) / 2)
    away = log_q - middle
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
        log_q = losses.classes(jax.nn.log_softmax(z), ids)
        return losses.LOSSES[name](losses.classes(log_p, ids), log_q).sum()

    expected = gradients(log_p, z)[name]
    np.testing.assert_allclose(jax.grad(loss)(z), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "jsd", "tvd"])
def test_of_fewer_classes_a_divergence_is_no_larger(name):
    log_p, z = laws(1)
    log_q, ids = jax.nn.log_softmax(z), np.argsort(-log_p)
    some, every = (
        losses.LOSSES[name](*(losses.classes(x, ids[:, :k]) for x in (log_p, log_q)))
        for k in (K, V - 1)
    )
    assert np.all(some <= every + 1e-6) and np.any(some < every - 1e-3)
    same = losses.classes(log_p, ids[:, :K])
    np.testing.assert_allclose(losses.LOSSES[name](same, same), 0, atol=1e-6)
    np.testing.assert_allclose(np.exp(same).sum(-1), 1, atol=1e-6)


CONFIG = gpt.Config(V, 8, 16, 1, 2)


def text(count: int = 6, length: int = 7) -> written.Texts:
    rng = np.random.default_rng(0)
    tokens, lengths = rng.integers(1, V, (count, length)), rng.integers(3, 8, count)
    return written.alone(tokens, lengths, np.arange(count) % 3 + 1)


ABOUT = {"target": "its digest", "texts": 6}


def kept(folder, monkeypatch) -> tuple[Written, dict]:
    monkeypatch.setattr(written, "KEPT", K)
    params = language.task(CONFIG, None).init(jax.random.key(0))

    def law(rows):
        return jax.nn.log_softmax(code.logits_of(CONFIG)(params, rows))

    return written.keep(folder / "texts.npz", text, law, ABOUT), params


def test_texts_are_kept_with_the_law_after_each_token(tmp_path, monkeypatch):
    data, params = kept(tmp_path, monkeypatch)
    tokens = text().tokens
    jax.tree.map(np.testing.assert_array_equal, data.texts, text())
    log_p = jax.nn.log_softmax(language.logits_of(CONFIG, params, tokens[:, :-1]))
    best = np.sort(log_p)[..., ::-1][..., :K]
    np.testing.assert_allclose(data.log_p[..., :K], best, atol=2e-3)
    at = np.take_along_axis(np.array(log_p), data.ids.astype(int), -1)
    np.testing.assert_allclose(at, best, atol=1e-6)
    # Once kept, nobody is asked again.
    again = written.keep(tmp_path / "texts.npz", None, None, ABOUT)
    jax.tree.map(np.testing.assert_array_equal, again, data)


@pytest.mark.parametrize("changed", [{"target": "another"}, {"texts": 7}, {"seed": 0}])
def test_texts_of_other_settings_are_refused(tmp_path, monkeypatch, changed):
    kept(tmp_path, monkeypatch)
    path = tmp_path / "texts.npz"
    message = f"{path} was written by another target or other settings: delete it"
    with pytest.raises(ValueError, match=re.escape(message)):
        written.keep(path, None, None, ABOUT | changed)


def test_texts_that_do_not_say_their_settings_are_refused(tmp_path, monkeypatch):
    kept(tmp_path, monkeypatch)
    path = tmp_path / "texts.npz"
    arrays = dict(np.load(path))
    monkeypatch.setattr(written, "KEPT", K + 1)
    with pytest.raises(ValueError, match="other settings: delete it"):
        written.keep(path, None, None, ABOUT)
    monkeypatch.setattr(written, "KEPT", K)
    del arrays["about"]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="other settings: delete it"):
        written.keep(path, None, None, ABOUT)


def test_a_draft_that_learned_from_another_target_is_not_gone_on_with(
    tmp_path, monkeypatch
):
    data, _ = kept(tmp_path, monkeypatch)
    monkeypatch.setattr(code, "DRAFT", CONFIG)
    recipe = loop.Recipe(1, 0, batch=2, warmup=1)
    lessons = written.Lessons(data, {"t0": data}, "a target")
    first = code.trained(tmp_path / "draft", "kl", recipe, lessons, None)
    again = code.trained(tmp_path / "draft", "kl", recipe, lessons, None)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    lessons = lessons._replace(target="another")
    with pytest.raises(ValueError, match="another recipe"):
        code.trained(tmp_path / "draft", "kl", recipe, lessons, None)


def test_what_follows_a_text_does_not_count(tmp_path, monkeypatch):
    data, params = kept(tmp_path, monkeypatch)
    loss = written.distillation("kl", code.logits_of(CONFIG))
    rows = data.rows(np.arange(4))
    assert abs(float(loss(params, rows))) < 1e-3  # its own law
    beyond = ~np.array(written.live(rows.texts))
    wrong = np.where(beyond[..., None], -3.0, rows.log_p)
    assert abs(float(loss(params, rows._replace(log_p=wrong)))) < 1e-3
    within = rows._replace(log_p=np.where(beyond[..., None], rows.log_p, -3.0))
    assert abs(float(loss(params, within))) > 1e-2


def test_accepted_of_the_target_itself_is_everything(tmp_path, monkeypatch):
    data, params = kept(tmp_path, monkeypatch)
    monkeypatch.setattr(code, "DRAFT", CONFIG)
    texts = written.Lessons(data, {"t0": data, "t1": data}, "a target")
    for rate in code.accepted(params, texts).values():
        assert rate == pytest.approx(1, abs=2e-3)
    other = jax.tree.map(lambda leaf: -30 * jnp.asarray(leaf), params)
    assert all(rate < 0.9 for rate in code.accepted(other, texts).values())


def test_accepted_is_of_what_the_target_wrote(tmp_path, monkeypatch):
    """Where the prompt has another law than the draft, and its continuation the same;
    and the other way round."""
    data, params = kept(tmp_path, monkeypatch)
    prompt = np.arange(1, 7) < np.asarray(data.texts.begun)[:, None]
    assert prompt.any() and not prompt.all()
    for wrong, least, most in (prompt, 0.99, 1.01), (~prompt, 0.0, 0.5):
        where = wrong[..., None]
        ids = np.where(where, data.ids[..., ::-1], data.ids)
        log_p = np.where(where, -9.0, data.log_p)
        part = data._replace(ids=ids, log_p=log_p)
        rates = written.accepted(
            code.logits_of(CONFIG), params, {"t0": part, "t1": part}
        )
        assert rates.keys() == {"alpha_t0", "alpha_t1"}
        assert all(least <= rate <= most for rate in rates.values())


def test_prompts_are_what_beginnings_hold(monkeypatch):
    monkeypatch.setattr(code, "BATCH", 4)
    monkeypatch.setattr(code, "PROMPT", 5)
    stream = language.stream([[1, *range(3, 12), 2]] * 3)
    for temperature in (0.0, 1.0):
        for rows, begun in code.beginnings(stream, 8, temperature, seed=0):
            assert rows.shape == (4, 5) and begun.dtype == np.int32
            np.testing.assert_array_equal((rows > 0).sum(1), begun)
            assert np.all(begun >= 1)
            assert np.all(begun[::2] == 1) == (temperature > 0)


def test_there_is_something_to_continue():
    rows = np.array([[1, 5, 6, 2], [1, 2, 1, 2], [1, 5, 6, 7]])
    np.testing.assert_array_equal(code._ends(rows), [3, 1, 4])


def test_batches_hold_every_row_once(tmp_path, monkeypatch):
    data, _ = kept(tmp_path, monkeypatch)
    parts = written.batches(data, 4)
    assert [len(part.ids) for part in parts] == [4, 2]
    whole = np.concatenate([part.texts.tokens for part in parts])
    np.testing.assert_array_equal(whole, data.texts.tokens)


def test_joined_texts_follow_each_other(tmp_path, monkeypatch):
    data, _ = kept(tmp_path, monkeypatch)
    more = data.rows(np.arange(2)[::-1])
    both = jax.tree.leaves(written.join([data, more]))
    parts = map(jax.tree.leaves, (data, more))
    for leaf, before, after in zip(both, *parts, strict=True):
        np.testing.assert_array_equal(leaf[:6], before)
        np.testing.assert_array_equal(leaf[6:], after)


def test_a_model_inclined_to_copy_reads_what_is_like_its_queries():
    config = t5.Config(24, 8, 16, 1, 2, 2, 4)
    plain = nn.meta.unbox(t5.init_params(jax.random.key(0), config))
    inclined = copying.inclined(plain)
    embedding = plain["token_embedder"]["embedding"]
    changed = {("decoder", "logits_dense", "kernel"): embedding.T / 8**0.5}
    for layer in ("layers_0", "layers_1"):
        across = plain["decoder"][layer]["encoder_decoder_attention"]
        query, key = across["query"]["kernel"], across["key"]["kernel"]
        path = "decoder", layer, "encoder_decoder_attention", "query", "kernel"
        changed[path] = key * query.std() / key.std()
    before, after = flatten_dict(plain), flatten_dict(inclined)
    for path, leaf in after.items():
        np.testing.assert_allclose(leaf, changed.get(path, before[path]), rtol=1e-6)


def test_what_is_copied_cannot_be_guessed():
    rows = copying.drawn((0, 1), pieces=600)
    np.testing.assert_array_equal(rows.inputs, rows.labels)
    ids = rows.inputs[:, :-1]
    assert ids.min() > t5.END and ids.max() < 600
    assert len(np.unique(ids)) > 300
    assert (rows.inputs != copying.drawn((0, 2), pieces=600).inputs).mean() > 0.9
