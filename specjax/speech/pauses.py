"""No word lasts over a pause.

The path through what heads attend to leaves no state out, so that a pause is given to
the word before it or behind it. Where a recording is quiet for long, it is nobody's.
Axes: T frames of 0.01 s, M bands, S states of 0.02 s.
"""

from collections.abc import Iterable

import numpy as np

from specjax.speech.segments import Word
from specjax.speech.tokens import STEP

PAUSE = 10  # states, 0.2 s; the closure before a consonant is shorter
LOUD, FLOOR = 99, 5  # percentiles of a window's loudness: its speech, its noise
BELOW = 25.0  # dB below the loud that are no sound, whatever the noise
ABOVE = 1 / 3  # of the way from the noise to the loud: where sound begins
HEARD = 12.0  # dB between noise and loud; where there are fewer, nothing is a pause


def sounding(frames: np.ndarray) -> np.ndarray:
    """Returns where a window is not quiet.

    A recording's own noise is not sound: the threshold lies above it, however loud it
    is. Where noise is about as loud as speech, nothing is quiet.

    Args:
      frames: [T, M], as `logmel` has it.

    Returns:
      [S] bool.
    """
    power = np.sum(10.0 ** (4 * frames - 4), axis=1)
    pairs = power[: len(power) // 2 * 2].reshape(-1, 2).max(1)
    level = 10 * np.log10(pairs)
    if not level.size:
        return np.zeros(0, bool)
    loud, floor = np.percentile(level, (LOUD, FLOOR))
    if loud - floor < HEARD:
        return np.ones(level.shape, bool)
    return level > max(loud - BELOW, floor + ABOVE * (loud - floor))


def left_out(
    words: Iterable[Word], sound: np.ndarray, start: float
) -> tuple[Word, ...]:
    """Words without the pauses in their times. sound: of their window, which begins at
    `start` seconds. Of a word that a pause divides, the longer part is its own."""
    kept = []
    for word in words:
        begin, end = (round((x - start) / STEP) for x in (word.start, word.end))
        places = begin + np.flatnonzero(sound[begin:end])
        if places.size:
            runs = np.split(places, np.flatnonzero(np.diff(places) > PAUSE) + 1)
            longest = max(runs, key=len)
            first, last = float(longest[0]), float(longest[-1])
            if first - begin >= PAUSE:
                word = word._replace(start=start + STEP * first)
            if end - last - 1 >= PAUSE:
                word = word._replace(end=start + STEP * (last + 1))
        kept.append(word)
    return tuple(kept)
