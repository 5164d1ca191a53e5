"""Recordings to transcripts by a pair of Whispers, in one call."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specjax import fused
from specjax.pretrained import Pretrained
from specjax.runtime import compilation_cache
from specjax.speech import audio, decoding, logmel, rules, sequential, voice
from specjax.speech import chunked as overlapping
from specjax.speech import clips as cuts
from specjax.speech import tokens as special
from specjax.speech import words as aligned
from specjax.speech.clips import Clip
from specjax.speech.decoding import Speculation, Spent
from specjax.speech.pair import Listeners, opened, placed, said_before
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.sequential import Options, Progress, Recording
from specjax.verifiers import guarantees


class Transcript(NamedTuple):
    """What was written of one file.

    segments: with times, unless it was asked for none. seconds: of the recording.
    language: code of what is spoken, as it was named or heard. notes: what a person
    should know before they trust it. problem: why there is no transcript, None where
    there is one. parts: of the recording that were decoded, None for all of it.
    """

    file: Path
    segments: tuple[Segment, ...] = ()
    seconds: float = 0.0
    language: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    parts: tuple[Clip, ...] | None = None

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def decoded(self) -> float:
        """Seconds that were decoded."""
        if self.parts is None:
            return self.seconds
        return sum(end - start for start, end in self.parts)


class Transcribed(NamedTuple):
    """transcripts: of the files in order. alpha: the share of the drafts that were
    accepted, of those decided on; None where there were none. windows, calls, tokens:
    windows decoded, calls of the target, tokens written. seconds: of encoding, decoding
    and words' times; reading files and compilation do not count. guarantee: what the
    rule promises."""

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
    language: str | Sequence[str] | None = None,
    task: str | None = None,
    prompt: str | None = None,
    timestamps: bool | None = None,
    words: bool = False,
    clips: Sequence[Sequence[float]] | None = None,
    vad: bool = False,
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
    `specjax.runtime.mesh.using` on that mesh.

    Args:
      target: the Whisper whose law the texts follow, or its name as `specjax.load`
        takes it; or a pair of `speech.pair.opened`, whose draft then counts.
      draft: the Whisper that drafts, such as a Distil-Whisper of the target; None
        decodes the target alone. Where both have one encoder, it runs once.
      files: whatever libsndfile reads, of any rate (extra `speech`).
      gamma: tokens drafted for each call of the target.
      rule: how drafts are verified, by its name in `specjax.verifiers`.
      language: code or name, of all files or a list of one for each; None for the one
        that the target was tuned for, else to hear it from the first window.
      task: "transcribe", or "translate" into English; None for the target's own, else
        the first.
      prompt: a text that stands for what was said before a file: names, or a style. It
        is context of the first window and of later ones as any text before them, or of
        each window if chunked. Draft and target read it alike.
      timestamps: whether the model writes times; None where it can, and not chunked.
      words: whether words get times, `Segment.words`, by one more call of the target
        for each window; texts do not change. Its checkpoint must name alignment_heads.
      clips: pairs of seconds, a start and an end: of each file only these parts are
        decoded, and no window goes on behind one. None for all of it.
      vad: decodes the parts in which somebody speaks, as `speech.voice` finds them
        (extra `vad`).
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
    compilation_cache.turn_on()
    pair = target if isinstance(target, Listeners) else opened(target, draft)
    check(timestamps, words, clips, vad, chunked)
    pair = placed(pair)
    config = pair.target.config
    spoken = special.codes(pair.tokens, language, len(files))
    times = pair.tokens.first_time < config.vocab and not chunked
    times = times if timestamps is None else timestamps
    heats = Thresholds(temperatures=tuple(temperatures))
    sizes = decoding.positions(pair), config.frames
    most = special.kept(sizes[0])
    before = () if prompt is None else said_before(pair, prompt, most)
    options = Options(None, task, times, before, condition, heats, *sizes)
    how, spent = Speculation(gamma, rule, seed, kernels, top_k), []
    clips = None if clips is None else cuts.check(clips)
    ears = voice.detector() if vad else None
    transcripts, good = [Transcript(Path(file)) for file in files], []

    def sounds() -> Iterator[Recording]:
        """What is heard of each file that can be read."""
        bands = None if chunked else config.bands
        for number, (file, *_) in enumerate(transcripts):
            try:
                sound, now = listened(file, bands, clips, ears)
            except ValueError as error:
                transcripts[number] = Transcript(file, problem=str(error))
                on_progress(transcripts[number], None)
                continue
            named = spoken[number]
            now = now._replace(language=named or (None if detect else "en"))
            transcripts[number] = now
            if now.parts == ():  # nobody speaks
                on_progress(now, None)
                continue
            good.append(number)
            yield Recording(sound, named, now.parts)

    decode = decoding.build(pair, how, times, spent.append, words)
    detect = detector(pair) if None in spoken else None
    arguments = sounds(), decode, pair.tokens, pair.read, options, batch, detect
    if chunked:
        done = overlapping.transcribe(*arguments, config.bands)
    else:
        align = aligned.build(pair, spent.append) if words else None
        done = sequential.transcribe(*arguments, align)
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
    return summed(tuple(transcripts), spent, guarantees.combine(rule))


def check(timestamps, words: bool, clips, vad: bool, chunked: bool) -> None:
    """Raises ValueError for what does not go together."""
    if chunked and timestamps:
        raise ValueError("chunked windows have no times: leave one of both out")
    if chunked and words:
        raise ValueError("words have times, chunked windows none: leave one out")
    if vad and clips is not None:
        raise ValueError("vad finds the parts that clips name: leave one of both out")


def listened(
    file: Path, bands: int | None, clips: Sequence[Clip] | None, ears: Any
) -> tuple[np.ndarray, Transcript]:
    """A file's features [T, M], or samples [N] if `bands` is None, and what is known of
    it before anything is written. ears: what finds the parts in which somebody speaks,
    as `voice.detector`, or None. Raises ValueError for one that cannot be read, or has
    not these parts."""
    levels: list[audio.Level] = []
    found: list[float] = []
    blocks = audio.blocks(file, on_end=levels.append)
    if ears is not None:
        blocks = voice.through(blocks, ears, found)
    if bands is None:
        sound, rate = np.concatenate([*blocks]), logmel.RATE
    else:
        sound, rate = logmel.whole(blocks, bands), sequential.RATE
    notes, seconds = audio.notes(file, levels[-1]), len(sound) / rate
    if ears is not None:
        clips = voice.parts(found, ears.chunk_samples(), seconds)
        if not clips:
            notes = *notes, f"{file}: nobody speaks, so nothing was decoded"
    elif clips is not None:
        try:
            clips = cuts.within(clips, seconds)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    return sound, Transcript(file, (), seconds, None, notes, parts=clips)


def frames(file: str | Path, bands: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """What a model hears of a whole file, [T, M], and what is odd about it. Raises
    ValueError for one that cannot be read."""
    sound, known = listened(Path(file), bands, None, None)
    return sound, known.notes


def summed(
    transcripts: tuple[Transcript, ...], spent: list[Spent], guarantee: str
) -> Transcribed:
    windows, calls, tokens, accepted, tested, seconds = (
        sum(getattr(each, name) for each in spent) for name in Spent._fields[:6]
    )
    alpha = accepted / tested if tested else None
    counts = windows, calls, tokens, float(seconds)
    return Transcribed(transcripts, alpha, *counts, guarantee)


def detector(pair: Listeners) -> Callable[[np.ndarray], str] | None:
    """features [F, M] -> code of the language spoken; None where the model knows
    English alone."""
    if not pair.tokens.languages:
        return None
    listen = decoding.first_logits(pair.target.config, pair.tokens.start)

    def detect(frames: np.ndarray) -> str:
        logits = listen(pair.target.params, frames[None])
        return rules.language(pair.tokens, logits)[0]

    return detect
