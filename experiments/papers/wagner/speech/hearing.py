"""Transcripts of recordings by one way of verifying, and their times.

Each recording is transcribed as Wagner et al. (2024) did: its windows in order, at one
temperature, without timestamps; no text is the context of another. Axes: T frames, M
bands.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specjax.decode_config import DecodeConfig
from specjax.speech import decoding
from specjax.speech.decoding import Spent
from specjax.speech.pair import Listeners
from specjax.speech.segments import Thresholds
from specjax.speech.sequential import Options, Recording, transcribe


class Outcome(NamedTuple):
    """The transcripts of recordings.

    Attributes:
        texts: the texts of the recordings in order.
        spent: the times of each batch.
    """

    texts: list[str]
    spent: list[Spent]


def hear(
    pair: Listeners,
    frames: Sequence[np.ndarray],
    config: DecodeConfig,
    *,
    language: str,
    batch: int,
    reserve: int,
) -> Outcome:
    """Transcribes recordings, `batch` of them at a time, at the temperature of
    `config`. reserve: see `decoding.build`."""
    spent: list[Spent] = []
    decode = decoding.build(
        pair, config, timestamps=False, on_batch=spent.append, reserve=reserve
    )
    once = Thresholds(None, None, None, (config.temperature,))
    spoken = language if pair.tokens.languages else None
    options = Options(
        spoken,
        "transcribe",
        False,
        (),
        False,
        once,
        decoding.positions(pair),
        pair.target.config.frames,
    )
    texts = [""] * len(frames)
    heard = map(Recording, frames)
    for news in transcribe(heard, decode, pair.tokens, pair.read, options, batch=batch):
        texts[news.recording] += "".join(segment.text for segment in news.segments)
    return Outcome([text.strip() for text in texts], spent)
