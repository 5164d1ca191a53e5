"""Prepared files with a few pairs of texts, for training and counting."""

from pathlib import Path

import numpy as np

from experiments.tasks import examples
from specjax.models import t5

END = t5.END
LETTERS = range(5, 9)
ABOUT = examples.About("wmt_ende", "train", "none", END, "", None, False, None, [])


def write(path: Path, inputs, *, targets=None, texts=None, **about) -> str:
    """Writes a prepared file of pairs, whose targets are by default copies of their
    inputs."""
    empty = [""] * len(inputs)
    pairs = examples.Examples(inputs, targets or inputs, texts or empty, empty)
    examples.write(path, pairs, ABOUT._replace(**about))
    return str(path)


def copies(count: int, length: int = 7) -> list[list[int]]:
    """Returns texts of letters that are equally likely."""
    rng = np.random.default_rng(0)
    return [[*rng.choice(LETTERS, length).tolist(), END] for _ in range(count)]
