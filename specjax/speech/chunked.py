"""Recordings in windows that overlap: those of one and of the next in the same batch.

Faster than in order where there is room for a batch, without times, and nothing is
decoded again; see `specjax.speech.chunks`.
Axes: N samples, M bands.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from specjax.speech import chunks, logmel
from specjax.speech.segments import Segment, compression
from specjax.speech.tokens import Tokens, prompt, text_ids
from specjax.speech.transcribe import Asked, Decode, Told


class Window(NamedTuple):
    """frames [window, M] of a recording, by its number; of `count` in all."""

    recording: int
    frames: np.ndarray
    count: int
    seconds: float
    total: float


class Begun(NamedTuple):
    """A recording's prompt, the texts of its windows so far, and how sure they are:
    mean logarithm of a token's probability, probability that nobody speaks."""

    head: list[int]
    texts: list[list[int]]
    sure: list[tuple[float, float]]


def transcribe(
    recordings: Iterable[np.ndarray],
    decode: Decode,
    tokens: Tokens,
    read,
    asked: Asked,
    batch: int,
    bands: int,
    detect=None,
) -> Iterator[Told]:
    """One segment of each recording, its whole text, when its last window is done.

    Args are those of `specjax.speech.transcribe.transcribe`, but recordings are samples
    [N], and the first of the temperatures is the only one.

    Raises ValueError as there, before anything is decoded.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}: take 1 or more")
    prompt(tokens, asked.language, asked.task, False, (), asked.context)
    return _told(recordings, decode, tokens, read, asked, batch, bands, detect)


def _told(recordings, decode, tokens, read, asked, batch, bands, detect):
    heat, going = asked.thresholds.temperatures[0], {}
    for group in _batches(windows(recordings, asked.window, bands), batch):
        for window in group:
            if window.recording not in going:
                head = _head(window, tokens, asked, detect)
                going[window.recording] = Begun(head, [], [])
        frames = np.stack([window.frames for window in group])
        prompts = [going[window.recording].head for window in group]
        heard = decode(frames, prompts, np.full(len(group), heat, np.float32))
        rows = zip(group, heard.tokens, heard.logprob, heard.no_speech, strict=True)
        for window, ids, logprob, quiet in rows:
            begun, last = going[window.recording], []
            begun.texts.append(text_ids(tokens, ids))
            begun.sure.append((logprob, quiet))
            if len(begun.texts) == window.count:
                last = [whole(going.pop(window.recording), window.total, read, heat)]
            yield Told(window.recording, last, window.seconds, window.total)


def _head(window: Window, tokens: Tokens, asked: Asked, detect) -> list[int]:
    language = asked.language
    if language is None and detect is not None:
        language = detect(window.frames)
    return prompt(tokens, language, asked.task, False, (), asked.context)


def whole(begun: Begun, total: float, read, heat: float) -> Segment:
    """The texts of a recording's windows joined, as one segment."""
    ids = chunks.join(begun.texts)
    text = read(ids)
    logprob, quiet = (float(np.mean(each)) for each in zip(*begun.sure, strict=True))
    told = heat, logprob, quiet, compression(text.strip())
    return Segment(0.0, total, text, tuple(ids), *told)


def windows(
    recordings: Iterable[np.ndarray], frames: int, bands: int
) -> Iterator[Window]:
    """The windows of all recordings in order, each with its neighbours' edges."""
    for number, samples in enumerate(recordings):
        cover = chunks.windows(len(samples), frames * logmel.HOP)
        total = len(samples) / logmel.RATE
        for start, stop, *_ in cover:
            heard = logmel.features(samples[start:stop], bands)[:frames]
            told = len(cover), stop / logmel.RATE, total
            yield Window(number, heard, *told)


def _batches(items: Iterable[Window], size: int) -> Iterator[list[Window]]:
    group: list[Window] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
