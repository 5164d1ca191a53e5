"""The parts of a recording that are decoded, where not all of it is.

A part is to the model a recording of its own: no window goes on behind its end. Its
times are still those of the file.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

SHORTEST = 0.02  # seconds


class Clip(NamedTuple):
    """Seconds of a recording; an infinite end is the recording's own."""

    start: float
    end: float


def parse(text: str) -> tuple[Clip, ...]:
    """Parts as a person writes them, "10-20.5,30-". Raises ValueError for what is none,
    or as `check`."""
    try:
        pairs = (part.split("-") for part in text.split(","))
        clips = [(float(start), float(end or "inf")) for start, end in pairs]
    except ValueError:
        raise ValueError(
            f"parts are written START-END,START-END, in seconds; got {text!r}"
        ) from None
    return check(clips)


def check(clips: Iterable[Sequence[float]]) -> tuple[Clip, ...]:
    """The same parts. Raises ValueError unless they follow one another."""
    clips = tuple(Clip(*map(float, clip)) for clip in clips)
    edges = [0.0, *(edge for clip in clips for edge in clip)]
    ordered = all(earlier <= later for earlier, later in pairwise(edges))
    if not (clips and ordered and all(b - a >= SHORTEST for a, b in clips)):
        shown = ",".join(f"{start:g}-{end:g}" for start, end in clips)
        raise ValueError(
            f"parts {shown}: give one or more, in order and apart, each of {SHORTEST} s"
            " or longer"
        )
    return clips


def within(clips: Iterable[Clip], seconds: float) -> tuple[Clip, ...]:
    """What there is of parts in a recording. Raises ValueError for one behind it."""
    cut = tuple(Clip(start, min(end, seconds)) for start, end in clips)
    for start, end in cut:
        if end - start < SHORTEST:
            raise ValueError(
                f"the part from {start:g} s on is behind the end at {seconds:.2f} s:"
                " name an earlier one"
            )
    return cut


def spans(clips: Iterable[Clip] | None, count: int, rate: int) -> list[tuple[int, int]]:
    """Parts as places from the first up to the last, of `count`, `rate` a second; None
    for all of them."""
    if clips is None:
        return [(0, count)]
    places = ([round(seconds * rate) for seconds in clip] for clip in clips)
    return [(first, min(last, count)) for first, last in places]
