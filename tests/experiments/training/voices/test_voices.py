"""Synthetic speech has the right words, lengths and transcripts."""

import importlib

import numpy as np
import pytest

from experiments.papers.wagner.speech import utterances
from experiments.training.voices import (
    examples,
    read_aloud,
    recorded,
    synthesis,
)
from specjax.speech import audio, logmel

VOICE = synthesis.Speaker()


def say_words(*words, seed=0, voice=VOICE):
    return synthesis.say(words, voice, np.random.default_rng(seed))


def test_speech_is_deterministic_finite_and_as_long_as_its_words():
    speech = say_words("call", "seven", "three")
    assert np.array_equal(speech.samples, say_words("call", "seven", "three").samples)
    assert np.isfinite(speech.samples).all() and np.abs(speech.samples).max() < 2
    starts, ends = zip(*speech.spans, strict=True)
    assert all(0.05 < end - start < 0.7 for start, end in speech.spans)
    assert ends[-1] < len(speech.samples) / synthesis.RATE < ends[-1] + 0.3
    slow = say_words("call", "seven", "three", voice=VOICE._replace(slow=1.6))
    assert slow.spans[1][1] - slow.spans[1][0] > 1.5 * (ends[1] - starts[1])
    with pytest.raises(ValueError, match="cannot say 'eleven': spell it"):
        say_words("eleven")


def test_every_word_sounds_like_itself_and_like_no_other():
    """Two recordings of one word, divided into fifths, are nearer to each other than
    those of two words."""

    def fifths(word, seed):
        speech = say_words(word, seed=seed)
        begin, end = (round(time * synthesis.RATE) for time in speech.spans[0])
        count = (end - begin) // logmel.HOP
        samples = speech.samples[begin : begin + count * logmel.HOP]
        frames = logmel.features(samples, frames=count)
        return np.stack([part.mean(0) for part in np.array_split(frames, 5)])

    words = [word for word in synthesis.WORDS if word != "to"]  # sounds like two
    first, again = (np.stack([fifths(w, seed) for w in words]) for seed in (1, 2))
    distance = np.square(first[:, None] - again[None]).sum((-1, -2))
    assert np.mean(distance.argmin(1) == np.arange(len(words))) > 0.85


def test_what_does_not_fit_a_window_is_not_in_its_text_and_rows_are_kept(tmp_path):
    kept, cut = examples.fit_words(
        ["seven"] * 20, say_words(*["seven"] * 20), examples.WHOLE
    )
    assert 5 < len(kept) < 20 and len(cut.spans) == len(kept)
    assert len(cut.samples) <= examples.WHOLE.samples
    first, again = (
        examples.keep(tmp_path / "rows.npz", seed=3, count=2) for _ in range(2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    with pytest.raises(ValueError, match="other settings: delete it"):
        examples.keep(tmp_path / "rows.npz", seed=4, count=2)


def test_recordings_that_are_not_there_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"has no transcripts\.tsv: name the folder"):
        recorded.strings(tmp_path, "train")
    table = tmp_path / "transcripts.tsv"
    table.write_text("file\tspeaker\tseconds\ttranscript\tsplit\n")
    with pytest.raises(ValueError, match="no digits of split 'dev': try train or test"):
        recorded.strings(tmp_path, "dev")


def test_recordings_are_what_their_table_says(tmp_path):
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    strings = importlib.import_module("experiments.training.voices.strings")
    strings.main(["--out", str(tmp_path / "a"), "--count", "2"])
    spoken = utterances.read(tmp_path / "a", split="test")
    assert len(spoken.files) == 2 and all(spoken.references)
    for file, seconds in zip(spoken.files, spoken.seconds, strict=True):
        assert len(audio.read(file).samples) == pytest.approx(16_000 * seconds, abs=16)
    with pytest.raises(ValueError, match="exists: name a new folder"):
        strings.write(tmp_path / "a", 2)


def test_neighbours_of_one_speaker_share_a_window(tmp_path):
    sound = pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    table = "file\tspeaker\tseconds\ttranscript\tsplit\n"
    for i, (speaker, split) in enumerate(("at", "at", "bt", "ct", "ct", "cx")):
        sound.write(tmp_path / f"{i}.wav", np.full(16000, 0.1), logmel.RATE)
        table += f"{i}.wav\t{speaker}\t1\tw{i}\t{'train' if split == 't' else 'no'}\n"
    (tmp_path / "transcripts.tsv").write_text(table)
    for most, said in (
        (33000, ["w0 w1", "w2", "w3 w4"]),
        (16000, ["w0", "w1", "w2", "w3", "w4"]),
    ):
        made = [*recorded.transcribed_windows(tmp_path, most)]
        assert [it.said for it in made] == said
        assert [len(it.read()) for it in made] == [16000 * len(x.split()) for x in said]
    with pytest.raises(ValueError, match=r"no transcripts\.tsv: name it by --record"):
        [*recorded.transcribed_windows(tmp_path / "none", 16000)]


def test_texts_have_room_for_what_they_say():
    sentences = [f"{i} " + "x" * 100 for i in range(9)]
    texts = read_aloud.texts(sentences, 2)
    assert texts == [" ".join(sentences[:3]), " ".join(sentences[3:6])]
    assert max(map(len, texts)) <= read_aloud.LETTERS
