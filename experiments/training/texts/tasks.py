"""Pairs of ids for the tasks of the bundled T5 family, read from a folder and from
packages.

- `sentences`: English to German, sentences of Tatoeba (CC BY 2.0 FR). A folder has
  `train.en.xz`, `train.de.xz`, line by line, and `train.src.xz`, the source of each
  line.
- `joined`: unrelated sentences in a row until there are enough; those of
  `valid.tatoeba_valid.en.xz` and `.de.xz` are held out.
- `correct`: documentation with errors put into it (`texts.correction`).
- `docs`: its summaries.
"""

import lzma
import platform
from pathlib import Path

import numpy as np

from experiments.training import pairs, tokenizer
from experiments.training.pairs import Pair
from experiments.training.texts import correction, documentation, packages
from specjax.models import t5
from specjax.training import storage

TRANSLATE, SUMMARIZE = "translate English to German: ", "summarize: "
LICENSED = ("tatoeba",)  # the sources of the folder that may be passed on
READ = {"sentences": 64, "docs": 128}  # the longest inputs
HELD_OUT = 1000  # sentences
LEAST, MOST = 64, 112  # tokens of a long target
ORDERS, SPOILED = 4, 3  # how often a sentence is joined, a passage spoilt
NAMES = ("joined", "correct", "sentences", "docs")
Sentences = list[tuple[str, str]]
Texts = dict[str, list[Pair]]


def read_lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def sentences(folder: Path) -> Sentences:
    """Returns the pairs of sentences that may be redistributed, in the order of the
    files."""
    read = [read_lines(folder / f"train.{name}.xz") for name in ("en", "de", "src")]
    lines = zip(*read, strict=True)
    return [(en, de) for en, de, source in lines if source.startswith(LICENSED)]


def validation(folder: Path) -> Sentences:
    """Returns sentences of any length whose English side is not in the training
    files."""
    names = (f"valid.tatoeba_valid.{language}.xz" for language in ("en", "de"))
    return list(zip(*(read_lines(folder / n) for n in names), strict=True))


def load(path: Path, pieces, folder: Path) -> Texts:
    def make() -> storage.Arrays:
        texts = read(path.stem, pieces, folder)
        known = ((name, packages.find_licensed(name)) for name in packages.NAMES)
        about = {
            "python": platform.python_version(),
            "pairs": {name: [len(x), pairs.digest(x)] for name, x in texts.items()},
            "licences": [
                {"name": name, "version": distribution.version, "licence": licence}
                for name, (distribution, licence) in known
            ],
        }
        storage.write_json(path.with_suffix(".json"), about)
        return pack(texts)

    about = tokenizer.identity(pieces)
    return unpack(storage.keep(path, make, about=about, save=np.savez_compressed))


def pack(texts: Texts) -> dict[str, np.ndarray]:
    """Returns the ids of each task end to end, and the length of each part: source,
    target, ...
    """
    flat = {}
    for name, listed in texts.items():
        parts = [part for pair in listed for part in pair]
        flat[f"{name}_ids"] = np.concatenate(parts).astype(np.uint16)
        flat[f"{name}_lengths"] = np.array([len(part) for part in parts], np.uint16)
    return flat


def unpack(flat) -> Texts:
    texts = {}
    for name in NAMES:
        ids, ends = flat[f"{name}_ids"], np.cumsum(flat[f"{name}_lengths"].astype(int))
        parts = np.split(ids, ends[:-1])
        texts[name] = list(zip(parts[::2], parts[1::2], strict=True))
    return texts


def read(side: str, pieces, folder: Path) -> Texts:
    """Returns the pairs of every task of a split; the shortest sentences come first."""
    every, docs = sentences(folder), documentation.pairs(side)
    listed = every[HELD_OUT:] if side == "train" else every[:HELD_OUT]
    to_join = listed if side == "train" else validation(folder)
    return {
        "joined": join_sentences(pieces, to_join),
        "correct": corrections(pieces, passages(pieces, side)),
        "sentences": encode(pieces, listed, TRANSLATE, READ["sentences"]),
        "docs": encode(pieces, docs, SUMMARIZE, READ["docs"]),
    }


def encode(
    pieces, texts: Sentences, prefix: str, longest: int | None = None
) -> list[Pair]:
    """Returns both sides as ids, each followed by the end id; inputs are cut to
    `longest`.
    """
    sources = pieces.encode([prefix + source for source, _ in texts])
    targets = pieces.encode([target for _, target in texts])
    both = zip(sources, targets, strict=True)
    cut = slice(longest and longest - 1)
    return [([*source[cut], t5.END], [*target, t5.END]) for source, target in both]


def join_sentences(pieces, sentences: Sentences) -> list[Pair]:
    """Returns sentences in several random orders, joined until a target is long
    enough."""
    sources, targets = (pieces.encode(list(x)) for x in zip(*sentences, strict=True))
    prefix, long = pieces.encode(TRANSLATE.strip()), []
    for seed in range(ORDERS):
        source, target = list(prefix), []
        for i in np.random.default_rng(seed).permutation(len(sentences)):
            source, target = source + sources[i], target + targets[i]
            if len(target) >= LEAST:
                long.append(([*source, t5.END], [*target, t5.END]))
                source, target = list(prefix), []
    return long


def passages(pieces, side: str) -> list[str]:
    """Returns prose of one split; prose for training contains no held-out sentence."""
    others = ("valid", "test") if side == "train" else ()
    files = (file for other in others for file in documentation.read(other))
    apart = [sentence for file in files for sentence in file]

    def length(text: str) -> int:
        return len(pieces.encode(text))

    read = documentation.read(side, apart)
    return documentation.passages(read, length, least=LEAST, most=MOST - 1)


def corrections(pieces, texts: list[str]) -> list[Pair]:
    """Returns each passage several times, with errors of different seeds."""
    spoilt = [
        (correction.add_errors(text, again * len(texts) + i), text)
        for again in range(SPOILED)
        for i, text in enumerate(texts)
    ]
    return encode(pieces, spoilt, correction.PREFIX)
