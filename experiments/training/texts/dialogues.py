"""Dialogues and their summaries, of a folder that the user has: DialogSum and SAMSum.

A text is a dialogue, then a summary of it, so that one model both goes on with a
conversation and sums it up. Chen et al. (2021), https://arxiv.org/abs/2105.06762;
Gliwa et al. (2019), https://arxiv.org/abs/1911.12237. The licences of both are
non-commercial: what learns from them is not bundled.
"""

import hashlib
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

from experiments.training.texts.corpus import Corpus

SETS = ("dialogsum", "samsum")
SUMMARY = "\n\nSummary:"  # between a dialogue and its summary
ENDINGS = (".jsonl", ".jsonl.xz")


def read(folder: Path, side: str) -> Corpus:
    """The texts of one side, "train" or "valid", of every set.

    folder: SET.SIDE.jsonl or SET.SIDE.jsonl.xz, a line a dialogue: `article` and
    `summary`. Raises ValueError, naming the file and the line, for what is not there.
    """
    files = [find(folder, name, side) for name in SETS]
    documents = [document(line) for file in files for line in lines(file)]
    digest = hashlib.sha256("\0".join(documents).encode()).hexdigest()
    return Corpus(documents, digest, len(files))


def find(folder: Path, name: str, side: str) -> Path:
    """The file of a set, packed or not. Raises ValueError where there is none."""
    files = [folder / f"{name}.{side}{ending}" for ending in ENDINGS]
    for file in files:
        if file.is_file():
            return file
    raise ValueError(
        f"{folder} has neither {' nor '.join(file.name for file in files)}: name the"
        " folder of the dialogues, with id, article and summary on a line"
    )


def lines(file: Path) -> Iterator[dict]:
    """Its objects. Raises ValueError for a line without a dialogue or a summary."""
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            try:
                value = json.loads(line)
                whole = isinstance(value["article"] + value["summary"], str)
            except (ValueError, TypeError, KeyError):
                whole = False
            if not whole:
                raise ValueError(
                    f"{file}, line {number}: write an object with article and summary,"
                    " both texts"
                )
            yield value


def document(line: dict) -> str:
    """What a model reads of a line."""
    parts = (
        line[name].replace("\r\n", "\n").strip() for name in ("article", "summary")
    )
    dialogue, summary = parts
    return f"{dialogue}{SUMMARY} {summary}"
