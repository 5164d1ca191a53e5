"""Long recordings in order: windows of 30 s, each from where the last one was sure.

Whisper's sequential transcription (Radford et al., 2022, Section 3.8) of several
recordings in one batch. A row is a window of some recording at some temperature: where
one has to be decoded again, the others go on meanwhile, and where a recording ends the
next takes its row. What decodes is an argument.
Axes: B rows, T frames, M bands.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from specjax.speech import logmel, segments
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.tokens import CONTEXT, Tokens, prompt, text_ids

UNSURE = 0.5  # a text of a higher temperature is no context for the next


class Heard(NamedTuple):
    """What a model wrote of B windows. tokens: of each, without prompt and end.
    logprob: mean logarithm of their probabilities, the end's among them. no_speech:
    probability of `<|nospeech|>` where a text begins."""

    tokens: Sequence[Sequence[int]]
    logprob: Sequence[float]
    no_speech: Sequence[float]


# (features [B, 3000, M], B prompts, temperatures [B]) -> Heard.
Decode = Callable[[np.ndarray, list[list[int]], np.ndarray], Heard]


class Asked(NamedTuple):
    """What a person may choose.

    language: code or name, None for the model's own, or to hear it from a recording's
    first window where that is possible, else English. task: "transcribe" or
    "translate", None for the model's own. timestamps: whether the
    model writes them; without, a window is one segment. initial: tokens that stand for
    what was spoken before. condition: whether a window's text is context for the next.
    thresholds: when a window is decoded again, or skipped. context: tokens that the
    model can tell apart. window: frames that it hears at once.
    """

    language: str | None = None
    task: str | None = None
    timestamps: bool = True
    initial: tuple[int, ...] = ()
    condition: bool = True
    thresholds: Thresholds = Thresholds()
    context: int = CONTEXT
    window: int = logmel.FRAMES


class Told(NamedTuple):
    """News of one recording, by its number: segments of a window that is done, up to
    `seconds` of `total`."""

    recording: int
    segments: list[Segment]
    seconds: float
    total: float


class Row(NamedTuple):
    """A recording at work. frames: [T, M]. first: of the window. tries: temperatures
    that did not do for it. past: tokens before it."""

    recording: int
    frames: np.ndarray
    language: str | None
    past: tuple[int, ...]
    first: int = 0
    tries: int = 0


def transcribe(
    recordings: Iterable[np.ndarray],
    decode: Decode,
    tokens: Tokens,
    read: Callable[[Iterable[int]], str],
    asked: Asked = Asked(),  # noqa: B008
    batch: int = 8,
    detect: Callable[[np.ndarray], str] | None = None,
) -> Iterator[Told]:
    """Segments of each recording in order, as soon as a window is done.

    Args:
      recordings: features [T, M] of each, as `logmel.whole` has them; one is taken
        whenever a row is free, so that they may be computed on the way.
      decode: writes what is spoken in at most `batch` windows, by the rules.
      tokens: the model's special tokens.
      read: ids of text -> text.
      asked: see there.
      batch: most rows.
      detect: features [window, M] -> code of the language spoken.

    Raises:
      ValueError: what is asked for is not the model's, or batch < 1; before anything is
        decoded.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}: take 1 or more")
    segments.check(asked.thresholds)
    of_model = asked.timestamps, asked.initial, asked.context
    prompt(tokens, asked.language, asked.task, *of_model)
    return _told(recordings, decode, tokens, read, asked, batch, detect)


def _told(recordings, decode, tokens, read, asked, batch, detect) -> Iterator[Told]:
    waiting = enumerate(recordings)
    rows: list[Row] = []
    while True:
        while len(rows) < batch and (arrived := next(waiting, None)) is not None:
            rows.append(_begun(*arrived, asked, detect))
        if not rows:
            return
        going = []
        for row, told in _decoded(rows, decode, tokens, read, asked):
            if told is not None:
                yield told
            if row.first < len(row.frames):
                going.append(row)
        rows = going


def _begun(
    number: int, frames: np.ndarray, asked: Asked, detect: Callable | None
) -> Row:
    language = asked.language
    if language is None and detect is not None:
        language = detect(window_of(frames, 0, asked.window))
    return Row(number, frames, language, asked.initial)


def _decoded(
    rows: list[Row], decode: Decode, tokens: Tokens, read: Callable, asked: Asked
) -> list[tuple[Row, Told | None]]:
    """Each row after one more decoding, and its news if its window is done."""
    sounds = ((row.frames, row.first, asked.window) for row in rows)
    windows = np.stack([window_of(*sound) for sound in sounds])
    kept = asked.task, asked.timestamps
    prompts = [
        prompt(tokens, row.language, *kept, row.past, asked.context) for row in rows
    ]
    heats = [asked.thresholds.temperatures[row.tries] for row in rows]
    heard = decode(windows, prompts, np.array(heats, np.float32))
    written = zip(heard.tokens, heard.logprob, heard.no_speech, strict=True)
    return [
        settle(row, list(map(int, ids)), float(sure), float(quiet), tokens, read, asked)
        for row, (ids, sure, quiet) in zip(rows, written, strict=True)
    ]


def window_of(frames: np.ndarray, first: int, size: int) -> np.ndarray:
    """What a model reads of a recording from a frame on: [T, M] -> [size, M].

    A recording of one window ends in silence, as transformers hears it but for the
    first three frames behind its end, in which that still hears the last of the sound;
    the last of several in zeros, as in `logmel.cut`.
    """
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
    asked: Asked,
) -> tuple[Row, Told | None]:
    """A row with what was written of its window: at a higher temperature, and nothing
    to tell, or further on. The last temperature's text is kept whatever it is, and no
    time is behind the recording's end."""
    limits = asked.thresholds
    ratio = segments.compression(read(text_ids(tokens, ids)).strip())
    more = row.tries + 1 < len(limits.temperatures)
    if more and segments.again(ratio, logprob, no_speech, limits):
        return row._replace(tries=row.tries + 1), None
    frames = min(asked.window, len(row.frames) - row.first)
    whole = len(row.frames) * segments.FRAME
    heat, past = limits.temperatures[row.tries], row.past
    spoken, further = [], frames
    if not segments.silent(logprob, no_speech, limits):
        begins = row.first * segments.FRAME
        pieces, further = segments.split(tokens, ids, begins, frames)
        for piece in pieces:
            text = read(text_ids(tokens, piece.tokens))
            if text.strip() and piece.end > piece.start:
                sure = heat, logprob, no_speech, ratio
                times = (min(time, whole) for time in piece[:2])
                spoken.append(Segment(*times, text, tuple(piece.tokens), *sure))
        past += tuple(i for segment in spoken for i in segment.tokens)
        past = past if asked.condition and heat <= UNSURE else ()
    first = row.first + further
    seconds = min(first, len(row.frames)) * segments.FRAME
    later = row._replace(first=first, tries=0, past=past[-asked.context :])
    return later, Told(row.recording, spoken, seconds, whole)
