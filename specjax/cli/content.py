"""The files that texts are made of, by what they hold: a name alone may hide a change.

Digests are taken once, by the process that gives work away; a worker takes them again
of files alone whose size or time is not as it was.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from specjax.measure import provenance


class Content(NamedTuple):
    """What files held. digests: sha256 by label (`provenance.labels`). marks: size and
    time of the last change of each, in bytes and nanoseconds."""

    digests: dict[str, str] = {}  # noqa: RUF012 (never changed)
    marks: dict[str, tuple[int, int]] = {}  # noqa: RUF012


def read(paths: Iterable[Path]) -> Content:
    """Returns what files hold now."""
    labels = provenance.labels(paths)
    digests = {label: provenance.digest(path) for label, path in labels.items()}
    return Content(digests, {label: mark(path) for label, path in labels.items()})


def mark(path: Path) -> tuple[int, int]:
    there = path.stat()
    return there.st_size, there.st_mtime_ns


def differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Returns the labels of files that are in one alone, or hold something else."""
    return sorted(x for x in before.keys() | now.keys() if before.get(x) != now.get(x))


def check(content: Content, paths: Iterable[Path]) -> None:
    """Raises ValueError where files are no longer what they were, or others here."""
    labels = provenance.labels(paths)
    now = {
        label: content.digests[label]
        if content.marks.get(label) == mark(path)
        else provenance.digest(path)
        for label, path in labels.items()
    }
    if unlike := differences(content.digests, now):
        raise ValueError(
            f"{', '.join(unlike)} changed while texts were decoded, or is another file"
            " on this machine: begin the same command again"
        )
