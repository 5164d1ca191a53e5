"""The first weights of the T5 target: small, on sentences and documentation alone.

English to German on sentences of Tatoeba (CC BY 2.0 FR), read from a folder as
`train.en.xz`, `train.de.xz`, line by line, and `train.src.xz`, the source of each line;
and the first line of documentation strings from their body.
"""

import lzma
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from experiments.training import loop, pairs, tokenizer
from experiments.training.pairs import Bucket, Pair
from specjax.models import t5

PIECES, VOCAB = 6000, 6016  # rows are a multiple of 128
TRANSLATE, SUMMARIZE = "translate English to German: ", "summarize: "
LICENSED = ("tatoeba",)  # the sources of the folder that may be passed on
SEED = t5.Config(VOCAB, 256, 640, 3, 5, 4, 64, pieces=PIECES, dtype="bfloat16")
RECIPE = loop.Recipe(4500, 1700, rate=1e-2, warmup=300, optimizer="scaled")
SENTENCES = ((16, 12), (20, 16), (32, 24), (64, 48))  # lengths of inputs, targets
DOCUMENTS = ((96, 24), (128, 40))
READ = {"ende": 64, "docs": 128}  # the longest inputs
HELD_OUT = 1000  # sentences
SHARE = {"ende": 0.75, "docs": 0.25}  # of the steps
Sentences = list[tuple[str, str]]


class Coded(NamedTuple):
    """Pairs of ids by task, of one side: train or valid."""

    ende: list[Pair]
    docs: list[Pair]


def read_lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def sentences(folder: Path) -> Sentences:
    """The pairs that may be passed on, in the order of the files."""
    read = [read_lines(folder / f"train.{name}.xz") for name in ("en", "de", "src")]
    lines = zip(*read, strict=True)
    return [(en, de) for en, de, source in lines if source.startswith(LICENSED)]


def subwords(path: Path, texts) -> sentencepiece.SentencePieceProcessor:
    """Pieces of both sides of every group of `texts`; once, then from `path`."""
    if not path.exists():
        read = [side for group in texts for pair in group for side in pair]
        prefixes = [TRANSLATE, SUMMARIZE] * 2000  # often enough to be few pieces
        loop.replace(path, tokenizer.train_t5(read + prefixes, PIECES))
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def encode(pieces, texts: Sentences, prefix: str, longest: int) -> list[Pair]:
    """Both sides as ids, each ended by the end id; inputs are cut to `longest`."""
    sources = pieces.encode([prefix + source for source, _ in texts])
    targets = pieces.encode([target for _, target in texts])
    return [
        (source[: longest - 1] + [t5.END], target + [t5.END])
        for source, target in zip(sources, targets, strict=True)
    ]


def coded(pieces, listed: Sentences, docs: Sentences) -> Coded:
    ende = encode(pieces, listed, TRANSLATE, READ["ende"])
    return Coded(ende, encode(pieces, docs, SUMMARIZE, READ["docs"]))


def bucketed(texts: Coded, recipe: loop.Recipe) -> list[Bucket]:
    tokens = recipe.batch * recipe.length
    buckets = pairs.buckets(texts.ende, SENTENCES, tokens, SHARE["ende"])
    return buckets + pairs.buckets(texts.docs, DOCUMENTS, tokens, SHARE["docs"])


def batches(texts: Coded, recipe: loop.Recipe, count: int = 24) -> list[pairs.PairRows]:
    """The same held-out batches at every evaluation."""
    sample = pairs.sampler(bucketed(texts, recipe))
    return [sample((1, i)) for i in range(count)]


def train(folder: Path, texts: Coded, valid: Coded):
    """The weights, from nothing."""
    task = pairs.task(SEED, pairs.cross_entropy(SEED))
    sample = pairs.sampler(bucketed(texts, RECIPE))
    return loop.train(folder, task, sample, batches(valid, RECIPE), RECIPE)
