"""The T5 target: a small one learns on for three tasks, and is grown.

Two stages, see `stages`. Tasks of texts long enough to decode: English to German, of
unrelated sentences, joined until there are enough; correction of documentation
(`texts.correction`); and, as short as they are, its summaries. Sentences are read as
`t5_seed` reads them; those of `valid.tatoeba_valid.en.xz` and `.de.xz` of the same
folder are held out of what is joined.
"""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.training import loop, pairs
from experiments.training.pairs import Bucket, Pair, PairRows
from experiments.training.targets import stages, t5_seed
from experiments.training.targets.t5_seed import READ, SUMMARIZE, TRANSLATE, Coded
from experiments.training.texts import correction, documentation, packages, prose
from specjax.models import t5

SMALL = t5_seed.SEED._replace(dtype="float32")
LARGE = SMALL._replace(dim=512, mlp_dim=1408, decoder_layers=6, num_heads=8)
SCALED = loop.Recipe(2000, 0, batch=16, warmup=200, optimizer="scaled")
RECIPES = {
    "small": SCALED._replace(rate=7e-3),
    "grown": SCALED._replace(steps=1400, decay=450, rate=5e-3),
}
LEAST, MOST = 64, 112  # tokens of a target
SIZES = {  # lengths of inputs, targets
    "joined": ((96, 88), (128, 112)),
    "correct": ((96, 88), (144, 112)),
    "sentences": t5_seed.SENTENCES,
    "docs": t5_seed.DOCUMENTS,
}
SHARE = {"joined": 0.45, "correct": 0.35, "sentences": 0.05, "docs": 0.15}
ORDERS, SPOILED = 4, 3  # how often a sentence is joined, a passage spoilt
HELD_OUT_BATCHES = 6  # of the two new tasks; those of before are `t5_seed.batches`
Texts = dict[str, list[Pair]]


def train(
    runs: Path,
    texts: Texts,
    valid: Texts,
    first: Callable[[], Any],
    recipes: stages.Recipes,
) -> Any:
    """Runs both stages, from the weights that `first` gives; returns the grown ones."""
    sample = pairs.sampler(bucketed(texts, SCALED))
    data = stages.Data(sample, held_out(valid, SCALED))
    return stages.run(runs, stages.Growth(SMALL, LARGE, first, task), data, recipes)


def task(config: t5.Config) -> loop.Task:
    return pairs.task(config, pairs.cross_entropy(config))


def bucketed(texts: Texts, recipe: loop.Recipe) -> list[Bucket]:
    tokens = recipe.batch * recipe.length
    return [
        bucket
        for name, listed in texts.items()
        for bucket in pairs.buckets(listed, SIZES[name], tokens, SHARE[name])
    ]


def held_out(texts: Texts, recipe: loop.Recipe) -> dict[str, list[PairRows]]:
    """Batches by task; `held_out` is what the first weights were measured on."""
    before = Coded(texts["sentences"], texts["docs"])
    fixed = {"held_out": t5_seed.batches(before, t5_seed.RECIPE)}
    for name in ("joined", "correct"):
        sample = pairs.sampler(bucketed({name: texts[name]}, recipe))
        fixed[name] = [sample((1, i)) for i in range(HELD_OUT_BATCHES)]
    return fixed


def load(path: Path, pieces, folder: Path) -> Texts:
    """The pairs of a side, train or valid, as ids: read once, then from `path`. A JSON
    file beside it says what they are (`about`)."""
    if not path.exists():
        texts = read(path.stem, pieces, folder)
        content = json.dumps(about(texts), indent=1)
        loop.replace(path.with_suffix(".json"), content.encode())
        with path.with_suffix(".partial").open("wb") as file:
            np.savez_compressed(file, **packed(texts))
        path.with_suffix(".partial").replace(path)
    return unpacked(np.load(path))


def about(texts: Texts) -> dict:
    """JSON: how many pairs each task has, with their sha256, and what was read."""
    return {
        "python": platform.python_version(),
        "pairs": {name: [len(x), pairs.digest(x)] for name, x in texts.items()},
        "licences": packages.versions(),
    }


def packed(texts: Texts) -> dict[str, np.ndarray]:
    """Each task's ids end to end, and how long each part is: source, target, ..."""
    flat = {}
    for name, listed in texts.items():
        parts = [part for pair in listed for part in pair]
        flat[f"{name}_ids"] = np.concatenate(parts).astype(np.uint16)
        flat[f"{name}_lengths"] = np.array([len(part) for part in parts], np.uint16)
    return flat


def unpacked(flat) -> Texts:
    texts = {}
    for name in SIZES:
        ids, ends = flat[f"{name}_ids"], np.cumsum(flat[f"{name}_lengths"].astype(int))
        parts = np.split(ids, ends[:-1])
        texts[name] = list(zip(parts[::2], parts[1::2], strict=True))
    return texts


def read(side: str, pieces, folder: Path) -> Texts:
    """Sentences and summaries as the first weights had them; then the new tasks."""
    listed, docs = sides(t5_seed.sentences(folder))[side], documentation.pairs(side)
    to_join = listed if side == "train" else validation(folder)
    return {
        "joined": joined(pieces, to_join),
        "correct": corrections(pieces, passages(pieces, side)),
        "sentences": t5_seed.encode(pieces, listed, TRANSLATE, READ["ende"]),
        "docs": t5_seed.encode(pieces, docs, SUMMARIZE, READ["docs"]),
    }


def sides(listed: list) -> dict[str, list]:
    """As the first weights had them; the shortest sentences come first."""
    held_out = t5_seed.HELD_OUT
    return {"train": listed[held_out:], "valid": listed[:held_out]}


def validation(folder: Path) -> list[tuple[str, str]]:
    """Sentences of any length, no English side of which is in the training files."""
    names = (f"valid.tatoeba_valid.{language}.xz" for language in ("en", "de"))
    return list(zip(*(t5_seed.read_lines(folder / n) for n in names), strict=True))


def joined(pieces, sentences: list[tuple[str, str]]) -> list[Pair]:
    """Sentences in several random orders, as many at a time as make a long target."""
    sources = pieces.encode([source for source, _ in sentences])
    targets = pieces.encode([target for _, target in sentences])
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
    """Prose of one side. What is read for training has no sentence that is held out."""
    apart = (
        []
        if side != "train"
        else [
            sentence
            for other in ("valid", "test")
            for file in prose.read(other)
            for sentence in file
        ]
    )

    def length(text: str) -> int:
        return len(pieces.encode(text))

    return prose.passages(prose.read(side, apart), length, LEAST, MOST - 1)


def corrections(pieces, texts: list[str]) -> list[Pair]:
    """Each passage with several spoilings, of which no two are by the same seed."""
    targets, spoilt = pieces.encode(texts), []
    for again in range(SPOILED):
        spoiled = [
            correction.PREFIX + correction.spoil(text, again * len(texts) + i)
            for i, text in enumerate(texts)
        ]
        for source, target in zip(pieces.encode(spoiled), targets, strict=True):
            spoilt.append(([*source, t5.END], [*target, t5.END]))
    return spoilt
