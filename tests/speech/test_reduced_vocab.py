"""A Whisper has a draft with a reduced vocabulary, or one made of its first layers."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints
from specjax.checkpoints import reduced_vocab
from specjax.decode_config import DecodeConfig
from specjax.exactness import draws
from specjax.inputs import make_prompt
from specjax.models import whisper
from specjax.models.reduced_vocab import UNSAID, Reduction
from specjax.speech import decoding, rules
from specjax.speech.pair import load_pair
from specjax.types import Features, Params
from tests.support import speech_folders, tiny_llama
from tests.support.speech_folders import DRAFT, FIRST, SAID, TARGET


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_it_hears_and_reads_as_its_target_and_says_some_ids(names, dtype):
    pair = load_pair(names["target"], names["few"], dtype)
    own, target = pair.draft.params, pair.target.params
    assert pair.shared and own["model"]["encoder"] is target["encoder"]
    assert own["model"]["decoder"]["embedding"] is target["decoder"]["embedding"]
    plan = decoding.make_key(
        pair, DecodeConfig(gamma=2), timestamps=True, batch=1, width=8
    )
    assert hash(plan) and plan.draft.vocab == SAID.size
    model = decoding.make_draft(plan, plan.draft)
    frames = Features(jnp.ones((1, TARGET.frames, TARGET.bands)))
    states = whisper.encode(TARGET, target, frames)
    ids = jnp.array([[41, 42, 45, 5, 7]])
    said = []
    for heard in (states, frames):  # what the target's encoder gave, or gives
        prompt = make_prompt(ids.tolist())._replace(inputs=heard)
        cache = model.init(own, prompt, 8)
        features, _ = model.apply(own, ids, jnp.zeros(1, jnp.int32), cache)
        said.append(np.asarray(model.readout(own, features)))
    np.testing.assert_allclose(*said, rtol=1e-5, atol=1e-5)
    decoder = {**own["model"]["decoder"], "embedding": target["decoder"]["embedding"]}
    whole = {"encoder": target["encoder"], "decoder": decoder}
    z = np.asarray(whisper.logits(DRAFT, whole, frames, ids))
    assert said[0].shape == z.shape
    assert (np.delete(said[0], SAID, axis=-1) == UNSAID).all()
    if dtype == "float32":  # its rows are the target's, but in eight bits
        assert np.abs(said[0] - z)[..., SAID].max() < 0.05 * np.abs(z).max()


def test_a_law_is_left_where_rules_allow_no_id_that_it_says(names):
    pair = load_pair(names["target"], None)
    ruled = rules.build(pair.tokens, pair.limits, TARGET.vocab)
    state = ruled.begin(jnp.array([[41, 42, 45]]), jnp.array([3]))
    logits = jnp.full((1, TARGET.vocab), UNSAID).at[:, :9].set(1.0)  # no times
    best = int(jnp.argmax(ruled.apply(state, logits)))
    assert best >= pair.tokens.first_time


def test_the_first_layers_draft(names):
    pair = load_pair(names["target"], "early_exit:1")
    assert pair.shared and pair.draft.config == DRAFT
    assert pair.draft.params["decoder"] is pair.target.params["decoder"]


def test_who_cannot_draft_is_told(names, tmp_path):
    wide = TARGET._replace(dim=18)
    params = speech_folders.weights(wide, 1)
    other = checkpoints.Pretrained("wide", wide, whisper.build(wide), params)
    there = load_pair(names["target"], None).target
    other = other._replace(files=there.files, tokenizer_file=there.tokenizer_file)
    llama = tiny_llama.LLAMA._replace(window=None, local=(), tied=True, vocab=5)
    weights = tiny_llama.weights(llama, 1)
    reduced_vocab.save(
        tmp_path / "a.safetensors", Reduction(llama, weights, np.arange(5))
    )
    for target, draft, message in (
        (other, names["few"], "few: it reads by an embedding of width 16, and its"),
        (names["target"], tmp_path / "a.safetensors", "for a model of Llama's kind"),
        (names["target"], "copying", "copying reads no recordings: name a Whisper"),
        (names["target"], "early_exit:2", "2 layers, of which 1 to 1 can draft; got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            load_pair(target, draft)


@pytest.mark.slow
def test_no_key_serves_two_draws_of_a_transcript(names):
    """The decoder of recordings is tested, with the rules of times and texts."""
    pair = load_pair(names["target"], names["few"])
    prompt, key = draws.make_requests(2, FIRST)
    frames = jnp.ones((key.size, TARGET.frames, TARGET.bands))
    prompt = prompt._replace(inputs=Features(frames))
    plan = decoding.make_key(
        pair, DecodeConfig(gamma=2), timestamps=True, batch=key.size, width=8
    )
    params = Params(pair.target.params, pair.draft.params)
    found = draws.record_step(decoding.make_decoder(plan), params, prompt, key)
    assert draws.problems(found) == [] and found.drawn
