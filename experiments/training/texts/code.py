"""Python code as streams of ids: the standard library, and installed packages.

They are functions of permissively licensed packages, without those that repeat a
held-out text (`documents`).
"""

import platform
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

from experiments.training import language, tokenizer
from experiments.training.language import Stream
from experiments.training.texts import corpus, packages
from specjax.training import storage

LIBRARY_TIMES = 2  # a window of the standard library is as likely as two of packages


class Text(NamedTuple):
    """The streams of ids: one for training, and two that are held out."""

    train: Stream
    held_out: Stream
    packages: Stream


def load(path: Path, pieces: SentencePieceProcessor) -> Text:
    """Returns the text as ids. It is read once, so that a run does not change with the
    installed packages.
    """

    def read() -> dict[str, np.ndarray]:
        texts, about = documents()
        storage.write_json(path.with_suffix(".json"), about)
        flat = {}
        for name, listed in texts.items():
            tokens, starts = language.stream(language.encode(pieces, listed))
            flat[f"{name}_tokens"] = tokens.astype(np.uint16)
            flat[f"{name}_starts"] = starts
        return flat

    flat = storage.keep(
        path, read, about=tokenizer.identity(pieces), save=np.savez_compressed
    )
    library, others, *held_out = (
        Stream(flat[f"{name}_tokens"].astype(np.int32), flat[f"{name}_starts"])
        for name in ("library", "others", "held_out", "packages")
    )
    return Text(mix(library, others), *held_out)


def mix(library: Stream, others: Stream) -> Stream:
    """Returns one stream, in which a document of the first begins windows
    `LIBRARY_TIMES` as often as one of the second.
    """
    tokens = np.concatenate([library.tokens, others.tokens])
    after = others.starts + library.tokens.size
    return Stream(tokens, np.concatenate([*[library.starts] * LIBRARY_TIMES, after]))


def documents() -> tuple[dict[str, list[str]], dict]:
    """Returns the texts for training and the held-out texts, and their description.

    The training and held-out sides of the library come from different files, and may
    contain the same function. No held-out function of a package repeats the library,
    and no training function repeats the library or a held-out text, as
    `packages.repeats` decides.
    """
    library = {side: corpus.stdlib(side) for side in ("train", "valid", "test")}
    apart = [text for side in library.values() for text in side]
    held_out, tested = (packages.read(side, apart)[0] for side in ("valid", "test"))
    others, licences = packages.read("train", apart + held_out + tested)

    def count_and_digest(documents: list[str]) -> list:
        return [len(documents), corpus.digest(documents)]

    about = {
        "python": platform.python_version(),
        "library": {side: count_and_digest(texts) for side, texts in library.items()},
        "others": count_and_digest(others),
        "packages": count_and_digest(held_out),
        "licences": [package._asdict() for package in licences],
    }
    texts = {"library": library["train"], "others": others}
    texts |= {"held_out": library["valid"], "packages": held_out}
    return texts, about
