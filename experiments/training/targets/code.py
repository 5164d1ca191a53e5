"""The target of Python code: a small model learns on from more text, and is grown.

Two stages, see `stages`. Text: functions of the standard library and of permissively
licensed packages, without what repeats a text that is held out (`documents`).
"""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

from experiments.training import language, loop
from experiments.training.targets import stages
from experiments.training.texts import corpus, packages
from specjax import zoo
from specjax.models import gpt

SMALL = gpt.Config(8192, 256, 1024, 6, 4)
LARGE = gpt.Config(8192, 512, 2048, 8, 8)
SIZE = loop.Recipe(1200, 0, warmup=200)
RECIPES = {
    "small": SIZE._replace(rate=1.5e-3),
    "grown": SIZE._replace(steps=1050, rate=1e-3, decay=500),
}
LIBRARY_TIMES = 2  # a window of the standard library is as likely as two of packages
PACKAGE_BATCHES = 6  # held out, beside `language.HELD_OUT` of the standard library


class Text(NamedTuple):
    """Streams: what is read, and two that are held out."""

    train: language.Stream
    held_out: language.Stream
    packages: language.Stream


def train(runs: Path, text: Text, first: Callable, recipes: stages.Recipes) -> Any:
    """Runs both stages, from the weights that `first` gives; returns the grown ones."""
    size = SIZE.batch, SIZE.length
    held_out = {
        "held_out": windows(text.held_out, language.HELD_OUT, size),
        "packages": windows(text.packages, PACKAGE_BATCHES, size),
    }

    def batch(seed: tuple[int, ...]) -> np.ndarray:
        return language.rows(text.train, seed, *size)

    growth = stages.Growth(SMALL, LARGE, first, task)
    return stages.run(runs, growth, stages.Data(batch, held_out), recipes)


def task(config: gpt.Config) -> loop.Task:
    return language.task(config, language.next_token_loss(config))


def windows(data: language.Stream, count: int, size: tuple) -> list[np.ndarray]:
    """The same held-out batches always; of the standard library, `language.train`'s."""
    return [language.rows(data, (1, i), *size) for i in range(count)]


def load(path: Path, pieces: SentencePieceProcessor) -> Text:
    """The text as ids, read once: a run does not change with what is installed."""
    if not path.exists():
        texts, about = documents()
        parts = {name: coded(pieces, read) for name, read in texts.items()}
        flat = {
            f"{name}_{field}": values.astype(np.uint16 if field == "tokens" else int)
            for name, part in parts.items()
            for field, values in part._asdict().items()
        }
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, **flat)
        loop.replace(path.with_name("text.json"), json.dumps(about, indent=1).encode())
        partial.replace(path)
    flat = np.load(path)
    library, others, *held_out = (
        language.Stream(flat[f"{name}_tokens"].astype(np.int32), flat[f"{name}_starts"])
        for name in ("library", "others", "held_out", "packages")
    )
    return Text(mixed(library, others), *held_out)


def mixed(library: language.Stream, others: language.Stream) -> language.Stream:
    """One stream; windows of the first are `LIBRARY_TIMES` as likely a document."""
    tokens = np.concatenate([library.tokens, others.tokens])
    after = others.starts + library.tokens.size
    starts = np.concatenate([*[library.starts] * LIBRARY_TIMES, after])
    return language.Stream(tokens, starts)


def documents() -> tuple[dict[str, list[str]], dict]:
    """What is read and what is held out, and what it is.

    Sides of the library are of other files, and may hold the same function. No function
    of a package that is held out repeats the library, and none that is read repeats the
    library or what is held out, as `packages.repeats` tells.
    """
    library = {side: corpus.stdlib(side) for side in ("train", "valid", "test")}
    apart = [text for side in library.values() for text in side.documents]
    held_out = packages.read("valid", apart)
    tested = packages.read("test", apart)
    others = packages.read("train", apart + held_out.documents + tested.documents)
    about = {
        "python": platform.python_version(),
        "library": {side: [len(t.documents), t.digest] for side, t in library.items()},
        "others": [len(others.documents), others.digest],
        "packages": [len(held_out.documents), held_out.digest],
        "licences": [package._asdict() for package in others.about],
    }
    texts = {
        "library": library["train"].documents,
        "others": others.documents,
        "held_out": library["valid"].documents,
        "packages": held_out.documents,
    }
    return texts, about


def coded(pieces: SentencePieceProcessor, read: list[str]) -> language.Stream:
    ids = pieces.encode(read)
    return language.stream([[zoo.START, *document, zoo.END] for document in ids])
