"""Transcription of long recordings in overlapping windows, joined by their text.

Unlike sequential transcription, it decodes windows of one recording, and of the next
one, in the same batch, and decodes none again. The texts of the seconds that two
windows share are matched, and cut in the middle (the algorithm of the pipeline of
transformers, https://huggingface.co/blog/asr-chunking). Axes: N samples, M bands."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.speech import clips, logmel
from specjax.speech.segments import Segment, compression
from specjax.speech.sequential import Decode, Options, Progress, Recording
from specjax.speech.tokens import Tokens, text_ids

FAVOUR = 1e-4  # of a longer overlap, for each token


class Row(NamedTuple):
    """A window of a recording, with the edges that it shares with its neighbours.

    part: the part that it lies in, in seconds; last: it is the last window of that
    part. seconds: the length that is done after it."""

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
    *,
    batch: int = 8,
    detect: Callable[[np.ndarray], str] | None = None,
    bands: int = 80,
) -> Iterator[Progress]:
    """Yields one segment for each recording, or each of its parts, after its last
    window.

    The segment is the whole text. The arguments are those of
    `specjax.speech.sequential.transcribe`, except that recordings are samples [N], and
    only the first of the temperatures is used. The text before a recording,
    `Options.initial`, goes before every window. Texts have no times, which would be
    relative to the window. Raises ValueError as there, before anything is decoded."""
    if batch < 1:
        raise ValueError(f"batch is {batch}: give 1 or more")
    options = options._replace(timestamps=False)
    options.prompt(tokens)
    temperature = options.thresholds.temperatures[0]

    def progress() -> Iterator[Progress]:
        listen = detect if options.language is None else None
        waiting = _iterate_windows(recordings, options.window, bands, listen)
        texts, scores = [], []  # of the recording at work
        while group := list(itertools.islice(waiting, batch)):
            frames = np.stack([row.frames for row in group])
            prompts = [
                options.prompt(tokens, row.language, options.initial) for row in group
            ]
            temperatures = np.full(len(group), temperature, np.float32)
            decoded = decode(frames, prompts, temperatures)
            for row, ids, *each in zip(group, *decoded[:3], strict=True):
                texts.append(text_ids(tokens, ids))
                scores.append(each)
                done = []
                if row.last:
                    done = [_segment(texts, scores, row.part, read, temperature)]
                    texts, scores = [], []
                yield Progress(
                    recording=row.recording,
                    segments=done,
                    seconds=row.seconds,
                    total=row.total,
                    language=row.language,
                )

    return progress()


def _segment(
    texts: Any, scores: Any, part: Any, read: Callable, temperature: float
) -> Segment:
    """Returns the text of a part, joined from its windows; scores: (logprob, no_speech)
    of each."""
    ids = join(texts)
    text, (logprob, no_speech) = read(ids), np.mean(scores, axis=0).tolist()
    return Segment(
        start=part[0],
        end=part[1],
        text=text,
        tokens=tuple(ids),
        temperature=temperature,
        logprob=logprob,
        no_speech=no_speech,
        compression=compression(text.strip()),
    )


def _iterate_windows(
    recordings: Any, frames: int, bands: int, detect: Any
) -> Iterator[Row]:
    """Yields the windows of all recordings in order, each with the edges of its
    neighbours."""
    for number, (samples, language, parts) in enumerate(recordings):
        total = len(samples) / logmel.RATE
        spans = clips.spans(parts, len(samples), logmel.RATE)
        for begin, end in spans:
            part = begin / logmel.RATE, end / logmel.RATE
            for start, stop in windows(end - begin, frames * logmel.HOP):
                sound = samples[begin + start : begin + stop]
                features = logmel.features(sound, bands)[:frames]
                if language is None and detect is not None:
                    language = detect(features)
                last = begin + stop == end
                at_end = last and end == spans[-1][1]
                yield Row(
                    recording=number,
                    frames=features,
                    part=part,
                    last=last,
                    seconds=total if at_end else (begin + stop) / logmel.RATE,
                    total=total,
                    language=language,
                )


def windows(count: int, size: int) -> list[tuple[int, int]]:
    """Returns the start and end of windows of `size` samples that cover `count`.

    Each shares a sixth of its length with either neighbour."""
    every = size - 2 * (size // 6)
    starts = [0, *range(every, count - size + every, every)]
    return [(start, min(start + size, count)) for start in starts]


def join(texts: Sequence[Sequence[int]]) -> list[int]:
    """Returns the tokens of consecutive windows as one text, with each overlap once.

    Up to the middle of an overlap the earlier window is used, after it the later one.
    Where no two tokens at matching places agree there is no overlap, and both texts are
    kept."""
    joined: list[int] = []
    earlier = list(texts[0]) if texts else []
    for text in texts[1:]:
        later = list(text)
        before, behind = _middle(earlier, later)
        joined += earlier[:before]
        earlier = later[behind:]
    return joined + earlier


def _middle(earlier: list[int], later: list[int]) -> tuple[int, int]:
    """Returns the middle of the overlap, as an index into each text.

    It is at the shift of one text against the other that makes most of their tokens
    equal."""
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
