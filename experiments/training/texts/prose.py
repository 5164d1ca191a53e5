"""Passages of prose in documentation strings, long enough to decode for a while.

Sentences of paragraphs that are prose, not signatures, tables or sections, of the
standard library and of the packages of `packages`, in their order; a
passage is as many in a row, of one file, as it takes. Each sentence is read once.
"""

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from experiments.training.texts import corpus, documentation, packages

END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
PLAIN = frozenset(" .,;:'\"()`-")
SECTION = re.compile(
    r"-{3}|={3}|::|>>>|^[A-Z]\w+( \w+)?:|^(Parameters|Returns|Notes)\b"
)


def read(side: str, apart: Collection[str] = ()) -> list[list[str]]:
    """Sentences by file of one side: train, valid or test; none that is in `apart`."""
    seen, by_file = set(apart), []
    for path in files(side):
        fresh = []
        for text in documentation.strings(path.read_text("utf-8", errors="ignore")):
            for sentence in sentences(text):
                if sentence not in seen:
                    seen.add(sentence)
                    fresh.append(sentence)
        by_file.append(fresh)
    return [fresh for fresh in by_file if fresh]


def files(side: str) -> Iterator[Path]:
    """Modules of the standard library, then of each package."""
    yield from corpus.library(side)
    for name in packages.NAMES:
        distribution, _ = packages.licensed(name)
        yield from packages.files(distribution, side)


def sentences(text: str) -> list[str]:
    """Those of a documentation string's paragraphs of prose, each as one line."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return [s for p in paragraphs if is_prose(p) for s in END.split(p) if " " in s]


def is_prose(paragraph: str) -> bool:
    """Whole sentences, nearly all of letters, under no heading."""
    if len(paragraph.split()) < 6 or SECTION.search(paragraph):
        return False
    plain = sum(sign.isalpha() or sign in PLAIN for sign in paragraph)
    whole = paragraph[0].isupper() and paragraph[-1] in ".!?"
    return whole and plain > 0.97 * len(paragraph)


def passages(
    by_file: list[list[str]], length: Callable[[str], int], least: int, most: int
) -> list[str]:
    """Sentences in a row of one file, of `least` to `most` by `length` in all."""
    whole = []
    for file in by_file:
        part, size = [], 0
        for sentence in file:
            part, size = [*part, sentence], size + length(sentence)
            if size >= least:
                whole += [" ".join(part)] if size <= most else []
                part, size = [], 0
    return whole
