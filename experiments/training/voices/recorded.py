"""Strings of digits that people spoke one at a time, joined.

A folder has `transcripts.tsv`: a line a recording with its file, speaker, seconds,
transcript and split, after a line of their names. The Free Spoken Digit Dataset is one
such (https://github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0): weights
that learnt from it are reported, and not bundled.
"""

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.training.voices import examples
from experiments.training.voices.examples import Spoken, Window
from experiments.training.voices.phonemes import DIGITS
from experiments.training.voices.synthesis import RATE, Speech
from specjax.speech import audio

TABLE = "transcripts.tsv"
LEVEL, ROOM = 0.08, 1e-3  # root mean squares of a voice, and of the room behind it
MOST = 10  # digits of a window


def strings(
    folder: Path, split: str
) -> Callable[[np.random.Generator, Window], Spoken]:
    """Draws strings of digits of one speaker each."""
    table = folder / TABLE
    if not table.is_file():
        raise ValueError(f"{folder} has no {TABLE}: name the folder of the recordings")
    speakers: dict[str, list[tuple[str, np.ndarray]]] = defaultdict(list)
    with table.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines, delimiter="\t"):
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
        return examples.fitted(
            [word for word, _ in digits], Speech(samples, spans), window
        )

    return draw
