"""Python code as streams of ids: the standard library, and packages beside it.

Functions of permissively licensed packages, without what repeats a text that is held
out (`documents`).
"""

import platform
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

from experiments.training import language, storage, tokenizer
from experiments.training.language import Stream
from experiments.training.texts import corpus, packages

LIBRARY_TIMES = 2  # a window of the standard library is as likely as two of packages


class Text(NamedTuple):
    """Streams: what is read, and two that are held out."""

    train: Stream
    held_out: Stream
    packages: Stream


def load(path: Path, pieces: SentencePieceProcessor) -> Text:
    """The text as ids, read once: a run does not change with what is installed."""

    def read() -> dict[str, np.ndarray]:
        texts, about = documents()
        storage.write_json(path.with_suffix(".json"), about)
        flat = {}
        for name, listed in texts.items():
            tokens, starts = language.stream(language.encode(pieces, listed))
            flat[f"{name}_tokens"] = tokens.astype(np.uint16)
            flat[f"{name}_starts"] = starts
        return flat

    flat = storage.keep(path, read, tokenizer.about(pieces), np.savez_compressed)
    library, others, *held_out = (
        Stream(flat[f"{name}_tokens"].astype(np.int32), flat[f"{name}_starts"])
        for name in ("library", "others", "held_out", "packages")
    )
    return Text(mixed(library, others), *held_out)


def mixed(library: Stream, others: Stream) -> Stream:
    """One stream; windows of the first are `LIBRARY_TIMES` as likely a document."""
    tokens = np.concatenate([library.tokens, others.tokens])
    after = others.starts + library.tokens.size
    return Stream(tokens, np.concatenate([*[library.starts] * LIBRARY_TIMES, after]))


def documents() -> tuple[dict[str, list[str]], dict]:
    """What is read and what is held out, and what it is.

    Sides of the library are of other files, and may hold the same function. No function
    of a package that is held out repeats the library, and none that is read repeats the
    library or what is held out, as `packages.repeats` tells.
    """
    library = {side: corpus.stdlib(side) for side in ("train", "valid", "test")}
    apart = [text for side in library.values() for text in side]
    held_out, tested = (packages.read(side, apart)[0] for side in ("valid", "test"))
    others, licences = packages.read("train", apart + held_out + tested)

    def told(documents: list[str]) -> list:
        return [len(documents), corpus.digest(documents)]

    about = {
        "python": platform.python_version(),
        "library": {side: told(texts) for side, texts in library.items()},
        "others": told(others),
        "packages": told(held_out),
        "licences": [package._asdict() for package in licences],
    }
    texts = {"library": library["train"], "others": others}
    texts |= {"held_out": library["valid"], "packages": held_out}
    return texts, about
