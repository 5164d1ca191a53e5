"""The parts of a recording that are decoded, where not all of it is.

The model decodes a part like a separate recording: no window goes on after its end. Its
times are still those of the file."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

SHORTEST = 0.02  # seconds


class Clip(NamedTuple):
    """A part of a recording, in seconds; an infinite end is the end of the
    recording."""

    start: float
    end: float


def parse(text: str) -> tuple[Clip, ...]:
    """Returns the parts that the user writes as "10-20.5,30-".

    Raises ValueError for any other form, or as `check`."""
    try:
        pairs = (part.split("-") for part in text.split(","))
        clips = [(float(start), float(end or "inf")) for start, end in pairs]
    except ValueError:
        raise ValueError(
            f"parts are written START-END,START-END, in seconds; got {text!r}"
        ) from None
    return check(clips)


def check(clips: Iterable[Sequence[float]]) -> tuple[Clip, ...]:
    """Returns the same parts. Raises ValueError unless they follow one another."""
    parts = tuple(Clip(float(start), float(end)) for start, end in clips)
    edges = [0.0, *(edge for part in parts for edge in part)]
    ordered = all(earlier <= later for earlier, later in pairwise(edges))
    if not (parts and ordered and all(b - a >= SHORTEST for a, b in parts)):
        shown = ",".join(f"{start:g}-{end:g}" for start, end in parts)
        raise ValueError(
            f"parts {shown}: give one or more, in order and without overlap, each of"
            f" {SHORTEST} s or longer"
        )
    return parts


def clip_to_length(clips: Iterable[Clip], seconds: float) -> tuple[Clip, ...]:
    """Returns the parts cut at the end of a recording. Raises ValueError for a part
    after it."""
    cut = tuple(Clip(start, min(end, seconds)) for start, end in clips)
    for start, end in cut:
        if end - start < SHORTEST:
            raise ValueError(
                f"the part from {start:g} s on lies after the end at {seconds:.2f} s:"
                " give an earlier one"
            )
    return cut


def spans(clips: Iterable[Clip] | None, count: int, rate: int) -> list[tuple[int, int]]:
    """Returns each part as the first index and the last one, exclusive, of `count`
    samples at `rate` a second.

    None stands for the whole recording."""
    if clips is None:
        return [(0, count)]
    places = ([round(seconds * rate) for seconds in clip] for clip in clips)
    return [(first, min(last, count)) for first, last in places]
