"""Windows of recorded speech from folders, strings of digits joined from single
recordings, and windows of our own voices.

A folder has `transcripts.tsv`: a line for each recording with its file, speaker,
seconds, transcript and split, after a line of their names. The Free Spoken Digit
Dataset is one such (https://github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA
4.0): weights trained on it are reported, and not bundled. Axes: N samples, 16,000 a
second.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.training.voices import examples
from experiments.training.voices.examples import Spoken, Window
from experiments.training.voices.synthesis import DIGITS, RATE, Speech
from specjax.speech import audio

TABLE = "transcripts.tsv"
HEAD = "file", "speaker", "seconds", "transcript", "split"
LEVEL, ROOM = 0.08, 1e-3  # root mean squares of a voice, and of the room behind it
MOST = 10  # digits of a window
SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")
SEED, LETTERS = 11, 400  # of a window that is synthesised, at most


def strings(
    folder: Path, split: str
) -> Callable[[np.random.Generator, Window], Spoken]:
    """Returns a function that draws a string of digits, all spoken by one speaker."""
    table = folder / TABLE
    if not table.is_file():
        raise ValueError(f"{folder} has no {TABLE}: name the folder of the recordings")
    speakers: dict[str, list[tuple[str, np.ndarray]]] = defaultdict(list)
    for line in _lines(folder):
        if line["split"] == split and line["transcript"] in DIGITS:
            sound = audio.read(folder / line["file"]).samples
            sound = sound * (LEVEL / max(1e-6, float(np.sqrt(np.mean(sound**2)))))
            speakers[line["speaker"]].append((line["transcript"], sound))
    if not speakers:
        raise ValueError(f"{table} has no digits of split {split!r}: try train or test")
    names = sorted(speakers)

    def draw(rng: np.random.Generator, window: Window) -> Spoken:
        spoken = speakers[names[rng.integers(len(names))]]
        count = rng.integers(1, MOST + 1)
        digits = [spoken[i] for i in rng.integers(len(spoken), size=count)]
        # One after the other, with pauses, in one quiet room.
        parts, spans = [np.zeros(round(rng.uniform(0.03, 0.2) * RATE))], []
        for _, sound in digits:
            begin = sum(map(len, parts))
            spans.append((begin / RATE, (begin + len(sound)) / RATE))
            parts += [sound, np.zeros(round(rng.uniform(0.0, 0.12) * RATE))]
        samples = np.concatenate(parts)
        samples = np.float32(samples + rng.normal(0, ROOM, len(samples)))
        return examples.fit_words(
            [word for word, _ in digits], Speech(samples, spans), window
        )

    return draw


class Sound(NamedTuple):
    """A window of sound.

    Attributes:
        name: its identity.
        read: () -> samples [N].
        said: its transcript, "" where there is none.
    """

    name: str
    read: Callable[[], np.ndarray]
    said: str = ""


def windows(folder: Path, most: int) -> Iterator[Sound]:
    """Yields the recordings of a folder, cut into windows of at most `most` samples.

    Of those in its `transcripts.tsv`, if it has one, the split "train" is used, or all
    without such a split.

    Raises:
        ValueError: the folder has no recordings, or a file is not a sound.
    """
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


def transcribed_windows(folder: Path, most: int) -> Iterator[Sound]:
    """Yields the recordings in a table's split "train" with their transcripts;
    successive recordings of one speaker share a window if both fit.

    Raises:
        ValueError: the folder has no table.
    """
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


def write_table(folder: Path, lines: Sequence[tuple[str, ...]]) -> None:
    """Writes the table of a folder.

    Args:
        lines: the fields of `HEAD`.
    """
    table = "".join("\t".join(line) + "\n" for line in (HEAD, *lines))
    (folder / TABLE).write_text(table, "utf-8")


def _lines(folder: Path) -> list[dict[str, str]]:
    with (folder / TABLE).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def synthesised_windows(count: int, seconds: float) -> Iterator[Sound]:
    """Yields windows of our own voices."""
    window = examples.Window(seconds, LETTERS)

    def say(number: int) -> np.ndarray:
        rng = np.random.default_rng((SEED, number))
        return examples.synthesise(rng, window)[1].samples

    for number in range(count):
        yield Sound(f"synthesised {number}", partial(say, number))
