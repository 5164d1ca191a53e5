"""The bundled pair on the bundled recording: the text, the same with and without draft.

What it makes of windows that it never heard is in its recipe.
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
    """The greedy text is what was spoken, in half as many calls as it has tokens."""
    target, draft = pair
    together = specjax.transcribe(target, draft, [RECORDING], temperatures=[0.0])
    spoken = RECORDING.with_suffix(".txt").read_text().strip()
    assert together.transcripts[0].text == spoken
    assert together.calls < together.tokens / 2 and together.alpha > 0.8
    assert together.transcripts[0].segments[-1].end > 1


def test_what_was_held_out_is_in_the_recipe():
    recipe = json.loads((zoo.FOLDER / "speech_recipes.json").read_text())
    errors = recipe["held_out"]["word_errors"]
    assert errors["recordings"] >= 64 and errors["rate"] < 0.10
