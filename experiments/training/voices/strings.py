"""Held-out recordings for rows of speech, as files with a table.

    python -m experiments.training.voices.strings --out runs/data/words
    python -m experiments.training.voices.strings --recordings FOLDER \
        --out runs/data/digits

The first command writes synthesised sentences, the second strings of the user's own
digits, of the split that was not used for training. A folder has `transcripts.tsv` as
rows read it (`experiments.papers.wagner.speech.utterances`).
"""

import argparse
from pathlib import Path

import numpy as np
import soundfile

from experiments.training.voices import examples, recorded
from experiments.training.voices.synthesis import RATE
from specjax.runtime import progress

SEED = 5  # of no rows that are learnt from, or judged while learning


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recordings", type=Path, help="a folder of spoken digits")
    parser.add_argument("--count", type=int, default=96)
    write(**vars(parser.parse_args(arguments)))


def write(out: Path, count: int, recordings: Path | None = None) -> None:
    if out.exists():
        raise ValueError(f"{out} exists: name a new folder by --out")
    draw = examples.synthesise
    if recordings is not None:
        draw = recorded.strings(recordings, "test")
    out.mkdir(parents=True)
    lines = []
    for i in progress.track(range(count), f"{out.name}: recordings"):
        words, speech = draw(np.random.default_rng((SEED, i)), examples.WHOLE)
        soundfile.write(out / f"{i:04}.flac", speech.samples, RATE, subtype="PCM_16")
        seconds = f"{len(speech.samples) / RATE:.3f}"
        lines.append((f"{i:04}.flac", "held out", seconds, " ".join(words), "test"))
    recorded.write_table(out, lines)


if __name__ == "__main__":
    main()
