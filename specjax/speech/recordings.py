"""Files to what a model hears of them; one that cannot be read ends alone.

Axes: T frames, M bands.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specjax.speech import audio, logmel


class Recording(NamedTuple):
    """number: of its file among those that were named. notes: what is odd about it.
    problem: why there is nothing to hear, in one line; None where there is."""

    number: int
    file: Path
    notes: tuple[str, ...] = ()
    problem: str | None = None


def features(
    files: Sequence[Path], bands: int, told: Callable[[Recording], None]
) -> Iterator[np.ndarray]:
    """The frames [T, M] of each file that can be read, when they are asked for.

    Args:
      files: any that libsndfile reads.
      bands: M.
      told: is called with every file before its frames come, if they do.
    """
    for number, file in enumerate(files):
        levels: list[audio.Level] = []
        try:
            frames = logmel.whole(audio.blocks(file, told=levels.append), bands)
        except ValueError as error:
            told(Recording(number, file, problem=str(error)))
            continue
        told(Recording(number, file, audio.notes(file, levels[-1])))
        yield frames


def samples(
    files: Sequence[Path], told: Callable[[Recording], None]
) -> Iterator[np.ndarray]:
    """The same as samples [N], whole recordings."""
    for number, file in enumerate(files):
        try:
            sound = audio.read(file)
        except ValueError as error:
            told(Recording(number, file, problem=str(error)))
            continue
        told(Recording(number, file, sound.notes))
        yield sound.samples
