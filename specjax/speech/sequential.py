"""Long recordings in order: windows of 30 s, each from where the last one was sure.

Whisper's sequential transcription (Radford et al., 2022, Section 3.8) of several
recordings in one batch. A row is a window of some recording at some temperature: where
one has to be decoded again, the others go on meanwhile, and where a recording ends the
next takes its row. What decodes is an argument.
Axes: B rows, T frames, M bands.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.speech import clips, logmel, segments
from specjax.speech.clips import Clip
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.tokens import CONTEXT, Tokens, prompt, text_ids

UNSURE = 0.5  # a text of a higher temperature is no context for the next
RATE = round(1 / segments.FRAME)  # frames a second


class Recording(NamedTuple):
    """What is written down. sound: features [T, M], or samples [N] for windows that
    overlap. language: its code, None for that of `Options`. parts: of it that are
    decoded, None for all."""

    sound: np.ndarray
    language: str | None = None
    parts: tuple[Clip, ...] | None = None


class Decoded(NamedTuple):
    """What a model wrote of B windows. tokens: of each, without prompt and end.
    logprob: mean logarithm of their probabilities, the end's among them. no_speech:
    probability of `<|nospeech|>` where a text begins. states: what the encoder gave,
    [B or more, S, E], for words' times."""

    tokens: Sequence[Sequence[int]]
    logprob: Sequence[float]
    no_speech: Sequence[float]
    states: Any = None


class Spoken(NamedTuple):
    """A window that is done. row: of the batch. head: what a text of it without times
    begins with. segments: of it. start: seconds of the recording. frames: what is heard
    of the recording, [T, M]."""

    row: int
    head: list[int]
    segments: list[Segment]
    start: float
    frames: np.ndarray


# (features [B, 3000, M], B prompts, temperatures [B]) -> Decoded.
Decode = Callable[[np.ndarray, list[list[int]], np.ndarray], Decoded]
# (states, windows) -> the segments of each with their words.
Align = Callable[[Any, list[Spoken]], list[list[Segment]]]


class Options(NamedTuple):
    """What a person may choose. language: code or name, None for the model's own, or to
    hear it from a recording's first window where that is possible, else English. task:
    "transcribe" or "translate", None for the model's own. timestamps: whether the model
    writes them; without, a window is one segment. initial: tokens that stand for what
    was spoken before. condition: whether a window's text is context for the next.
    thresholds: when a window is decoded again, or skipped. context: tokens that the
    model can tell apart. window: frames that it hears at once."""

    language: str | None = None
    task: str | None = None
    timestamps: bool = True
    initial: tuple[int, ...] = ()
    condition: bool = True
    thresholds: Thresholds = Thresholds()
    context: int = CONTEXT
    window: int = logmel.FRAMES

    def prompt(
        self, tokens: Tokens, language: str | None = None, previous: Sequence[int] = ()
    ) -> list[int]:
        """What a window's text begins with, in a language that was heard."""
        spoken = self.language if language is None else language
        kept = self.task, self.timestamps
        return prompt(tokens, spoken, *kept, previous, self.context)


class Progress(NamedTuple):
    """A window of a recording, by its number, is done: its segments, up to `seconds` of
    `total`. language: the code that was heard, None where none was listened for."""

    recording: int
    segments: list[Segment]
    seconds: float
    total: float
    language: str | None = None


class Row(NamedTuple):
    """A recording at work. frames: [T, M]. past: tokens before its window, which begins
    at the frame `first`. spans: of frames, still to be decoded; the window is in the
    first. tries: temperatures that did not do for it."""

    recording: int
    frames: np.ndarray
    language: str | None
    past: tuple[int, ...]
    spans: list[tuple[int, int]]
    first: int
    tries: int = 0

    def window(self, size: int) -> np.ndarray:
        """What the model reads, [size, M]."""
        begin, end = self.spans[0]
        return window_of(self.frames[begin:end], self.first - begin, size)

    def inside(self, size: int) -> int:
        """How many frames of the window are of the recording."""
        return min(size, self.spans[0][1] - self.first)


def transcribe(
    recordings: Iterable[Recording],
    decode: Decode,
    tokens: Tokens,
    read: Callable[[Iterable[int]], str],
    options: Options = Options(),  # noqa: B008
    batch: int = 8,
    detect: Callable[[np.ndarray], str] | None = None,
    align: Align | None = None,
) -> Iterator[Progress]:
    """Segments of each recording in order, as soon as a window is done. recordings:
    features of each, as `logmel.whole` has them; one is taken whenever a row is free,
    so that they may be computed on the way. decode: writes what is spoken in at most
    `batch` windows, by the rules. tokens: the model's special tokens. read: ids of text
    -> text. options: see there. batch: most rows. detect: features [window, M] -> code
    of the language spoken, where none is named. align: finds the times of words; None,
    they have none. Raises ValueError for what is asked for is not the model's, or batch
    < 1; before anything is decoded."""
    if batch < 1:
        raise ValueError(f"batch is {batch}: take 1 or more")
    segments.check(options.thresholds)
    options.prompt(tokens)

    def progress() -> Iterator[Progress]:
        waiting, rows = enumerate(recordings), []
        while True:
            while len(rows) < batch and (arrived := next(waiting, None)) is not None:
                row = begun(*arrived, options)
                if row.language is None and options.language is None and detect:
                    row = row._replace(language=detect(row.window(options.window)))
                rows.append(row)
            if not rows:
                return
            settled = _decoded(rows, decode, tokens, read, options, align)
            yield from (done for _, done in settled if done is not None)
            rows = [row for row, _ in settled if row.spans]

    return progress()


def begun(number: int, recording: Recording, options: Options) -> Row:
    """A row at the first of a recording's parts."""
    frames, language, parts = recording
    spans = clips.spans(parts, len(frames), RATE)
    return Row(number, frames, language, options.initial, spans, spans[0][0])


def _decoded(
    rows: list[Row],
    decode: Decode,
    tokens: Tokens,
    read: Callable,
    options: Options,
    align: Align | None,
) -> list[tuple[Row, Progress | None]]:
    """Each row after one more decoding, and what is done of it if its window is."""
    windows = [row.window(options.window) for row in rows]
    prompts = [options.prompt(tokens, row.language, row.past) for row in rows]
    heats = [options.thresholds.temperatures[row.tries] for row in rows]
    decoded = decode(np.stack(windows), prompts, np.array(heats, np.float32))
    settled = [
        settle(row, list(map(int, ids)), *map(float, sure), tokens, read, options)
        for row, ids, *sure in zip(rows, *decoded[:3], strict=True)
    ]
    if align is not None:
        untimed = options._replace(timestamps=False)
        spoken = [
            Spoken(
                i,
                untimed.prompt(tokens, row.language),
                done.segments,
                row.first * segments.FRAME,
                windows[i][: row.inside(options.window)],
            )
            for i, (row, (_, done)) in enumerate(zip(rows, settled, strict=True))
            if done is not None and done.segments
        ]
        for each, timed in zip(spoken, align(decoded.states, spoken), strict=True):
            later, done = settled[each.row]
            settled[each.row] = later, done._replace(segments=timed)
    return settled


def window_of(frames: np.ndarray, first: int, size: int) -> np.ndarray:
    """What a model reads of a recording from a frame on: [T, M] -> [size, M]. A
    recording of one window ends in silence, as transformers hears it but for the first
    three frames behind its end, in which that still hears the last of the sound; the
    last of several in zeros, as in `logmel.cut`."""
    part = logmel.cut(frames, first)[:size]
    if first == 0 and len(frames) < size:
        part[len(frames) :] = logmel.silence(frames)
    return part


def settle(
    row: Row,
    ids: list[int],
    logprob: float,
    no_speech: float,
    tokens: Tokens,
    read: Callable[[Iterable[int]], str],
    options: Options,
) -> tuple[Row, Progress | None]:
    """A row with what was written of its window: at a higher temperature, and nothing
    done, or further on. The last temperature's text is kept whatever it is, and no
    time is behind the end of the recording, or of its part."""
    limits = options.thresholds
    ratio = segments.compression(read(text_ids(tokens, ids)).strip())
    more = row.tries + 1 < len(limits.temperatures)
    if more and segments.again(ratio, logprob, no_speech, limits):
        return row._replace(tries=row.tries + 1), None
    frames = row.inside(options.window)
    last = row.spans[0][1] * segments.FRAME
    heat, past = limits.temperatures[row.tries], row.past
    spoken, further = [], frames
    if not segments.silent(logprob, no_speech, limits):
        begins = row.first * segments.FRAME
        pieces, further = segments.split(tokens, ids, begins, frames)
        for piece in pieces:
            text = read(text_ids(tokens, piece.tokens))
            if text.strip() and piece.end > piece.start:
                sure = heat, logprob, no_speech, ratio
                times = (min(time, last) for time in piece[:2])
                spoken.append(Segment(*times, text, tuple(piece.tokens), *sure))
        past += tuple(i for segment in spoken for i in segment.tokens)
        past = past if options.condition and heat <= UNSURE else ()
    first, spans, count = row.first + further, row.spans, len(row.frames)
    if first >= spans[0][1]:
        spans = spans[1:]
        first = spans[0][0] if spans else count
    past = past[-options.context :]
    later = row._replace(first=first, spans=spans, tries=0, past=past)
    times = first * segments.FRAME, count * segments.FRAME
    return later, Progress(row.recording, spoken, *times, row.language)
