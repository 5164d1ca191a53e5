"""Windows of anybody's speech: recordings in folders, cut, and synthesised sentences.

Axes: N samples, 16,000 a second.
"""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.training.voices import examples
from experiments.training.voices.recorded import TABLE
from specjax.speech import audio

SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")
SEED, LETTERS = 11, 400  # of a window that is synthesised, at most


class Sound(NamedTuple):
    """One window. name: tells it from others. read: () -> samples [N]. said: what is
    said in it, "" where nobody wrote that down."""

    name: str
    read: Callable[[], np.ndarray]
    said: str = ""


def recorded(folder: Path, most: int) -> Iterator[Sound]:
    """The recordings of a folder, cut into windows of at most so many samples. Of those
    in its `transcripts.tsv`, if it has one, the split "train", or all without such a
    split. Raises ValueError for a folder without any, or a file that is no sound."""
    files = sorted(x for x in folder.rglob("*") if x.suffix.lower() in SUFFIXES)
    if (folder / TABLE).is_file():
        table = _lines(folder)
        train = [line for line in table if line["split"] == "train"] or table
        files = [folder / line["file"] for line in train]
    if not files:
        raise ValueError(f"{folder} has no recordings: name a folder of wav or flac")
    for file in files:
        samples = audio.read(file).samples
        for at in range(0, len(samples), most):
            piece = samples[at : at + most]
            yield Sound(f"{folder.name}/{file.name} {at}", lambda piece=piece: piece)


def transcribed(folder: Path, most: int) -> Iterator[Sound]:
    """The recordings of a table's split "train" with their transcripts; neighbours of
    one speaker share a window where both fit. Raises ValueError for a folder without a
    table."""
    if not (folder / TABLE).is_file():
        raise ValueError(f"{folder} has no {TABLE}: name it by --recordings")
    lines = [line for line in _lines(folder) if line["split"] == "train"]
    groups: list[list[dict[str, str]]] = []
    room = 0
    for line in lines:
        size = len(audio.read(folder / line["file"]).samples)
        if not groups or line["speaker"] != groups[-1][0]["speaker"] or size > room:
            groups.append([])
            room = most
        groups[-1].append(line)
        room -= size
    for group in groups:
        files = [folder / line["file"] for line in group]
        said = " ".join(line["transcript"] for line in group)

        def read(files=files) -> np.ndarray:
            return np.concatenate([audio.read(file).samples for file in files])[:most]

        yield Sound(f"{folder.name}/{files[0].name} {len(files)} said", read, said)


def _lines(folder: Path) -> list[dict[str, str]]:
    with (folder / TABLE).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def synthesised(count: int, seconds: float) -> Iterator[Sound]:
    """Windows of our own voices."""
    window = examples.Window(seconds, LETTERS)

    def say(number: int) -> np.ndarray:
        rng = np.random.default_rng((SEED, number))
        return examples.synthesised(rng, window)[1].samples

    for number in range(count):
        yield Sound(f"synthesised {number}", partial(say, number))
