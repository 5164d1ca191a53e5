"""Recordings to transcripts by a pair of Whispers, in one call."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specjax import fused, verifiers
from specjax.pretrained import Pretrained
from specjax.speech import audio, decoding, logmel, rules, sequential
from specjax.speech import chunked as overlapping
from specjax.speech import tokens as special
from specjax.speech.decoding import Speculation, Spent
from specjax.speech.pair import Listeners, opened, placed
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.sequential import Options, Progress


class Transcript(NamedTuple):
    """What was written of one file.

    segments: with times, unless it was asked for none. seconds: of the recording.
    language: code of what is spoken, as it was named or heard. notes: what a person
    should know before they trust it. problem: why there is no transcript, None where
    there is one.
    """

    file: Path
    segments: tuple[Segment, ...] = ()
    seconds: float = 0.0
    language: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments).strip()


class Transcribed(NamedTuple):
    """transcripts: of the files in order. alpha: the share of the drafts that were
    accepted, of those decided on; None where there were none. windows, calls, tokens:
    windows decoded, calls of the target, tokens written. seconds: of encoding and
    decoding; reading files and compilation do not count. guarantee: what the rule
    promises."""

    transcripts: tuple[Transcript, ...]
    alpha: float | None
    windows: int
    calls: int
    tokens: int
    seconds: float
    guarantee: str


def transcribe(
    target: str | Pretrained | Listeners,
    draft: str | Pretrained | None,
    files: Sequence[str | Path],
    *,
    gamma: int = 4,
    rule: str = "token",
    language: str | None = None,
    task: str | None = None,
    timestamps: bool | None = None,
    temperatures: Sequence[float] = Thresholds().temperatures,
    condition: bool = True,
    chunked: bool = False,
    batch: int = 8,
    seed: int = 0,
    top_k: int | None = None,
    kernels: str = fused.AUTO,
    on_progress: Callable[[Transcript, Progress | None], None] = lambda *_: None,
) -> Transcribed:
    """Writes down what is spoken in recordings, by speculation, in batches; within
    `specjax.mesh.using` on that mesh.

    Args:
      target: the Whisper whose law the texts follow, or its name as `specjax.load`
        takes it; or a pair of `speech.pair.opened`, whose draft then counts.
      draft: the Whisper that drafts, such as a Distil-Whisper of the target; None
        decodes the target alone. Where both have one encoder, it runs once.
      files: whatever libsndfile reads, of any rate (extra `speech`).
      gamma: tokens drafted for each call of the target.
      rule: how drafts are verified, by its name in `specjax.verifiers`.
      language: code or name, None for the one that the target was tuned for, else to
        hear it from the first window.
      task: "transcribe", or "translate" into English; None for the target's own, else
        the first.
      timestamps: whether the model writes times; None where it can, and not chunked.
      temperatures: of a window, in turn, until its text is good; 0 is greedy.
      condition: whether a window's text is context for the next.
      chunked: windows that overlap, many of a recording at once, without times.
      batch: most rows decoded together: files, or windows if chunked.
      seed: of all randomness. What is written of a window depends on it and on what is
        heard, not on the rows beside it.
      top_k: keeps so many ids of either law, where a temperature is above 0.
      kernels: "auto" verifies in fused kernels where the device has them.
      on_progress: is called with each transcript so far and the window that is done,
        and with None when the transcript is, or when its file could not be read.

    Raises:
      ValueError: what cannot be decoded, in one line that names the fix, before any
        file is read. A file that cannot be read is none: its transcript says why.
      FloatingPointError: logits are no law; see `specjax.finite`.
    """
    pair = target if isinstance(target, Listeners) else opened(target, draft)
    if chunked and timestamps:
        raise ValueError("chunked windows have no times: leave one of both out")
    pair = placed(pair)
    config, language = pair.target.config, special.code(pair.tokens, language)
    times = pair.tokens.first_time < config.vocab and not chunked
    times = times if timestamps is None else timestamps
    heats = Thresholds(temperatures=tuple(temperatures))
    sizes = decoding.positions(pair), config.frames
    options = Options(language, task, times, (), condition, heats, *sizes)
    how, spent = Speculation(gamma, rule, seed, kernels, top_k), []
    transcripts, good = [Transcript(Path(file)) for file in files], []

    def sounds():
        """What is heard of each file that can be read."""
        for number, (file, *_) in enumerate(transcripts):
            try:
                whole = audio.read(file) if chunked else frames(file, config.bands)
                sound, notes = whole
            except ValueError as error:
                transcripts[number] = Transcript(file, problem=str(error))
                on_progress(transcripts[number], None)
                continue
            code = language or (None if detect else "en")
            transcripts[number] = Transcript(file, language=code, notes=notes)
            good.append(number)
            yield sound

    decode = decoding.build(pair, how, times, spent.append)
    detect = detector(pair, language)
    arguments = sounds(), decode, pair.tokens, pair.read, options, batch, detect
    if chunked:
        done = overlapping.transcribe(*arguments, config.bands)
    else:
        done = sequential.transcribe(*arguments)
    for each in done:
        number = good[each.recording]
        now = transcripts[number]
        now = now._replace(
            segments=(*now.segments, *each.segments),
            seconds=each.total,
            language=each.language or now.language,
        )
        transcripts[number] = now
        on_progress(now, each)
        if each.seconds >= each.total:
            on_progress(now, None)
    return summed(tuple(transcripts), spent, rule)


def frames(file: str | Path, bands: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """What a model hears of a whole file, [T, M], and what is odd about it. Raises
    ValueError for one that cannot be read."""
    levels: list[audio.Level] = []
    heard = logmel.whole(audio.blocks(file, on_end=levels.append), bands)
    return heard, audio.notes(file, levels[-1])


def summed(
    transcripts: tuple[Transcript, ...], spent: list[Spent], rule: str
) -> Transcribed:
    windows, calls, tokens, accepted, tested, seconds = (
        sum(getattr(each, name) for each in spent) for name in Spent._fields[:6]
    )
    alpha = accepted / tested if tested else None
    counts = windows, calls, tokens, float(seconds)
    return Transcribed(transcripts, alpha, *counts, verifiers.named(rule).guarantee)


def detector(pair: Listeners, language: str | None):
    """features [F, M] -> code of the language spoken; None where one was named or the
    model knows English alone."""
    if language is not None or not pair.tokens.languages:
        return None
    listen = decoding.first_logits(pair.target.config, pair.tokens.start)

    def detect(frames: np.ndarray) -> str:
        logits = listen(pair.target.params, frames[None])
        return rules.language(pair.tokens, logits)[0]

    return detect
