"""Sound from files in Whisper's format: one channel, 16,000 samples a second.

It reads every format of libsndfile (wav, flac, ogg, opus, mp3, aiff), with the extra
`speech`. Axes: N samples, C channels."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specjax.speech import containers
from specjax.speech.containers import Sound

RATE = 16_000
SECONDS = 30  # of a block
SLOWEST = 4000  # samples a second: below this rate speech cannot be heard
SHORTEST = 0.01  # seconds
SILENT = 1e-4  # of full scale, -80 dB
FULL, CLIPPED = 0.9999, 1e-3  # of full scale; share of a recording's samples
PART = 4096  # samples of a channel that are read at once, or lost where a file breaks
CONVERT = "convert it: ffmpeg -i IN -ar 16000 -ac 1 OUT.wav"


class Level(NamedTuple):
    """The loudness and the length of a recording.

    peak, mixed: the largest sample of one channel, and of the channels' mean. full:
    samples at full scale or beyond. size: samples of all channels. seconds: the length
    that could be read. promised: the length by the header, where that is wrong. broken:
    why no more could be read."""

    peak: float = 0.0
    mixed: float = 0.0
    full: int = 0
    size: int = 0
    seconds: float = 0.0
    promised: float | None = None
    broken: str | None = None


class Audio(NamedTuple):
    """The samples of a recording, [N] float32 at 16,000 a second, and notes about it.

    notes: its oddities, one line each; none for a usual recording."""

    samples: np.ndarray
    notes: tuple[str, ...]


def read(file: str | Path) -> Audio:
    """Returns a whole file. Raises ValueError as `blocks` does."""
    levels: list[Level] = []
    samples = np.concatenate(list(blocks(file, on_end=levels.append)))
    return Audio(samples, notes(file, levels[-1]))


def blocks(
    file: str | Path,
    seconds: float = SECONDS,
    on_end: Callable[[Level], None] | None = None,
) -> Iterator[np.ndarray]:
    """Returns a file's samples in blocks, so that many hours need little memory.

    The file is opened before this returns.

    Args:
      file: a file that libsndfile can read, of any rate and number of channels, which
        are averaged.
      seconds: the length of each block but the last.
      on_end: is called with the `Level` of the whole recording before the last block.

    Returns:
      An iterator of [N] float32 arrays.

    Raises:
      ValueError: there is no such file, no sound in a known format, no samples, or a
        rate below 4000; while reading, damage at the start, NaN or infinity.
    """
    if seconds <= 0:
        raise ValueError(f"blocks of {seconds} s: give more than 0")
    sound, resample = _libraries(file)
    opened, header = _open(sound, Path(file))
    try:
        _check(opened, file)
    except ValueError:
        opened.close()
        raise
    parts = _mix_channels(sound, opened, file, on_end, header)
    parts = _resample(parts, opened.samplerate, resample)
    return _equal_blocks(parts, max(1, round(seconds * RATE)))


def notes(file: str | Path, level: Level) -> tuple[str, ...]:
    """Returns warnings that the user should know before trusting the transcript."""
    lines = []
    if level.broken is not None:
        lines.append(
            f"{file} is cut off or damaged at {level.seconds:.1f} s ({level.broken}),"
            f" only the part before was read: copy it again, or {CONVERT}"
        )
    elif level.promised == 0:
        lines.append(
            f"{file} has 0 samples according to its header: the {level.seconds:.1f} s"
            " that it has were read"
        )
    elif level.promised is not None:
        promised = f"and its header says {level.promised:.1f} s"
        if level.promised - level.seconds < 0.05:  # Ogg, MP3: the length is unknown
            promised = "without the end of the stream"
        lines.append(f"{file} is cut off: it has {level.seconds:.1f} s {promised}")
    if level.peak < SILENT:
        lines.append(f"{file} is silent: expect no words, or invented ones")
    elif level.mixed < SILENT:
        lines.append(f"{file}: its channels cancel each other; name a file with one")
    share = level.full / max(level.size, 1)
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
    """Opens a file. Returns it, and the amount of sound that its container promises, if
    known."""
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name the files in it")
    if not file.exists():
        raise ValueError(f"there is no file {file}: name one that exists")
    if not file.is_file():
        raise ValueError(f"{file} is not a file: save its sound to a file")
    try:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty: copy or download it again")
        header = containers.find(file)
        source: Any = file
        if header is not None and header.lacks_size:
            source = containers.complete_header(file, header)
        return sound.SoundFile(source), header
    except PermissionError:
        raise ValueError(f"{file} may not be read: change its permissions") from None
    except (sound.LibsndfileError, OSError, TypeError) as error:
        raise ValueError(
            f"{file} has no sound that libsndfile can read ({_reason(error)}): if it"
            f" plays elsewhere, {CONVERT}"
        ) from None


def _reason(error: Exception) -> str:
    """Returns the library's error message on one line, without the path."""
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


def _mix_channels(
    sound: ModuleType,
    opened: Any,
    file: str | Path,
    on_end: Callable | None,
    header: Sound | None,
) -> Iterator[tuple[np.ndarray, bool]]:
    """Yields each part of a file as one channel, and whether it is the last."""
    level, at = Level(), 0
    with opened:
        part, broken = _read_part(sound, opened)
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
            level = _add_part(level, part, mixed)
            at += len(part)
            part, broken = _read_part(sound, opened)
            if not len(part) and on_end is not None:
                seconds = at / opened.samplerate
                promised = None
                if header is not None and (header.lacks_size or header.cut):
                    promised = header.promised / header.there * seconds
                level = level._replace(seconds=seconds, promised=promised)
                on_end(level._replace(broken=broken))
            yield mixed, not len(part)


def _read_part(sound: ModuleType, opened: Any) -> tuple[np.ndarray, str | None]:
    """Returns a part [N, C], empty at the end of the file, and the error that ended
    it."""
    try:
        return opened.read(PART, dtype="float32", always_2d=True), None
    except (sound.LibsndfileError, RuntimeError) as error:
        return np.zeros((0, opened.channels), np.float32), _reason(error)


def _add_part(level: Level, part: np.ndarray, mixed: np.ndarray) -> Level:
    loud = np.abs(part)
    return Level(
        peak=max(level.peak, float(loud.max())),
        mixed=max(level.mixed, float(np.abs(mixed).max())),
        full=level.full + int((loud >= FULL).sum()),
        size=level.size + part.size,
    )


def _resample(
    parts: Iterable[tuple[np.ndarray, bool]], rate: int, resample: ModuleType
) -> Iterator[np.ndarray]:
    if rate == RATE:
        yield from (part for part, _ in parts)
        return
    stream = resample.ResampleStream(rate, RATE, 1, dtype="float32")
    for part, last in parts:
        yield stream.resample_chunk(part, last=last)


def _equal_blocks(parts: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Yields the same samples in blocks of one size, but the last."""
    pending: list[np.ndarray] = []
    count = 0
    for part in parts:
        pending, count = [*pending, part], count + len(part)
        while count >= size:
            samples = np.concatenate(pending)
            yield samples[:size]
            pending, count = [samples[size:]], count - size
    if count:
        yield np.concatenate(pending)
