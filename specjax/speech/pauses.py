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
LOUD, BELOW = 99, 25.0  # percentile of a window's loudness; dB below it is no sound


def sounding(frames: np.ndarray) -> np.ndarray:
    """Where a window [T, M], as `logmel` has it, is not quiet: [S] bool. Where noise is
    as loud as speech it never is."""
    power = np.sum(10.0 ** (4 * frames - 4), axis=1)
    pairs = power[: len(power) // 2 * 2].reshape(-1, 2).max(1)
    level = 10 * np.log10(pairs)
    return level > np.percentile(level, LOUD) - BELOW if level.size else level > 0


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
