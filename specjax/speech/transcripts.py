"""Recordings to transcripts by a pair of Whispers, in one call."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from specjax import fused, verifiers
from specjax.pretrained import Pretrained
from specjax.speech import chunked as chunking
from specjax.speech import decoding, recordings, rules
from specjax.speech import tokens as special
from specjax.speech.decoding import Speculation, Spent
from specjax.speech.pair import Listeners, opened
from specjax.speech.recordings import Recording
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.transcribe import Asked, Told
from specjax.speech.transcribe import transcribe as in_order


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
    told: Callable[[Transcript, Told | None], None] | None = None,
) -> Transcribed:
    """Writes down what is spoken in recordings, by speculation, in batches.

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
      told: is called with each transcript so far and the news of it, and without news
        when it is done, or when its file could not be read.

    Raises:
      ValueError: what cannot be decoded, in one line that names the fix, before any
        file is read. A file that cannot be read is none: its transcript says why.
      FloatingPointError: logits are no law; see `specjax.finite`.
    """
    pair = target if isinstance(target, Listeners) else opened(target, draft)
    if chunked and timestamps:
        raise ValueError("chunked windows have no times: leave one of both out")
    language = special.code(pair.tokens, language)
    times = pair.tokens.first_time < pair.target.config.vocab and not chunked
    times = times if timestamps is None else timestamps
    heats = Thresholds(temperatures=tuple(temperatures))
    config = pair.target.config
    sizes = decoding.positions(pair), config.frames
    asked = Asked(language, task, times, (), condition, heats, *sizes)
    how, spent = Speculation(gamma, rule, seed, kernels, top_k), []
    decode = decoding.build(pair, how, times, spent.append)
    paths, heard = [Path(file) for file in files], []
    detector, languages = detecting(pair, asked)
    arguments = decode, pair.tokens, pair.read, asked, batch
    if chunked:
        sounds = recordings.samples(paths, heard.append)
        news = chunking.transcribe(sounds, *arguments, config.bands, detector)
    else:
        sounds = recordings.features(paths, config.bands, heard.append)
        news = in_order(sounds, *arguments, detector)
    spoken = languages if detector else (language or "en",)
    transcripts = collected(paths, heard, news, spoken, told)
    return summed(tuple(transcripts), spent, rule)


def collected(
    paths: list[Path],
    heard: list[Recording],
    news: Iterator[Told],
    languages: Sequence[str],
    told: Callable | None,
) -> list[Transcript]:
    """Transcripts by file. heard: grows as files are read. languages: of the recordings
    that were heard, in order, or one of all."""
    transcripts, asked = [Transcript(path) for path in paths], told or (lambda *_: None)
    failed = 0

    def failures() -> None:
        nonlocal failed
        for recording in heard[failed:]:
            at = recording.number
            more = dict(notes=recording.notes, problem=recording.problem)
            transcripts[at] = transcripts[at]._replace(**more)
            if recording.problem is not None:
                asked(transcripts[at], None)
        failed = len(heard)

    for each in news:
        failures()
        good = [recording.number for recording in heard if recording.problem is None]
        at = good[each.recording]
        code = languages[min(each.recording, len(languages) - 1)]
        segments = *transcripts[at].segments, *each.segments
        transcripts[at] = transcripts[at]._replace(
            segments=segments, seconds=each.total, language=code
        )
        asked(transcripts[at], each)
        if each.seconds >= each.total:
            asked(transcripts[at], None)
    failures()
    return transcripts


def summed(
    transcripts: tuple[Transcript, ...], spent: list[Spent], rule: str
) -> Transcribed:
    windows, calls, tokens, accepted, tested, seconds = (
        sum(each) for each in (zip(*spent, strict=True) if spent else [[0]] * 6)
    )
    alpha = accepted / tested if tested else None
    guarantee = verifiers.named(rule).guarantee
    told = alpha, windows, calls, tokens, float(seconds), guarantee
    return Transcribed(transcripts, *told)


def detecting(
    pair: Listeners, asked: Asked
) -> tuple[Callable[[np.ndarray], str] | None, list[str]]:
    """features [F, M] -> code of the language spoken, and the codes that it gave so
    far; None where a language was named or the model knows English alone."""
    codes: list[str] = []
    if asked.language is not None or not pair.tokens.languages:
        return None, codes
    listen = decoding.first_logits(pair.target.config, pair.tokens.start)

    def detect(frames: np.ndarray) -> str:
        logits = listen(pair.target.params, jnp.asarray(frames[None]))
        codes.append(rules.language(pair.tokens, logits)[0])
        return codes[-1]

    return detect, codes
