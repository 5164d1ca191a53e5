"""Long recordings in windows that overlap, decoded at once and joined by their text.

Windows of one recording and of the next share a batch, other than in sequential
transcription, and nothing is decoded again. What is written of the seconds that two
windows share is matched and cut in its middle (the algorithm of the pipeline of
transformers, https://huggingface.co/blog/asr-chunking).
Axes: N samples, M bands.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from specjax.speech import clips, logmel
from specjax.speech.segments import Segment, compression
from specjax.speech.sequential import Decode, Options, Progress, Recording
from specjax.speech.tokens import Tokens, text_ids

FAVOUR = 1e-4  # of a longer overlap, for each token


class Row(NamedTuple):
    """A window of a recording. part: seconds, of the part that it is in; last: of this.
    seconds: of all that is done with it."""

    recording: int
    frames: np.ndarray
    part: tuple[float, float]
    last: bool
    seconds: float
    total: float
    language: str | None


def transcribe(
    recordings: Iterable[Recording],
    decode: Decode,
    tokens: Tokens,
    read: Callable[[Iterable[int]], str],
    options: Options = Options(),  # noqa: B008
    batch: int = 8,
    detect: Callable[[np.ndarray], str] | None = None,
    bands: int = 80,
) -> Iterator[Progress]:
    """One segment of each recording, its whole text, or of each of its parts, when the
    last window is done. Args are those of `specjax.speech.sequential.transcribe`, but
    recordings are samples [N], and the first of the temperatures is the only one. What
    is said before, `Options.initial`, goes before every window. Texts are without
    times, which would be of the window. Raises ValueError as there, before anything is
    decoded."""
    if batch < 1:
        raise ValueError(f"batch is {batch}: take 1 or more")
    options = options._replace(timestamps=False)
    options.prompt(tokens)
    heat = options.thresholds.temperatures[0]

    def progress() -> Iterator[Progress]:
        listen = detect if options.language is None else None
        waiting = _rows(recordings, options.window, bands, listen)
        texts, sure = [], []  # of the recording whose windows are coming
        while group := list(itertools.islice(waiting, batch)):
            frames = np.stack([row.frames for row in group])
            prompts = [
                options.prompt(tokens, row.language, options.initial) for row in group
            ]
            decoded = decode(frames, prompts, np.full(len(group), heat, np.float32))
            for row, ids, *each in zip(group, *decoded[:3], strict=True):
                texts.append(text_ids(tokens, ids))
                sure.append(each)
                done = []
                if row.last:
                    done = [_segment(texts, sure, row.part, read, heat)]
                    texts, sure = [], []
                times = row.seconds, row.total
                yield Progress(row.recording, done, *times, row.language)

    return progress()


def _segment(texts, sure, part, read: Callable, heat: float) -> Segment:
    """The texts of a part's windows joined. sure: (logprob, no_speech) of each."""
    ids = join(texts)
    text, (logprob, quiet) = read(ids), np.mean(sure, axis=0).tolist()
    more = heat, logprob, quiet, compression(text.strip())
    return Segment(*part, text, tuple(ids), *more)


def _rows(recordings, frames: int, bands: int, detect) -> Iterator[Row]:
    """The windows of all recordings in order, each with its neighbours' edges."""
    for number, (samples, language, parts) in enumerate(recordings):
        total = len(samples) / logmel.RATE
        spans = clips.spans(parts, len(samples), logmel.RATE)
        for begin, end in spans:
            part = begin / logmel.RATE, end / logmel.RATE
            for start, stop in windows(end - begin, frames * logmel.HOP):
                sound = samples[begin + start : begin + stop]
                heard = logmel.features(sound, bands)[:frames]
                if language is None and detect is not None:
                    language = detect(heard)
                last = begin + stop == end
                ended = last and end == spans[-1][1]
                done = total if ended else (begin + stop) / logmel.RATE
                yield Row(number, heard, part, last, done, total, language)


def windows(count: int, size: int) -> list[tuple[int, int]]:
    """Where windows of `size` samples begin and end that cover `count`. Each shares a
    sixth of it with either neighbour."""
    every = size - 2 * (size // 6)
    starts = [0, *range(every, count - size + every, every)]
    return [(start, min(start + size, count)) for start in starts]


def join(texts: Sequence[Sequence[int]]) -> list[int]:
    """The tokens of windows in order as one text, each overlap once. Up to the middle
    of an overlap the earlier window is believed, behind it the later. Without two equal
    tokens in a row of places there is none, and both are kept whole."""
    joined: list[int] = []
    earlier = list(texts[0]) if texts else []
    for text in texts[1:]:
        later = list(text)
        before, behind = _middle(earlier, later)
        joined += earlier[:before]
        earlier = later[behind:]
    return joined + earlier


def _middle(earlier: list[int], later: list[int]) -> tuple[int, int]:
    """Where an overlap has its middle in either text: the shift of one against the
    other that makes most of their tokens equal."""
    if not earlier or not later:
        return len(earlier), 0
    equal = np.array(earlier)[:, None] == np.array(later)[None, :]
    best, place = 0.0, (len(earlier), 0)
    for shift in range(1, len(earlier) + len(later)):
        matches = int(np.trace(equal, shift - len(earlier)))
        score = matches / shift + shift * FAVOUR
        if matches > 1 and score > best:
            begin, other = max(0, len(earlier) - shift), max(0, shift - len(earlier))
            length = min(len(earlier) - begin, len(later) - other)
            best = score
            place = (2 * begin + length) // 2, (2 * other + length) // 2
    return place
