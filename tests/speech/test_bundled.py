"""The bundled pair writes down the bundled recording, in few calls of its target.

What it makes of windows that it never heard is in its recipe. That its text is the one
without a draft follows from `test_transcripts`.
"""

import json

import pytest

import specjax
from specjax import zoo
from specjax.models import whisper

RECORDING = zoo.FOLDER / "speech" / "speech.flac"


@pytest.fixture(scope="module")
def pair():
    return tuple(specjax.load(name) for name in zoo.SPEECH_MODELS)


def test_the_pair_shares_its_encoder_and_is_small(pair):
    target, draft = pair
    assert whisper.same_encoder(target.params, draft.params)
    assert (draft.config.decoder_layers, target.config.decoder_layers) == (1, 12)
    files = [zoo.FOLDER / f"{name}.safetensors" for name in zoo.SPEECH_MODELS]
    files += (zoo.FOLDER / "speech").iterdir()
    assert sum(file.stat().st_size for file in files) <= 15e6


def test_it_writes_down_the_recording(pair):
    """With times; a target alone would take a call for each token."""
    options = dict(timestamps=True, temperatures=[0.0])
    result = specjax.transcribe(*pair, [RECORDING], **options)
    spoken = RECORDING.with_suffix(".txt").read_text().strip()
    assert result.transcripts[0].text == spoken
    assert result.calls < result.tokens / 2 and result.alpha > 0.8


def test_what_was_held_out_is_in_the_recipe():
    recipe = json.loads((zoo.FOLDER / "speech_recipes.json").read_text())
    errors = recipe["held_out"]["word_errors"]
    assert errors["recordings"] >= 64 and errors["rate"] < 0.10
