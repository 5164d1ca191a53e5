"""Transcripts of recordings by a pair of Whispers, in one call."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specjax import fused
from specjax.beam.settings import BeamConfig
from specjax.decode_config import DecodeConfig
from specjax.pretrained import Pretrained
from specjax.runtime import compilation_cache
from specjax.speech import audio, decoding, logmel, rules, sequential, voice
from specjax.speech import beams as search
from specjax.speech import chunked as overlapping
from specjax.speech import clips as cuts
from specjax.speech import tokens as special
from specjax.speech import words as aligned
from specjax.speech.clips import Clip
from specjax.speech.decoding import Spent
from specjax.speech.pair import Listeners, encode_prompt, load_pair, place
from specjax.speech.segments import Segment, Thresholds
from specjax.speech.sequential import Options, Progress, Recording
from specjax.verifiers import guarantees

# The fields of `Spent` that a result sums over batches.
SUMMED = "windows", "calls", "tokens", "accepted", "tested", "seconds"


class Transcript(NamedTuple):
    """The transcript of one file.

    segments: with times, unless they were turned off. seconds: the time of the
    recording. language: code of the spoken language, as given or detected. notes:
    warnings to know before one trusts it. problem: why there is no transcript, None
    where there is one. parts: those of the recording that were decoded, None for all of
    it."""

    file: Path
    segments: tuple[Segment, ...] = ()
    seconds: float = 0.0
    language: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    parts: tuple[Clip, ...] | None = None

    @property
    def text(self) -> str:
        """Returns the whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def decoded(self) -> float:
        """Returns how many seconds were decoded."""
        if self.parts is None:
            return self.seconds
        return sum(end - start for start, end in self.parts)


class Transcribed(NamedTuple):
    """The result of a call of `transcribe`.

    transcripts: the transcripts of the files in order. alpha: the share of the tested
    drafted tokens that were accepted; None where there were none. windows, calls,
    tokens: windows decoded, calls of the target, tokens written. seconds: the seconds
    of encoding, decoding and words' times; reading files and compilation do not count.
    guarantee: the guarantee of the rule."""

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
    beams: BeamConfig | None = None,
    on_progress: Callable[[Transcript, Progress | None], None] = lambda *_: None,
) -> Transcribed:
    """Transcribes recordings by speculative decoding, in batches.

    Within `specjax.runtime.mesh.using` it runs on that mesh.

    Args:
      target: the Whisper whose distribution the texts follow, or its name as
        `specjax.load` takes it; or a pair of `speech.pair.load_pair`, whose draft
        then counts.
      draft: the Whisper that drafts, such as a Distil-Whisper of the target; None
        decodes the target alone. Where both have one encoder, it runs once.
      files: files that libsndfile can read, of any rate (extra `speech`).
      gamma: tokens drafted for each call of the target.
      rule: how drafts are verified, by its name in `specjax.verifiers`.
      language: code or name, of all files or a list of one for each; None for the one
        that the target was tuned for, else detected from the first window.
      task: "transcribe", or "translate" into English; None for the target's own, else
        the first.
      prompt: a text before each file, which gives names or a style. It is context of
        the first window and of later ones like any earlier text, or of each window if
        chunked. Draft and target both read it.
      timestamps: whether the model writes times; None where it can, and not chunked.
      words: whether words get times, `Segment.words`, by one more call of the target
        for each window; texts do not change. Its checkpoint must name
        alignment_heads.
      clips: pairs of seconds, a start and an end: only these parts of each file are
        decoded, and no window goes on after one. None for all of it.
      vad: decodes the parts with speech, as `speech.voice` finds them (extra `vad`).
      temperatures: tried for a window in turn, until its text is good; 0 is greedy.
      condition: whether a window's text is context for the next.
      chunked: overlapping windows, many of a recording at once, without times.
      batch: the most rows decoded together: files, or windows if chunked.
      seed: the seed of all randomness. The text of a window depends on it and on the
        sound, not on the rows beside it.
      top_k: both models keep this many ids, where a temperature is above 0.
      kernels: "auto" verifies in fused kernels where the device has them.
      beams: the settings of beam search, such as `BeamConfig(width=5)`, by which
        windows at temperature 0 are decoded, with their own gamma; None decodes them
        greedily.
      on_progress: is called with each transcript so far and the window that is done,
        and with None when the transcript is done, or when its file could not be read.

    Raises:
      ValueError: settings that cannot be decoded, in one line that names the fix,
        before any file is read. A file that cannot be read raises nothing: its
        transcript says why.
      FloatingPointError: logits are not finite; see `specjax.finite`.
    """
    compilation_cache.turn_on()
    pair = target if isinstance(target, Listeners) else load_pair(target, draft)
    check(timestamps, words, clips, vad, chunked)
    pair = place(pair)
    config = pair.config
    spoken = special.codes(pair.tokens, language, len(files))
    times = pair.tokens.first_time < config.vocab and not chunked
    times = times if timestamps is None else timestamps
    positions = decoding.positions(pair)
    most = special.prompt_limit(positions)
    options = Options(
        task=task,
        timestamps=times,
        initial=() if prompt is None else encode_prompt(pair, prompt, most),
        condition=condition,
        thresholds=Thresholds(temperatures=tuple(temperatures)),
        context=positions,
        window=config.frames,
    )
    how = DecodeConfig(gamma, rule=rule, seed=seed, kernels=kernels, top_k=top_k)
    spent: list[Spent] = []
    clips = None if clips is None else cuts.check(clips)
    ears = voice.detector() if vad else None
    transcripts, good = [Transcript(Path(file)) for file in files], list[int]()

    def sounds() -> Iterator[Recording]:
        """Yields the features of each file that can be read."""
        bands = None if chunked else config.bands
        for number, (file, *_) in enumerate(transcripts):
            try:
                sound, now = read_recording(file, bands, clips, ears)
            except ValueError as error:
                transcripts[number] = Transcript(file, problem=str(error))
                on_progress(transcripts[number], None)
                continue
            language = spoken[number]
            now = now._replace(language=language or (None if detect else "en"))
            transcripts[number] = now
            if now.parts == ():  # nobody speaks
                on_progress(now, None)
                continue
            good.append(number)
            yield Recording(sound, language, now.parts)

    kept: dict[str, Any] = dict(on_batch=spent.append, states=words)
    if beams is None:
        decode = decoding.build(pair, how, timestamps=times, **kept)
    else:
        decode = search.build(pair, how, beams, timestamps=times, **kept)
    detect = detector(pair) if None in spoken else None
    if chunked:
        method = partial(overlapping.transcribe, bands=config.bands)
    else:
        align = aligned.build(pair, spent.append) if words else None
        method = partial(sequential.transcribe, align=align)
    done = method(
        sounds(),
        decode,
        pair.tokens,
        pair.read,
        options,
        batch=batch,
        detect=detect,
    )
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
    return summarize(tuple(transcripts), spent, guarantees.combine(rule))


def check(
    timestamps: bool | None, words: bool, clips: Any, vad: bool, chunked: bool
) -> None:
    """Raises ValueError for options that exclude each other."""
    if chunked and timestamps:
        raise ValueError("chunked windows have no times: leave one of them out")
    if chunked and words:
        raise ValueError("chunked windows have no times for words: leave one out")
    if vad and clips is not None:
        raise ValueError("vad and clips both choose parts: leave one of them out")


def read_recording(
    file: Path, bands: int | None, clips: Sequence[Clip] | None, ears: Any
) -> tuple[np.ndarray, Transcript]:
    """Returns a file's features [T, M], or its samples [N] if `bands` is None, and a
    transcript that has no text yet.

    ears: finds the parts with speech, as `voice.detector`, or None. Raises ValueError
    for a file that cannot be read, or lacks these parts."""
    levels: list[audio.Level] = []
    found: list[float] = []
    blocks = audio.blocks(file, on_end=levels.append)
    if ears is not None:
        blocks = voice.listen(blocks, ears, found)
    if bands is None:
        sound, rate = np.concatenate([*blocks]), logmel.RATE
    else:
        sound, rate = logmel.recording_frames(blocks, bands), sequential.RATE
    notes, seconds = audio.notes(file, levels[-1]), len(sound) / rate
    if ears is not None:
        clips = voice.parts(found, ears.chunk_samples(), seconds)
        if not clips:
            notes = *notes, f"{file}: nobody speaks, so nothing was decoded"
    elif clips is not None:
        try:
            clips = cuts.clip_to_length(clips, seconds)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    return sound, Transcript(file, (), seconds, None, notes, parts=clips)


def frames(file: str | Path, bands: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the features of a whole file, [T, M], and notes about the file.

    Raises ValueError for a file that cannot be read."""
    sound, known = read_recording(Path(file), bands, None, None)
    return sound, known.notes


def summarize(
    transcripts: tuple[Transcript, ...], spent: list[Spent], guarantee: str
) -> Transcribed:
    """Returns the transcripts together with sums over all batches."""
    total = {name: sum(getattr(each, name) for each in spent) for name in SUMMED}
    tested = total["tested"]
    return Transcribed(
        transcripts=transcripts,
        alpha=total["accepted"] / tested if tested else None,
        windows=total["windows"],
        calls=total["calls"],
        tokens=total["tokens"],
        seconds=float(total["seconds"]),
        guarantee=guarantee,
    )


def detector(pair: Listeners) -> Callable[[np.ndarray], str] | None:
    """Returns a function from features [F, M] to the code of the language spoken.

    It is None where the model has English only."""
    if not pair.tokens.languages:
        return None
    listen = decoding.first_logits(pair.config, pair.tokens.start)

    def detect(frames: np.ndarray) -> str:
        logits = listen(pair.target.params, frames[None])
        return rules.language(pair.tokens, logits)[0]

    return detect
