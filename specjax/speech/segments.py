"""Segments from tokens with times, and the decisions about windows that went wrong.

It is the sequential transcription of long recordings (Radford et al., 2022, Section
3.8): each window of 30 s begins where the last whole segment before it ended; one that
repeats itself or is improbable is decoded again at a higher temperature; one without
speech is skipped."""

import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from specjax.decode_config import check_setting
from specjax.speech.tokens import STEP, Tokens, is_time

FRAME = 0.01  # seconds
STEP_FRAMES = round(STEP / FRAME)  # of one timestamp


class Piece(NamedTuple):
    """A segment of a window.

    start, end: seconds of the recording. tokens: with the timestamps around its text.
    """

    start: float
    end: float
    tokens: list[int]


class Word(NamedTuple):
    """A word with the punctuation around it.

    text: begins with the space that the model writes. start, end: seconds. probability:
    the mean over its tokens."""

    text: str
    start: float
    end: float
    probability: float


class Segment(NamedTuple):
    """A segment of a transcript, and how its window was decoded.

    start, end: seconds. text: begins with the space that the model writes. tokens: with
    timestamps. temperature, logprob (mean per token), no_speech (a probability),
    compression (how often its text repeats itself): of the whole window. words: None
    where words were not requested."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    logprob: float = 0.0
    no_speech: float = 0.0
    compression: float = 0.0
    words: tuple[Word, ...] | None = None


class Thresholds(NamedTuple):
    """The conditions under which a window is decoded again, or skipped; None for never.

    compression: the largest factor by which zlib may shrink its text. logprob: the
    least mean log probability of a token. no_speech: the probability from which on an
    improbable text counts as silence. temperatures: tried in turn."""

    compression: float | None = 2.4
    logprob: float | None = -1.0
    no_speech: float | None = 0.6
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def check(thresholds: Thresholds) -> None:
    """Raises ValueError for thresholds that cannot be applied."""
    numbers = [x for x in thresholds[:3] if x is not None]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{thresholds} are not all finite: write None for never")
    temperatures = thresholds.temperatures
    if not temperatures:
        raise ValueError("there are no temperatures: give one or more, such as 0")
    for temperature in temperatures:
        check_setting("temperature", temperature)
    if list(temperatures) != sorted(temperatures):
        raise ValueError(f"temperatures {temperatures} fall: give the lowest first")


def split(
    tokens: Tokens, ids: Sequence[int], offset: float, frames: int
) -> tuple[list[Piece], int]:
    """Returns the segments of a window, and the number of frames to the next window.

    A pair of timestamps ends one segment and begins the next. Tokens after the last
    pair are dropped, and the next window begins there, unless a single timestamp ends
    them: then nothing was spoken after it and the window is done.

    Args:
      tokens: the model's special tokens.
      ids: the tokens of the window, without the prompt and `<|endoftext|>`.
      offset: seconds at which the window begins.
      frames: those of the window that are of the recording, at most 3000, each 0.01
        s.

    Returns:
      The segments, and the frames to the next window, at least 1.
    """
    ids = [int(i) for i in ids]
    times = [is_time(tokens, token) for token in ids]
    pairs = [i for i in range(1, len(ids)) if times[i - 1] and times[i]]
    single = times[-2:] == [False, True]

    def moment(token: int) -> float:
        return offset + (token - tokens.first_time) * STEP

    if not pairs:
        marks = [token for token, time in zip(ids, times, strict=True) if time]
        last = marks[-1] if marks and marks[-1] != tokens.first_time else None
        end = offset + frames * FRAME if last is None else moment(last)
        return [Piece(offset, end, ids)] if ids else [], max(1, frames)
    ends = [*pairs, len(ids)] if single else pairs
    pieces = [
        Piece(moment(ids[begin]), moment(ids[end - 1]), ids[begin:end])
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    if single:
        return pieces, max(1, frames)
    further = (ids[pairs[-1] - 1] - tokens.first_time) * STEP_FRAMES
    return pieces, further if further > 0 else max(1, frames)


def compression(text: str) -> float:
    """Returns the bytes of a text divided by its bytes after compression with zlib; the
    ratio is high for repetitive texts."""
    content = text.encode()
    return len(content) / len(zlib.compress(content))


def is_failed(
    ratio: float, logprob: float, no_speech: float, thresholds: Thresholds
) -> bool:
    """Returns whether a window was decoded badly, and must be decoded again.

    It is so where its text repeats itself or is improbable, unless it is silence.
    ratio: `compression` of its text."""
    wrong = thresholds.compression is not None and ratio > thresholds.compression
    improbable = thresholds.logprob is not None and logprob < thresholds.logprob
    if not math.isfinite(logprob):
        return True
    quiet = thresholds.no_speech is not None and no_speech > thresholds.no_speech
    return (wrong or improbable) and not (quiet and improbable)


def is_silent(logprob: float, no_speech: float, thresholds: Thresholds) -> bool:
    """Returns whether to skip a window: `<|nospeech|>` is likely, and its text is
    improbable."""
    quiet = thresholds.no_speech is not None and no_speech > thresholds.no_speech
    probable = thresholds.logprob is not None and logprob > thresholds.logprob
    return quiet and not probable
