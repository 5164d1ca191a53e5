"""Trains the T5 target: `python -m experiments.training.targets.t5 --pairs FOLDER`.

Two stages, see `stages`. Three tasks, of texts long enough to decode: English to
German, of unrelated sentences, joined until there are enough; correction of
documentation (`texts.correction`); and, as short as they are, its summaries. Sentences
are read from FOLDER as `experiments.training.zoo_t5` reads them; those of
`valid.tatoeba_valid.en.xz` and `.de.xz` there are held out of what is joined.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor

from experiments.training import loop, pairs, zoo_t5
from experiments.training.pairs import Bucket, Pair, PairRows
from experiments.training.targets import stages
from experiments.training.texts import correction, documentation, prose
from experiments.training.zoo_t5 import READ, SUMMARIZE, TRANSLATE, Coded
from specjax import checkpoints, zoo
from specjax.models import t5

SMALL = zoo_t5.TARGET._replace(dtype="float32")
LARGE = SMALL._replace(dim=512, mlp_dim=1408, decoder_layers=6, num_heads=8)
SCALED = loop.Recipe(2500, 0, batch=16, warmup=200, optimizer="scaled")
RECIPES = {
    "small": SCALED._replace(rate=7e-3),
    "grown": SCALED._replace(rate=5e-3, decay=600),
}
LEAST, MOST = 64, 112  # tokens of a target
SIZES = {  # lengths of inputs, targets
    "joined": ((96, 88), (128, 112)),
    "correct": ((96, 88), (144, 112)),
    "sentences": zoo_t5.SENTENCES,
    "docs": zoo_t5.DOCUMENTS,
}
SHARE = {"joined": 0.45, "correct": 0.35, "sentences": 0.05, "docs": 0.15}
ORDERS, SPOILED = 4, 3  # how often a sentence is joined, a passage spoilt
HELD_OUT_BATCHES = 6  # of the two new tasks; those of before are `zoo_t5.batches`
Texts = dict[str, list[Pair]]


def main() -> None:
    """Runs both stages."""
    parser = stages.parser(__doc__, RECIPES)
    parser.add_argument("--pairs", type=Path, required=True)
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    texts, valid = (
        load(options.runs / f"{side}.npz", options.pairs) for side in ("train", "valid")
    )
    data = stages.Data(pairs.sampler(bucketed(texts, SCALED)), held_out(valid, SCALED))
    growth = stages.Growth(SMALL, LARGE, bundled, task)
    stages.run(options.runs, growth, data, stages.chosen(options, RECIPES))


def subwords() -> SentencePieceProcessor:
    return SentencePieceProcessor(model_file=str(zoo.FOLDER / zoo.TOKENIZERS["t5"]))


def bundled() -> Any:
    """The weights that the first stage begins with."""
    return checkpoints.load("t5_target").params


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
    """Batches by task; `held_out` is what the bundled target was measured on."""
    before = Coded(texts["sentences"], texts["docs"])
    fixed = {"held_out": zoo_t5.batches(before, zoo_t5.TARGET_RECIPE)}
    for name in ("joined", "correct"):
        sample = pairs.sampler(bucketed({name: texts[name]}, recipe))
        fixed[name] = [sample((1, i)) for i in range(HELD_OUT_BATCHES)]
    return fixed


def load(path: Path, folder: Path) -> Texts:
    """The pairs of a side, train or valid, as ids: read once, then from `path`."""
    if not path.exists():
        texts = read(path.stem, folder)
        about = {name: len(listed) for name, listed in texts.items()}
        loop.replace(path.with_suffix(".json"), json.dumps(about, indent=1).encode())
        with path.with_suffix(".partial").open("wb") as file:
            np.savez_compressed(file, **packed(texts))
        path.with_suffix(".partial").replace(path)
    return unpacked(np.load(path))


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


def read(side: str, folder: Path) -> Texts:
    """Sentences and summaries as the bundled target had them; then the new tasks."""
    pieces, listed = subwords(), zoo_t5.sentences(folder)
    listed, docs = sides(listed)[side], documentation.pairs(side)
    to_join = listed if side == "train" else validation(folder)
    return {
        "joined": joined(pieces, to_join),
        "correct": corrections(pieces, passages(pieces, side)),
        "sentences": zoo_t5.encode(pieces, listed, TRANSLATE, READ["ende"]),
        "docs": zoo_t5.encode(pieces, docs, SUMMARIZE, READ["docs"]),
    }


def sides(listed: list) -> dict[str, list]:
    """As the bundled target was trained; the shortest sentences come first."""
    return {"train": listed[zoo_t5.HELD_OUT :], "valid": listed[: zoo_t5.HELD_OUT]}


def validation(folder: Path) -> list[tuple[str, str]]:
    """Sentences of any length, no English side of which is in the training files."""
    names = (f"valid.tatoeba_valid.{language}.xz" for language in ("en", "de"))
    return list(zip(*(zoo_t5.read_lines(folder / n) for n in names), strict=True))


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


if __name__ == "__main__":
    main()
