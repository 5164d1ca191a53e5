"""The trace of a recording: the text of the target alone, told a call at a time."""

from pathlib import Path

import pytest

from experiments import catalogue
from experiments.papers.wagner.speech import recording
from specjax import sides
from specjax.sides import Side
from specjax.speech import logmel
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("tokenizers")
GAMMA, NEW = 3, 12


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A recording of noise, and what is said in it."""
    folder = tmp_path_factory.mktemp("recording")
    sound.write(folder / "a.wav", speech_folders.sound(2.0), logmel.RATE)
    (folder / "a.txt").write_text("open the door\n")
    return folder


@pytest.fixture(scope="module")
def pair(place) -> tuple[Side, Side]:
    names = speech_folders.folders(place)
    return sides.model(names["target"]), sides.model(names["draft"])


def test_a_trace_is_the_text_of_the_target_alone(pair, place):
    built = recording.build(*pair, GAMMA, NEW, place / "a.wav")
    assert {place / "a.wav", place / "a.txt"} < {*built.inputs}
    it = built.run()
    emitted = [x for step in it["steps"] for x in step["accepted"] + step["added"]]
    assert it["same_text"] and len(emitted) == it["tokens"] == it["alone_calls"] > 2
    assert "".join(x for x in emitted if "<|" not in x).strip() == it["text"]
    assert 0 < it["calls_saved"] == it["alone_calls"] - len(it["steps"])
    assert any(step["rejected"] for step in it["steps"])
    assert it["prompt"] == "a.wav" and it["spoken"] == "open the door"
    lines = catalogue.named("speech").lines
    asked = {line.quantity for line in lines if line.folder == "speech"}
    assert asked and asked < it.keys()


def test_what_cannot_be_traced_is_refused(pair, place):
    with pytest.raises(ValueError, match="bigram does not listen: name a Whisper"):
        recording.build(pair[0], sides.ngram(2), GAMMA, NEW, place / "a.wav")
    with pytest.raises(ValueError, match=r"write what is said in b\.wav there"):
        recording.build(*pair, GAMMA, NEW, place / "b.wav")
    with pytest.raises(ValueError, match="tokens must be at least 1"):
        recording.build(*pair, GAMMA, 0, place / "a.wav")
