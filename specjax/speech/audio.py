"""Sound from files, as Whisper hears it: one channel, 16,000 samples a second.

Whatever libsndfile reads (wav, flac, ogg, opus, mp3, aiff), by the extra `speech`.
Axes: N samples, C channels.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specjax.speech import containers
from specjax.speech.containers import Sound

RATE = 16_000
SECONDS = 30  # of a block
SLOWEST = 4000  # samples a second: below, there is no speech to hear
SHORTEST = 0.01  # seconds
SILENT = 1e-4  # of full scale, -80 dB
FULL, CLIPPED = 0.9999, 1e-3  # of full scale; share of a recording's samples
PART = 4096  # samples of a channel that are read at once, or lost where a file breaks
CONVERT = "convert it: ffmpeg -i IN -ar 16000 -ac 1 OUT.wav"


class Level(NamedTuple):
    """How loud a recording was, and how long. peak: the largest of one channel and of
    their mean. full: samples at full scale or beyond. count: samples of all channels.
    seconds: that could be read. promised: by the header, where that is wrong. broken:
    why no more could be read."""

    peak: float = 0.0
    mixed: float = 0.0
    full: int = 0
    count: int = 0
    seconds: float = 0.0
    promised: float | None = None
    broken: str | None = None


class Audio(NamedTuple):
    """samples: [N] float32 at 16,000 a second. notes: what is odd about them, one line
    each; none if nothing is."""

    samples: np.ndarray
    notes: tuple[str, ...]


def read(file: str | Path) -> Audio:
    """The whole of a file. Raises ValueError as `blocks`."""
    levels = []
    samples = np.concatenate(list(blocks(file, on_end=levels.append)))
    return Audio(samples, notes(file, levels[-1]))


def blocks(
    file: str | Path,
    seconds: float = SECONDS,
    on_end: Callable[[Level], None] | None = None,
) -> Iterator[np.ndarray]:
    """A file's samples in order, so that one of many hours needs little memory. file:
    anything that libsndfile reads, of any rate and number of channels, which are
    averaged. seconds: of each block but the last. on_end: is called with the `Level` of
    all of it before the last block. Returns [N] float32 each. The file is opened before
    this returns. Raises ValueError for no such file, no sound in a form that libsndfile
    knows, no samples, a rate below 4000; while reading, damage at its start, NaN or
    infinity in it."""
    if seconds <= 0:
        raise ValueError(f"blocks of {seconds} s: take more than 0")
    sound, resample = _libraries(file)
    opened, header = _open(sound, Path(file))
    try:
        _check(opened, file)
    except ValueError:
        opened.close()
        raise
    parts = _mixed(sound, opened, file, on_end, header)
    parts = _resampled(parts, opened.samplerate, resample)
    return _even(parts, max(1, round(seconds * RATE)))


def notes(file: str | Path, level: Level) -> tuple[str, ...]:
    """What a person should know of a recording before they trust its transcript."""
    lines = []
    if level.broken is not None:
        lines.append(
            f"{file} is cut off or damaged at {level.seconds:.1f} s ({level.broken}),"
            f" what is before it was read: copy it again, or {CONVERT}"
        )
    elif level.promised == 0:
        lines.append(
            f"{file} has 0 samples by its header: the {level.seconds:.1f} s that are"
            " there were read"
        )
    elif level.promised is not None:
        promised = f"and its header says {level.promised:.1f} s"
        if level.promised - level.seconds < 0.05:  # Ogg, MP3: nobody says how long
            promised = "without the end of the stream"
        lines.append(f"{file} is cut off: {level.seconds:.1f} s are there {promised}")
    if level.peak < SILENT:
        lines.append(f"{file} is silent: expect no words, or invented ones")
    elif level.mixed < SILENT:
        lines.append(f"{file}: its channels cancel each other; name a file with one")
    share = level.full / max(level.count, 1)
    if share >= CLIPPED:
        lines.append(
            f"{file} is clipped: {100 * share:.1f} % of its samples are at full scale;"
            " record it again, more quietly"
        )
    return tuple(lines)


def _libraries(file: str | Path) -> tuple[ModuleType, ModuleType]:
    try:
        import soundfile
        import soxr
    except (ImportError, OSError) as error:  # OSError: there is no libsndfile
        raise ValueError(
            f"{file} needs soundfile and soxr ({error}): pip install 'specjax[speech]'"
        ) from None
    return soundfile, soxr


def _open(sound: ModuleType, file: Path) -> tuple[Any, Sound | None]:
    """Opens a file. Returns it, and what its container promises, if that is known."""
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name the files in it")
    if not file.exists():
        raise ValueError(f"no file at {file}")
    if not file.is_file():
        raise ValueError(f"{file} is no file: save what it plays to one")
    try:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty: copy or download it again")
        header = containers.find(file)
        lacks = header is not None and header.lacks_size
        source = containers.with_size(file, header) if lacks else file
        return sound.SoundFile(source), header
    except PermissionError:
        raise ValueError(f"{file} may not be read: change its permissions") from None
    except (sound.LibsndfileError, OSError, TypeError) as error:
        raise ValueError(
            f"{file} has no sound that libsndfile reads ({_reason(error)}): if it plays"
            f" elsewhere, {CONVERT}"
        ) from None


def _reason(error: Exception) -> str:
    """What the library says, on one line and without the path that it repeats."""
    text = getattr(error, "error_string", str(error))
    return " ".join(str(text).split()).rstrip(".") or "it does not say why"


def _check(opened: Any, file: str | Path) -> None:
    if not opened.frames:
        raise ValueError(f"{file} has no samples: record or copy it again")
    if opened.samplerate < SLOWEST:
        raise ValueError(
            f"{file} has {opened.samplerate} samples a second: speech needs {SLOWEST},"
            f" better {RATE}; record it again, or mend its header"
        )
    if opened.frames < SHORTEST * opened.samplerate:
        raise ValueError(f"{file} is shorter than {SHORTEST} s: name a longer one")


def _mixed(
    sound: ModuleType,
    opened: Any,
    file: str | Path,
    on_end: Callable | None,
    header: Sound | None,
) -> Iterator[tuple[np.ndarray, bool]]:
    """Each part of a file as one channel, and whether it is the last."""
    level, at = Level(), 0
    with opened:
        part, broken = _part(sound, opened)
        if broken is not None:
            raise ValueError(
                f"{file} is damaged at its start ({broken}): copy it again, or"
                f" {CONVERT}"
            )
        if not len(part):
            raise ValueError(f"{file} ends before its first sample: copy it again")
        while len(part):
            if not np.isfinite(part).all():
                place = at + int(np.argmin(np.isfinite(part).all(1)))
                raise ValueError(
                    f"{file} has NaN or infinity, first {place / opened.samplerate:.2f}"
                    " s from its start: mend it, or write it again as 16-bit integers"
                )
            mixed = part.mean(1, dtype=np.float32)
            level = _louder(level, part, mixed)
            at += len(part)
            part, broken = _part(sound, opened)
            if not len(part) and on_end is not None:
                seconds = at / opened.samplerate
                wrong = header is not None and (header.lacks_size or header.cut)
                told = header.promised / header.there * seconds if wrong else None
                ended = dict(seconds=seconds, promised=told, broken=broken)
                on_end(level._replace(**ended))
            yield mixed, not len(part)


def _part(sound: ModuleType, opened: Any) -> tuple[np.ndarray, str | None]:
    """[N, C], empty at the end, and why there is no more."""
    try:
        return opened.read(PART, dtype="float32", always_2d=True), None
    except (sound.LibsndfileError, RuntimeError) as error:
        return np.zeros((0, opened.channels), np.float32), _reason(error)


def _louder(level: Level, part: np.ndarray, mixed: np.ndarray) -> Level:
    size = np.abs(part)
    return Level(
        max(level.peak, float(size.max())),
        max(level.mixed, float(np.abs(mixed).max())),
        level.full + int((size >= FULL).sum()),
        level.count + part.size,
    )


def _resampled(
    parts: Iterable[tuple[np.ndarray, bool]], rate: int, resample: ModuleType
) -> Iterator[np.ndarray]:
    if rate == RATE:
        yield from (part for part, _ in parts)
        return
    stream = resample.ResampleStream(rate, RATE, 1, dtype="float32")
    for part, last in parts:
        yield stream.resample_chunk(part, last=last)


def _even(parts: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """The same samples in blocks of one size, but the last."""
    held, count = [], 0
    for part in parts:
        held, count = [*held, part], count + len(part)
        while count >= size:
            joined = np.concatenate(held)
            yield joined[:size]
            held, count = [joined[size:]], count - size
    if count:
        yield np.concatenate(held)
