"""Long recordings in windows that overlap, decoded at once and joined by their text.

All windows are one batch, other than in sequential transcription; what is written of
the seconds that two windows share is matched and cut in its middle (the algorithm of
the pipeline of transformers, https://huggingface.co/blog/asr-chunking).
Axes: N samples, B windows, M bands.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from specjax.speech import logmel

FAVOUR = 1e-4  # of a longer overlap, for each token


class Chunk(NamedTuple):
    """Samples `start` up to `stop`; `left` and `right` of them are shared with the
    neighbours and heard for context."""

    start: int
    stop: int
    left: int
    right: int


def transcribe(
    samples: np.ndarray,
    write: Callable[[np.ndarray], Sequence[Sequence[int]]],
    bands: int = 80,
    batch: int = 8,
    stride: int | None = None,
) -> list[int]:
    """The tokens of a recording, written in windows of 30 s that know nothing of each
    other.

    Args:
      samples: [N] in [-1, 1], 16,000 a second.
      write: features [B, 3000, M] -> tokens of text of each, B at most `batch`; without
        timestamps, which would be of the window.
      bands: M.
      batch: windows written together.
      stride: samples that a window shares on either side, None for 5 s.

    Raises:
      ValueError: no samples, batch < 1, or as `windows`.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}: take 1 or more")
    cover = windows(len(samples), logmel.WINDOW, stride)
    texts: list[Sequence[int]] = []
    for at in range(0, len(cover), batch):
        spans = [slice(*chunk[:2]) for chunk in cover[at : at + batch]]
        sounds = [logmel.features(samples[span], bands) for span in spans]
        texts += write(np.stack(sounds))
    return join(texts)


def windows(count: int, size: int, stride: int | None = None) -> list[Chunk]:
    """Windows that cover a recording.

    Args:
      count: N, of the recording.
      size: samples of a window.
      stride: samples that it shares on either side, None for a sixth of it.

    Raises:
      ValueError: nothing to cover, or windows that share all they have.
    """
    stride = size // 6 if stride is None else stride
    if count < 1 or size < 1 or stride < 0 or 2 * stride >= size:
        raise ValueError(
            f"windows of {size} samples that share {stride} on either side, for"
            f" {count}: take a stride below half of the window, and a recording"
        )
    chunks = []
    for start in range(0, count, size - 2 * stride):
        last = start + size >= count
        edges = (stride if start else 0), (0 if last else stride)
        chunks.append(Chunk(start, min(start + size, count), *edges))
        if last:
            break
    return chunks


def join(texts: Sequence[Sequence[int]]) -> list[int]:
    """The tokens of windows in order as one text, each overlap once.

    Up to the middle of an overlap the earlier window is believed, behind it the later.
    Without two equal tokens in a row of places there is none, and both are kept whole.
    """
    joined: list[int] = []
    earlier = list(texts[0]) if texts else []
    for text in texts[1:]:
        later = list(text)
        before, behind = _middle(earlier, later)
        joined += earlier[:before]
        earlier = later[behind:]
    return joined + earlier


def _middle(earlier: list[int], later: list[int]) -> tuple[int, int]:
    """Where an overlap has its middle in either text: the shift of one against the
    other that makes most of their tokens equal."""
    if not earlier or not later:
        return len(earlier), 0
    equal = np.array(earlier)[:, None] == np.array(later)[None, :]
    best, place = 0.0, (len(earlier), 0)
    for shift in range(1, len(earlier) + len(later)):
        matches = int(np.trace(equal, shift - len(earlier)))
        score = matches / shift + shift * FAVOUR
        if matches > 1 and score > best:
            begin, other = max(0, len(earlier) - shift), max(0, shift - len(earlier))
            length = min(len(earlier) - begin, len(later) - other)
            best = score
            place = (2 * begin + length) // 2, (2 * other + length) // 2
    return place
