"""Windows of speech with their texts, the training data of a Whisper.

Axes: B rows, F frames, M bands, S states of the encoder, L tokens.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.training.voices import sentences, synthesis
from experiments.training.voices.synthesis import RATE, Speech
from specjax.runtime import progress
from specjax.speech import logmel
from specjax.training import storage

BANDS = 80
Spoken = tuple[list[str], Speech]


class Window(NamedTuple):
    """The size of a window.

    Attributes:
        length: the most tokens of its text, with prompt.
    """

    seconds: float
    length: int

    @property
    def samples(self) -> int:
        return round(self.seconds * RATE)

    @property
    def frames(self) -> int:
        return self.samples // logmel.HOP


SHORT, WHOLE = Window(2.0, 46), Window(sentences.SECONDS, 88)
MARKS = 6  # tokens of a text that are not letters, and one to spare


class Rows(NamedTuple):
    """A batch of windows.

    Attributes:
        frames: [B, F, M].
        tokens: [B, L].
        length: [B], of each text.
        begun: [B], tokens of the prompt.
        spoken: [B, S], the letter at each state.
    """

    frames: np.ndarray
    tokens: np.ndarray
    length: np.ndarray
    begun: np.ndarray
    spoken: np.ndarray


def synthesise(rng: np.random.Generator, window: Window) -> Spoken:
    """Returns sentences in one voice, as many as fit into the window."""
    voice, words = synthesis.speaker(rng), []
    for _ in range(rng.integers(1, round(window.seconds))):
        words += sentences.sentence(rng)
    return fit_words(words, synthesis.say(words, voice, rng), window)


def fit_words(words: list[str], speech: Speech, window: Window) -> Spoken:
    """Returns the words that end within the window, with no more letters than a text
    may have.
    """
    letters = np.cumsum([len(word) + 1 for word in words])
    ends = np.array([end for _, end in speech.spans])
    fits = (ends < window.seconds - 0.04) & (letters <= window.length - MARKS)
    count, stop = max(1, int(np.sum(fits))), len(speech.samples)
    if count < len(words):  # where the next word begins
        stop = round((speech.spans[count][0] + 0.01) * RATE)
    samples = speech.samples[: min(stop, window.samples)]
    return words[:count], Speech(samples, speech.spans[:count])


def keep(
    path: Path, *, seed: int, count: int, window: Window = WHOLE, spoken=synthesise
) -> Rows:
    """Returns the rows of a seed, which are made once and then read from `path`; frames
    are float16.
    """

    def make() -> dict[str, np.ndarray]:
        places = progress.track(range(count), f"{path.stem}: rows", kept=True)
        parts = [rows((seed, i), 1, window, spoken) for i in places]
        whole = Rows(*map(np.concatenate, zip(*parts, strict=True)))
        return whole._replace(frames=whole.frames.astype(np.float16))._asdict()

    read = storage.keep(path, make, about={"seed": seed, "count": count})
    return Rows(*(read[name] for name in Rows._fields))


def select_rows(whole: Rows, index: np.ndarray) -> Rows:
    part = Rows(*(leaf[index] for leaf in whole))
    return part._replace(frames=part.frames.astype(np.float32))


def rows(
    seed: tuple, count: int, window: Window, spoken=synthesise, times: float = 0.3
) -> Rows:
    """Returns a batch of windows.

    Args:
        count: B.
        times: the share of the rows that are written with timestamps.
    """
    rng, parts = np.random.default_rng(seed), []
    for _ in range(count):
        words, speech = spoken(rng, window)
        timed = rng.random() < times
        around = (speech.spans[0][0], speech.spans[-1][1]) if timed else None
        ids = sentences.row_text(words, around)
        tokens = np.full(window.length, sentences.END, np.int32)
        tokens[: len(ids)] = ids
        frames = logmel.features(speech.samples, BANDS, window.frames)
        labels = _labels(words, speech, window.frames // 2)
        sizes = np.int32(len(ids)), np.int32(1 if timed else 2)
        parts.append((frames, tokens, *sizes, labels))
    return Rows(*map(np.stack, zip(*parts, strict=True)))


def _labels(words: list[str], speech: Speech, states: int) -> np.ndarray:
    """Returns the letter at each state; the letters of a word are spread evenly over
    its time."""
    labels = np.full(states, sentences.IDS[" "], np.int32)
    for word, (start, end) in zip(words, speech.spans, strict=True):
        at = np.arange(round(start * 50), min(round(end * 50), states))
        share = (at - start * 50) / (end - start) / 50
        place = np.clip((share * len(word)).astype(int), 0, len(word) - 1)
        labels[at] = [sentences.IDS[word[i]] for i in place]
    return labels
