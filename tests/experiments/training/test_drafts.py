"""What drafts learn by: the losses and their gradients, and what targets wrote."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from experiments.training import language
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
    best = np.arange(V) == np.argmax(p, -1)[:, None]
    return {
        "kl": q - p,
        "reverse_kl": q * (log_q - log_p - kl),
        "jsd": q * (away - (q * away).sum(**total)) / 2,
        "tvd": tvd,
        "log_alpha": tvd / alpha,
        "hybrid": share * (q - p) + (1 - share) * tvd,
        "argmax": q - best,
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
    tokens = rng.integers(1, V, (count, length))
    return written.alone(tokens, rng.integers(3, length + 1, count))


def kept(folder, monkeypatch) -> tuple[Written, dict]:
    monkeypatch.setattr(written, "KEPT", K)
    params = language.task(CONFIG, None).init(jax.random.key(0))

    def law(rows):
        return jax.nn.log_softmax(code.logits_of(CONFIG)(params, rows))

    return written.keep(folder / "texts.npz", text, law), params


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
    again = written.keep(tmp_path / "texts.npz", None, None)
    np.testing.assert_array_equal(again.log_p, data.log_p)


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
    texts = code.Texts(data, {"t0": data, "t1": data})
    for rate in code.accepted(params, texts).values():
        assert rate == pytest.approx(1, abs=2e-3)
    other = jax.tree.map(lambda leaf: -30 * jnp.asarray(leaf), params)
    assert all(rate < 0.9 for rate in code.accepted(other, texts).values())


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
    both = written.join([data, data.rows(np.arange(2))])
    assert len(both.texts.tokens) == len(both.log_p) == 8


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
