"""Transcription of long recordings in order: each window starts after the last certain
segment.

It is Whisper's sequential transcription (Radford et al., 2022, Section 3.8), of several
recordings in one batch. A row is a window of a recording at some temperature: where one
has to be decoded again, the others continue meanwhile, and where a recording ends the
next takes its row. The function that decodes is an argument. Axes: B rows, T frames, M
bands."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.speech import clips, logmel, segments
from specjax.speech.clips import Clip
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.tokens import CONTEXT, Tokens, prompt, text_ids

UNSURE = 0.5  # texts of higher temperatures are not used as context
RATE = round(1 / segments.FRAME)  # frames a second


class Recording(NamedTuple):
    """A recording that is to be transcribed.

    sound: features [T, M], or samples [N] for overlapping windows. language: its code,
    None for that of `Options`. parts: those that are decoded, None for all."""

    sound: np.ndarray
    language: str | None = None
    parts: tuple[Clip, ...] | None = None


class Decoded(NamedTuple):
    """The result of decoding B windows.

    tokens: the tokens of each, without prompt and end. logprob: mean log probability of
    the tokens, with the end. no_speech: probability of `<|nospeech|>` where a text
    begins. states: the encoder's output, [B or more, S, E], for the times of words."""

    tokens: Sequence[Sequence[int]]
    logprob: Sequence[float]
    no_speech: Sequence[float]
    states: Any = None


class AlignmentTask(NamedTuple):
    """A finished window whose words still need times.

    row: the row of the batch. head: the prompt of its text without times. segments:
    those of the window. start: seconds of the recording. frames: the features of the
    recording, [T, M]."""

    row: int
    head: list[int]
    segments: list[Segment]
    start: float
    frames: np.ndarray


# (features [B, 3000, M], B prompts, temperatures [B]) -> Decoded.
Decode = Callable[[np.ndarray, list[list[int]], np.ndarray], Decoded]
# (states, windows) -> the segments of each with their words.
Align = Callable[[Any, list[AlignmentTask]], list[list[Segment]]]


class Options(NamedTuple):
    """The options of a transcription.

    language: code or name; None for the model's own, or detected from a recording's
    first window where that is possible, else English. task: "transcribe" or
    "translate", None for the model's own. timestamps: whether the model writes them;
    without, a window is one segment. initial: tokens of a text before the recording.
    condition: whether a window's text is context for the next. thresholds: when a
    window is decoded again, or skipped. context: the number of positions of the model.
    window: frames that it reads at once."""

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
        """Returns the prompt of a window, given the language that was detected."""
        spoken = self.language if language is None else language
        return prompt(
            tokens,
            spoken,
            self.task,
            self.timestamps,
            previous=previous,
            context=self.context,
        )


class Progress(NamedTuple):
    """A finished window of a recording, with the number of the recording.

    segments: those of the window. seconds, total: of the recording, done so far and in
    all. language: the detected code, None where none was detected."""

    recording: int
    segments: list[Segment]
    seconds: float
    total: float
    language: str | None = None


class Row(NamedTuple):
    """A recording that is being transcribed.

    recording: its index. frames: its features, [T, M]. language: its code, None where
    it is not known. past: the tokens written so far, which the window continues. spans:
    (first, end) of the frames that are not decoded yet; the window lies in the first
    span. first: the frame with which the window begins. tries: how many temperatures
    have failed for the window."""

    recording: int
    frames: np.ndarray
    language: str | None
    past: tuple[int, ...]
    spans: list[tuple[int, int]]
    first: int
    tries: int = 0

    def window(self, size: int) -> np.ndarray:
        """Returns the features that the model reads, [size, M]."""
        begin, end = self.spans[0]
        return cut_window(self.frames[begin:end], self.first - begin, size)

    def inside(self, size: int) -> int:
        """Returns how many frames of the window belong to the recording."""
        return min(size, self.spans[0][1] - self.first)


def transcribe(
    recordings: Iterable[Recording],
    decode: Decode,
    tokens: Tokens,
    read: Callable[[Iterable[int]], str],
    options: Options = Options(),  # noqa: B008
    *,
    batch: int = 8,
    detect: Callable[[np.ndarray], str] | None = None,
    align: Align | None = None,
) -> Iterator[Progress]:
    """Yields the segments of each recording in order, as soon as a window is done.

    Args:
      recordings: features of each, as `logmel.recording_frames` computes them; one is
        taken whenever a row is free, so that they may be computed on the way.
      decode: transcribes at most `batch` windows, by the rules.
      tokens: the model's special tokens.
      read: ids of text -> text.
      options: see `Options`.
      batch: the largest number of rows.
      detect: features [window, M] -> code of the language spoken, where none is
        named.
      align: finds the times of words; None for none.

    Raises:
      ValueError: an option that the model does not have, or batch < 1; before
        anything is decoded.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}: give 1 or more")
    segments.check(options.thresholds)
    options.prompt(tokens)

    def progress() -> Iterator[Progress]:
        waiting, rows = enumerate(recordings), list[Row]()
        while True:
            while len(rows) < batch and (arrived := next(waiting, None)) is not None:
                row = start_row(*arrived, options)
                if row.language is None and options.language is None and detect:
                    row = row._replace(language=detect(row.window(options.window)))
                rows.append(row)
            if not rows:
                return
            results = _decode_rows(
                rows, decode, tokens, read, options=options, align=align
            )
            yield from (done for _, done in results if done is not None)
            rows = [row for row, _ in results if row.spans]

    return progress()


def start_row(number: int, recording: Recording, options: Options) -> Row:
    """Returns a row that starts at the first part of a recording."""
    frames, language, parts = recording
    spans = clips.spans(parts, len(frames), RATE)
    return Row(number, frames, language, options.initial, spans, spans[0][0])


def _decode_rows(
    rows: list[Row],
    decode: Decode,
    tokens: Tokens,
    read: Callable,
    *,
    options: Options,
    align: Align | None,
) -> list[tuple[Row, Progress | None]]:
    """Returns each row after one more decoding, with its progress if its window is
    finished."""
    windows = [row.window(options.window) for row in rows]
    prompts = [options.prompt(tokens, row.language, row.past) for row in rows]
    temperatures = [options.thresholds.temperatures[row.tries] for row in rows]
    decoded = decode(np.stack(windows), prompts, np.array(temperatures, np.float32))
    results = [
        settle(
            row,
            list(map(int, ids)),
            tokens,
            read,
            options,
            logprob=float(logprob),
            no_speech=float(no_speech),
        )
        for row, ids, logprob, no_speech in zip(rows, *decoded[:3], strict=True)
    ]
    if align is not None:
        untimed = options._replace(timestamps=False)
        tasks = [
            AlignmentTask(
                i,
                untimed.prompt(tokens, row.language),
                done.segments,
                row.first * segments.FRAME,
                windows[i][: row.inside(options.window)],
            )
            for i, (row, (_, done)) in enumerate(zip(rows, results, strict=True))
            if done is not None and done.segments
        ]
        for task, with_words in zip(tasks, align(decoded.states, tasks), strict=True):
            later, done = results[task.row]
            assert done is not None
            results[task.row] = later, done._replace(segments=with_words)
    return results


def cut_window(frames: np.ndarray, first: int, size: int) -> np.ndarray:
    """Returns the features of a recording from a frame on: [T, M] -> [size, M].

    A recording of one window ends in silence, as in transformers except for the first
    three frames after its end, in which transformers still has the last of the sound.
    The last of several windows ends in zeros, as in `logmel.cut`."""
    part = logmel.cut(frames, first)[:size]
    if first == 0 and len(frames) < size:
        part[len(frames) :] = logmel.silence(frames)
    return part


def settle(
    row: Row,
    ids: list[int],
    tokens: Tokens,
    read: Callable[[Iterable[int]], str],
    options: Options,
    *,
    logprob: float,
    no_speech: float,
) -> tuple[Row, Progress | None]:
    """Returns a row after its window was decoded, and the progress if the window is
    finished.

    A failed window is tried at the next temperature. The last temperature's text is
    always used, and no time lies after the end of the recording, or of its part."""
    limits = options.thresholds
    ratio = segments.compression(read(text_ids(tokens, ids)).strip())
    more = row.tries + 1 < len(limits.temperatures)
    if more and segments.is_failed(ratio, logprob, no_speech, limits):
        return row._replace(tries=row.tries + 1), None
    frames = row.inside(options.window)
    last = row.spans[0][1] * segments.FRAME
    temperature, past = limits.temperatures[row.tries], row.past
    spoken, further = [], frames
    if not segments.is_silent(logprob, no_speech, limits):
        begins = row.first * segments.FRAME
        pieces, further = segments.split(tokens, ids, begins, frames)
        for piece in pieces:
            text = read(text_ids(tokens, piece.tokens))
            if text.strip() and piece.end > piece.start:
                segment = Segment(
                    start=min(piece.start, last),
                    end=min(piece.end, last),
                    text=text,
                    tokens=tuple(piece.tokens),
                    temperature=temperature,
                    logprob=logprob,
                    no_speech=no_speech,
                    compression=ratio,
                )
                spoken.append(segment)
        past += tuple(i for segment in spoken for i in segment.tokens)
        past = past if options.condition and temperature <= UNSURE else ()
    first, spans, count = row.first + further, row.spans, len(row.frames)
    if first >= spans[0][1]:
        spans = spans[1:]
        first = spans[0][0] if spans else count
    past = past[-options.context :]
    later = row._replace(first=first, spans=spans, tries=0, past=past)
    done = Progress(
        recording=row.recording,
        segments=spoken,
        seconds=first * segments.FRAME,
        total=count * segments.FRAME,
        language=row.language,
    )
    return later, done
