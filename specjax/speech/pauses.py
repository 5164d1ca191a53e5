"""Pauses in a recording, which no word may span.

The path of the alignment leaves no state out, so a pause is given to the word before it
or after it. A long quiet stretch belongs to no word. Axes: T frames of 0.01 s, M bands,
S states of 0.02 s."""

from collections.abc import Iterable

import numpy as np

from specjax.speech.segments import Word
from specjax.speech.tokens import STEP

PAUSE = 10  # states, 0.2 s; the closure before a consonant is shorter
LOUD, FLOOR = 99, 5  # percentiles of a window's loudness: its speech, its noise
BELOW = 25.0  # dB below the loud parts that count as silence, whatever the noise
ABOVE = 1 / 3  # of the way from the noise to the loud: where sound begins
HEARD = 12.0  # dB between noise and loud; where there are fewer, nothing is a pause


def find_sound(frames: np.ndarray) -> np.ndarray:
    """Returns which parts of a window are not quiet.

    A recording's own noise is not sound: the threshold lies above it, however loud it
    is. Where noise is about as loud as speech, nothing is quiet.

    Args:
      frames: [T, M], as `logmel` computes them.

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


def leave_out_pauses(
    words: Iterable[Word], sound: np.ndarray, start: float
) -> tuple[Word, ...]:
    """Returns words whose times leave out the pauses in the sound.

    sound: the sound of their window, which begins at `start` seconds. A word that a
    pause divides keeps its longer part."""
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
