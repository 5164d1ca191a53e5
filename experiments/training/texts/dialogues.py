"""Dialogues and their summaries, of a folder that the user has: DialogSum and SAMSum.

A text is a dialogue, then a summary of it, so that one model both goes on with a
conversation and sums it up. Chen et al. (2021), https://arxiv.org/abs/2105.06762;
Gliwa et al. (2019), https://arxiv.org/abs/1911.12237. The licences of both are
non-commercial: what learns from them is not bundled.
"""

import hashlib
from pathlib import Path

from experiments.tasks import dialogues
from experiments.training.texts.corpus import Corpus

SETS = ("dialogsum", "samsum")
ENDINGS = (".jsonl", ".jsonl.xz")


def read(folder: Path, side: str) -> Corpus:
    """The texts of one side, "train" or "valid", of every set.

    folder: SET.SIDE.jsonl or SET.SIDE.jsonl.xz, as `experiments.tasks.dialogues` reads
    them. Raises ValueError, naming the file and the line, for what is not there.
    """
    files = [find(folder, name, side) for name in SETS]
    pairs = (pair for file in files for pair in dialogues.read(file))
    documents = [f"{dialogues.asked(text)} {summary}" for text, summary in pairs]
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
        " folder of the dialogues"
    )
