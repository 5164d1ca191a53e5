"""Sentences read aloud by the voices of flite, a synthesizer that Whisper understands.

    python -m experiments.training.voices.read_aloud --texts FILE --out FOLDER

Debian's package `flite` has the program and its voices. A FILE has a sentence a line.
Each recording is some of them, in one voice, as long as Whisper's window or shorter;
its text is in a `transcripts.tsv`, which `experiments.training.zoo_whisper --said`
reads.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np

from experiments.training.voices import recorded
from specjax.runtime import progress

VOICES = ("slt", "rms", "awb", "kal16")
LETTERS, FASTEST, SLOWEST = 330, 0.8, 1.15  # of a recording; of a voice's own pace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=480)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    said = texts(options.texts.read_text("utf-8").splitlines(), options.count)
    lines = []
    for number, text in enumerate(progress.track(said, "recordings", kept=True)):
        voice, file = VOICES[number % len(VOICES)], f"{number:04}.wav"
        pace = np.random.default_rng(number).uniform(FASTEST, SLOWEST)
        say = ["flite", "-voice", voice, "--setf", f"duration_stretch={pace:.3f}"]
        subprocess.run([*say, "-t", text, "-o", options.out / file], check=True)
        lines.append((file, voice, "", text, "train"))
    recorded.write_table(options.out, lines)


def texts(sentences: list[str], count: int) -> list[str]:
    """Returns sentences in order, with as many in each text as fit."""
    made = [""]
    for sentence in sentences:
        if len(made[-1]) + len(sentence) > LETTERS:
            if len(made) == count:
                break
            made.append("")
        made[-1] = f"{made[-1]} {sentence}".strip()
    return made


if __name__ == "__main__":
    main()
