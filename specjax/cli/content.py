"""Digests of the files that texts depend on, because a name alone may hide a change.

The process that hands out the work computes the digests once. A worker computes one
again only where the size or time of a file has changed."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from specjax.measure import provenance


class Content(NamedTuple):
    """The content of files. digests: SHA-256 by label (`provenance.labels`). marks:
    size and time of the last change of each file, in bytes and nanoseconds."""

    digests: dict[str, str] = {}  # noqa: RUF012 (never changed)
    marks: dict[str, tuple[int, int]] = {}  # noqa: RUF012


def read(paths: Iterable[Path]) -> Content:
    """Returns the content that files have now."""
    labels = provenance.labels(paths)
    digests = {label: provenance.digest(path) for label, path in labels.items()}
    return Content(digests, {label: file_mark(path) for label, path in labels.items()})


def file_mark(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Returns the labels of files that are in one mapping only, or differ in
    content."""
    return sorted(x for x in before.keys() | now.keys() if before.get(x) != now.get(x))


def check(content: Content, paths: Iterable[Path]) -> None:
    """Raises ValueError where the files differ from `content`, or are other files."""
    labels = provenance.labels(paths)
    now = {
        label: content.digests[label]
        if content.marks.get(label) == file_mark(path)
        else provenance.digest(path)
        for label, path in labels.items()
    }
    if changed := differences(content.digests, now):
        raise ValueError(
            f"{', '.join(changed)} changed while texts were decoded, or differs on this"
            " machine: start the same command again"
        )
