"""Texts of recordings by one way to verify, and what they took.

Each recording is transcribed as Wagner et al. (2024) did: its windows in order, at one
temperature, without times, no text the context of another.
Axes: T frames, M bands.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specjax.speech import decoding
from specjax.speech.decoding import Speculation, Spent
from specjax.speech.pair import Listeners
from specjax.speech.recordings import Recording, features
from specjax.speech.segments import Thresholds
from specjax.speech.transcribe import Asked, transcribe


class Outcome(NamedTuple):
    """texts: of the recordings in order. spent: of each batch."""

    texts: list[str]
    spent: list[Spent]


def frames_of(files: Sequence[Path], bands: int) -> list[np.ndarray]:
    """What is heard of each file, [T, M]. Raises ValueError for one that cannot be
    read."""
    told: list[Recording] = []
    heard = list(features(files, bands, told.append))
    broken = next((each.problem for each in told if each.problem), None)
    if broken is not None:
        raise ValueError(broken)
    return heard


def hear(
    pair: Listeners,
    frames: Sequence[np.ndarray],
    how: Speculation,
    temperature: float,
    language: str,
    batch: int,
    told: Callable[[Spent], None] = lambda spent: None,
) -> Outcome:
    """Transcribes recordings, `batch` of them at once. told: as of `decoding.build`."""
    spent: list[Spent] = []

    def after(each: Spent) -> None:
        spent.append(each)
        told(each)

    decode = decoding.build(pair, how, False, after)
    once = Thresholds(None, None, None, (temperature,))
    sizes = decoding.positions(pair), pair.target.config.frames
    spoken = language if pair.tokens.languages else None
    asked = Asked(spoken, "transcribe", False, (), False, once, *sizes)
    texts = [""] * len(frames)
    for news in transcribe(frames, decode, pair.tokens, pair.read, asked, batch):
        texts[news.recording] += "".join(segment.text for segment in news.segments)
    return Outcome([text.strip() for text in texts], spent)
