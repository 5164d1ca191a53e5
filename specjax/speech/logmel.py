"""Log-mel features as Whisper computes them (Radford et al., 2022, Section 2.2).

They have 80 bands, or 128 in large-v3, on windows of 25 ms every 10 ms; the model reads
30 s of them. https://arxiv.org/abs/2212.04356 Axes: B rows, N samples, T frames, F
frequencies, M bands."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike

RATE = 16_000  # samples a second
FFT, HOP = 400, 160  # samples: 25 ms, 10 ms
SECONDS = 30  # of a window
WINDOW = SECONDS * RATE
FRAMES = WINDOW // HOP
FLOOR, RANGE = 1e-10, 8.0  # least power; powers of ten below the loudest that are kept
# Slaney's scale: linear up to 1000 Hz = 15 mel, then 27 mel for every factor of 6.4.
KNEE, LINEAR, LOGARITHMIC = 1000.0, 3 / 200, 27 / np.log(6.4)


def features(samples: np.ndarray, bands: int = 80, frames: int = FRAMES) -> np.ndarray:
    """Returns the features of up to 30 s of sound, or of another window.

    Args:
      samples: [N] or [B, N] in [-1, 1], 16,000 a second; the rest of the window is
        silence.
      bands: M.
      frames: T, of the model's window.

    Returns:
      [T, M] or [B, T, M] float32. Each row is scaled to its own loudest frame.

    Raises:
      ValueError: more than 160 samples per frame, none, or an array of another kind.
    """
    samples, most = _floats(samples), frames * HOP
    if samples.ndim not in (1, 2) or not 0 < samples.shape[-1] <= most:
        raise ValueError(
            f"samples have shape {samples.shape}: give [N] or [B, N] with N from 1 to"
            f" {most}, and cut what is longer into windows"
        )
    weights, rows = filters(bands), []
    for row in samples.reshape(-1, samples.shape[-1]):
        sound = np.pad(row, (0, most - len(row)))
        around = np.pad(sound, FFT // 2, mode="reflect")
        rows.append(_scale(_log_power(around, weights)[:frames]))
    shape = *samples.shape[:-1], frames, bands
    return np.stack(rows).astype(np.float32).reshape(shape)


def recording_frames(blocks: Iterable[np.ndarray], bands: int = 80) -> np.ndarray:
    """Returns the frames of a whole recording, scaled by its loudest frame.

    Whisper's sequential transcription reads windows of these, see `cut`.

    Args:
      blocks: the samples in order, [N] each of any N; an hour of them needs no more
        memory than its features, 115 MB with 80 bands.
      bands: M.

    Returns:
      [N // 160, M] float32 for N samples in all.
    """
    weights, parts, length = filters(bands), [], 0
    rest, started = np.zeros(0), False
    for block in _add_silence(blocks):
        rest = np.concatenate([rest, block])
        length += len(block)
        if not started:
            if len(rest) <= FFT // 2:
                continue
            rest, started = np.concatenate([rest[FFT // 2 : 0 : -1], rest]), True
        ready = (len(rest) - FFT) // HOP + 1
        if ready > 0:
            power = _log_power(rest[: (ready - 1) * HOP + FFT], weights)
            parts.append(power.astype(np.float32))
            rest = rest[ready * HOP :]
    most = (length - WINDOW) // HOP
    if most < 1:
        raise ValueError("the recording has no whole frame of 10 ms: name a longer one")
    return _scale(np.concatenate(parts)[:most])


def cut(frames: np.ndarray, first: int) -> np.ndarray:
    """Returns a window of a recording's frames: [T, M] -> [3000, M] from frame `first`
    on.

    Frames after the end are zeros, as in Whisper's own transcription; zeros are not
    silence."""
    part = frames[first : first + FRAMES]
    return np.pad(part, ((0, FRAMES - len(part)), (0, 0)))


def silence(frames: np.ndarray) -> float:
    """Returns the value of a frame [M] without sound, in a recording with frames [T,
    M]."""
    return max((np.log10(FLOOR) + 4.0) / 4.0, float(frames.max()) - RANGE / 4.0)


def filters(bands: int = 80) -> np.ndarray:
    """Returns Slaney's triangular filters, each of area one in Hz: [F, M] float64.

    Raises ValueError for too many bands, so that a filter covers no frequency."""
    if not 1 <= bands <= FFT // 2:
        raise ValueError(f"{bands} mel bands: Whisper has 80, or 128 in large-v3")
    corners = hertz(np.linspace(0.0, mel(RATE / 2), bands + 2))
    low, peak, high = corners[:-2], corners[1:-1], corners[2:]
    frequency = np.linspace(0.0, RATE / 2, FFT // 2 + 1)[:, None]
    rising, falling = (
        (frequency - low) / (peak - low),
        (high - frequency) / (high - peak),
    )
    return np.maximum(0.0, np.minimum(rising, falling)) * 2 / (high - low)


def mel(frequency: ArrayLike) -> np.ndarray:
    """Converts Hz to mel on Slaney's scale (Auditory Toolbox, 1998)."""
    frequency = np.asarray(frequency, np.float64)
    above = LINEAR * KNEE + LOGARITHMIC * np.log(np.maximum(frequency, KNEE) / KNEE)
    return np.where(frequency < KNEE, LINEAR * frequency, above)


def hertz(mels: ArrayLike) -> np.ndarray:
    """Converts mel to Hz, the inverse of `mel`."""
    mels = np.asarray(mels, np.float64)
    above = KNEE * np.exp(np.maximum(mels - LINEAR * KNEE, 0.0) / LOGARITHMIC)
    return np.where(mels < LINEAR * KNEE, mels / LINEAR, above)


def _floats(samples: np.ndarray) -> np.ndarray:
    samples = np.asarray(samples)
    if not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(
            f"samples are {samples.dtype}: give floats in [-1, 1], integers divided by"
            " their largest"
        )
    if not np.isfinite(samples).all():
        raise ValueError("samples are not all finite: remove NaN and infinity")
    return samples.astype(np.float64)


def _add_silence(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields the blocks, then the 30 s of silence that follow a recording."""
    for block in blocks:
        yield _floats(block)
    yield np.zeros(WINDOW)


def _log_power(sound: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns log10 of the power in each band, of every window that fits: [N] -> [T,
    M]."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)  # periodic
    windows = np.lib.stride_tricks.sliding_window_view(sound, FFT)[::HOP]
    power = np.abs(np.fft.rfft(windows * hann)) ** 2
    return np.log10(np.maximum(power @ weights, FLOOR))


def _scale(frames: np.ndarray) -> np.ndarray:
    scaled = np.maximum(frames, frames.max() - RANGE)
    scaled += 4.0
    scaled /= 4.0
    return scaled
