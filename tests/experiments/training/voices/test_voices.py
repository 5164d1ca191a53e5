"""Synthesised speech: what is said, how long, and the text that goes with it."""

import numpy as np
import pytest

from experiments.training.voices import (
    examples,
    phonemes,
    recorded,
    sentences,
    synthesis,
)
from specjax import tokenizers
from specjax.speech import logmel, rules, tokens

VOICE = synthesis.Speaker()


def voiced(*words, seed=0, voice=VOICE):
    return synthesis.say(words, voice, np.random.default_rng(seed))


def test_speech_is_deterministic_finite_and_as_long_as_its_words():
    speech = voiced("call", "seven", "three")
    assert np.array_equal(speech.samples, voiced("call", "seven", "three").samples)
    assert np.isfinite(speech.samples).all() and np.abs(speech.samples).max() < 2
    starts, ends = zip(*speech.spans, strict=True)
    assert all(0.05 < end - start < 0.7 for start, end in speech.spans)
    assert list(starts[1:]) >= list(ends[:-1])
    assert ends[-1] < len(speech.samples) / synthesis.RATE < ends[-1] + 0.3
    slow = voiced("call", "seven", "three", voice=VOICE._replace(slow=1.6))
    assert slow.spans[1][1] - slow.spans[1][0] > 1.5 * (ends[1] - starts[1])


def test_every_word_sounds_like_itself_and_like_no_other():
    """Two voicings of a word are nearer, in fifths of it, than those of two words."""

    def fifths(word, seed):
        speech = voiced(word, seed=seed)
        begin, end = (round(time * synthesis.RATE) for time in speech.spans[0])
        count = (end - begin) // logmel.HOP
        frames = logmel.features(
            speech.samples[begin : begin + count * logmel.HOP], frames=count
        )
        return np.stack([part.mean(0) for part in np.array_split(frames, 5)])

    words = [word for word in phonemes.WORDS if word != "to"]  # sounds like two
    first, again = (np.stack([fifths(w, seed) for w in words]) for seed in (1, 2))
    distance = np.square(first[:, None] - again[None]).sum((-1, -2))
    assert np.mean(distance.argmin(1) == np.arange(len(words))) > 0.85


def test_the_pitch_is_the_speakers():
    """Where the source repeats: the first peak of a vowel's autocorrelation."""
    for pitch in (100.0, 220.0):
        voice = VOICE._replace(pitch=pitch, noise=0.0, breath=0.0)
        speech = voiced("my", voice=voice)
        middle = round(np.mean(speech.spans[0]) * synthesis.RATE)
        part = speech.samples[middle - 800 : middle + 800]
        alike = np.correlate(part, part, "full")[len(part) - 1 :]
        period = 60 + np.argmax(alike[60:250])
        assert abs(synthesis.RATE / period / pitch - 1) < 0.12


def test_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match="cannot say 'eleven': spell it"):
        voiced("eleven")


def test_rows_have_the_text_that_is_heard():
    whole = examples.WHOLE
    rows = examples.rows((5,), 6, whole, times=0.5)
    assert rows.frames.shape == (6, whole.frames, examples.BANDS)
    timed = rows.begun == 1
    assert timed.any() and not timed.all()
    for row, length, begun in zip(rows.tokens, rows.length, rows.begun, strict=True):
        pieces = [sentences.PIECES[i] for i in row[:length]]
        ends = row[begun], row[length - 2]
        if begun == 1:
            assert sentences.FIRST_TIME <= ends[0] < ends[1] < sentences.VOCAB
        words = "".join(pieces[2 : -2 if begun == 1 else -1]).split()
        assert words and all(word in phonemes.WORDS for word in words)
        assert pieces[-1] == "<|endoftext|>"


def test_what_does_not_fit_a_window_is_not_in_its_text():
    words = ["seven"] * 20
    speech = voiced(*words)
    kept, cut = examples.fitted(words, speech, examples.WHOLE)
    assert 5 < len(kept) < 20 and cut.spans == speech.spans[: len(kept)]
    assert cut.spans[-1][1] < sentences.SECONDS
    assert len(cut.samples) <= examples.WHOLE.samples


def test_rows_are_kept(tmp_path):
    path = tmp_path / "rows.npz"
    first = examples.keep(path, 3, 2)
    again = examples.keep(path, 3, 2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert examples.chosen(again, np.array([1])).frames.dtype == np.float32
    with pytest.raises(ValueError, match="other settings: delete it"):
        examples.keep(path, 4, 2)


def test_the_tokenizer_is_one_of_whispers_kind(tmp_path):
    (tmp_path / "tokenizer.json").write_text(sentences.tokenizer())
    special = tokens.read(tmp_path)
    assert special.end == sentences.END and special.start == sentences.START
    assert tokens.prompt(special, timestamps=False) == [sentences.START, sentences.MUTE]
    assert special.first_time == sentences.FIRST_TIME and not special.languages
    coder = tokenizers.read(tmp_path)
    ids = sentences.text(["call", "two"], (0.2, 1.0))
    assert coder.decode(tokens.text_ids(special, ids)) == " call two"
    assert coder.encode(" call two") == sentences.letters(["call", "two"])
    rules.build(special, rules.Limits(), sentences.VOCAB)


def test_recordings_that_are_not_there_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"has no transcripts\.tsv: name the folder"):
        recorded.strings(tmp_path, "train")
    table = tmp_path / "transcripts.tsv"
    table.write_text("file\tspeaker\tseconds\ttranscript\tsplit\n")
    with pytest.raises(ValueError, match="no digits of split 'dev': try train or test"):
        recorded.strings(tmp_path, "dev")
