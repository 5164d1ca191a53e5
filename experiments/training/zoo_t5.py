"""Trains the bundled T5 family again.

    python -m experiments.training.zoo_t5 --pairs FOLDER

A target and three drafts, small, base and large in the spirit of Leviathan et al.
(2023), 4.1, for two tasks: English to German on sentences of Tatoeba (CC BY 2.0 FR),
read from FOLDER as `train.en.xz`, `train.de.xz`, line by line, and `train.src.xz`, the
source of each line; and the first line of documentation strings from their body.
Stages, each resumable and skipped when done: tokenizer, target, what the target writes,
drafts. Hours on a CPU.
"""

import argparse
import hashlib
import json
import lzma
import platform
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece
from tqdm import tqdm

from experiments.training import counts, language, loop, pairs, tokenizer
from experiments.training.pairs import Bucket, Pair
from experiments.training.texts import documentation
from specjax import generate, zoo
from specjax.inputs import make_request, make_sampling
from specjax.models import gpt, t5
from specjax.types import Params, Prompt

PIECES, VOCAB = 6000, 6016  # rows are a multiple of 128
TRANSLATE, SUMMARIZE = "translate English to German: ", "summarize: "
LICENSED = ("tatoeba",)  # the sources of FOLDER that may be passed on
TARGET = t5.Config(VOCAB, 256, 640, 3, 5, 4, 64, pieces=PIECES, dtype="bfloat16")
DRAFTS = {
    "t5_small": t5.Config(VOCAB, 48, 128, 1, 1, 3, 16, pieces=PIECES),
    "t5_base": t5.Config(VOCAB, 96, 256, 1, 2, 3, 32, pieces=PIECES),
    "t5_large": t5.Config(VOCAB, 128, 352, 2, 3, 4, 32, pieces=PIECES),
}
DECODER = gpt.Config(VOCAB, 64, 256, 2, 2)
SENTENCES = ((16, 12), (20, 16), (32, 24), (64, 48))  # lengths of inputs, targets
DOCUMENTS = ((96, 24), (128, 40))
READ = {"ende": 64, "docs": 128}  # the longest inputs
HELD_OUT = 1000  # sentences
SHARE = {"ende": 0.75, "docs": 0.25}  # of the steps
TARGET_RECIPE = loop.Recipe(4500, 1700, rate=1e-2, warmup=300, optimizer="scaled")
DRAFT_RECIPES = {
    "t5_small": loop.Recipe(3000, 1000, rate=2e-2, warmup=200, optimizer="scaled"),
    "t5_base": loop.Recipe(2500, 900, rate=2e-2, warmup=200, optimizer="scaled"),
    "t5_large": loop.Recipe(2500, 900, rate=2e-2, warmup=200, optimizer="scaled"),
}
DECODER_RECIPE = loop.Recipe(1500, 500, rate=6e-3, weight_decay=0.0)
WRITTEN = {"ende": (40_000, 24), "docs": (4_000, 32)}  # texts, their longest


class Coded(NamedTuple):
    """Pairs of ids by task, of one side: train or valid."""

    ende: list[Pair]
    docs: list[Pair]


def main() -> None:
    """Runs every stage, then exports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo_t5"))
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    arguments = parser.parse_args()
    runs, export = arguments.runs, arguments.export
    runs.mkdir(parents=True, exist_ok=True)
    texts = sentences(arguments.pairs), documentation.pairs("train")
    held_out = documentation.pairs("valid")
    pieces = subwords(runs / "tokenizer.model", texts)
    coded = Coded(
        encode(pieces, texts[0][HELD_OUT:], TRANSLATE, READ["ende"]),
        encode(pieces, texts[1], SUMMARIZE, READ["docs"]),
    )
    valid = Coded(
        encode(pieces, texts[0][:HELD_OUT], TRANSLATE, READ["ende"]),
        encode(pieces, held_out, SUMMARIZE, READ["docs"]),
    )
    target = train_target(runs, coded, valid)
    written = write(runs / "written.npz", target, coded)
    drafts = {
        name: train_draft(runs / name, config, DRAFT_RECIPES[name], target, written)
        for name, config in DRAFTS.items()
    }
    decoder = train_decoder(runs / "t5_decoder", target, written)
    table = counts.fit([target for group in coded for _, target in group], VOCAB)
    zoo.save_ngrams(export / "t5_bigram.safetensors", table)
    (export / "t5.model").write_bytes((runs / "tokenizer.model").read_bytes())
    zoo.save(export / "t5_target.safetensors", TARGET, target)
    for name, params in drafts.items():
        zoo.save(export / f"{name}.safetensors", DRAFTS[name], params)
    zoo.save(export / "t5_decoder.safetensors", DECODER, decoder)
    write_recipes(runs, export / "t5_recipes.json", texts)


def read_lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def sentences(folder: Path) -> list[tuple[str, str]]:
    """The pairs that may be passed on, in the order of the files."""
    read = [read_lines(folder / f"train.{name}.xz") for name in ("en", "de", "src")]
    lines = zip(*read, strict=True)
    return [(en, de) for en, de, source in lines if source.startswith(LICENSED)]


def subwords(path: Path, texts) -> sentencepiece.SentencePieceProcessor:
    if not path.exists():
        read = [side for group in texts for pair in group for side in pair]
        prefixes = [TRANSLATE, SUMMARIZE] * 2000  # often enough to be few pieces
        loop.replace(path, tokenizer.train_t5(read + prefixes, PIECES))
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def encode(pieces, texts: list[tuple[str, str]], prefix: str, longest: int):
    """Both sides as ids, each ended by the end id; inputs are cut to `longest`."""
    sources = pieces.encode([prefix + source for source, _ in texts])
    targets = pieces.encode([target for _, target in texts])
    return [
        (source[: longest - 1] + [t5.END], target + [t5.END])
        for source, target in zip(sources, targets, strict=True)
    ]


def bucketed(coded: Coded, recipe: loop.Recipe) -> list[Bucket]:
    tokens = recipe.batch * recipe.length
    buckets = pairs.buckets(coded.ende, SENTENCES, tokens, SHARE["ende"])
    return buckets + pairs.buckets(coded.docs, DOCUMENTS, tokens, SHARE["docs"])


def batches(coded: Coded, recipe: loop.Recipe, count: int = 24) -> list[pairs.PairRows]:
    """The same held-out batches at every evaluation."""
    sample = pairs.sampler(bucketed(coded, recipe))
    return [sample((1, i)) for i in range(count)]


def train_target(runs: Path, coded: Coded, valid: Coded):
    """The target, on the pairs themselves."""
    recipe, task = TARGET_RECIPE, pairs.task(TARGET, pairs.cross_entropy(TARGET))
    sample = pairs.sampler(bucketed(coded, recipe))
    folder = runs / "t5_target"
    return loop.train(folder, task, sample, batches(valid, recipe), recipe)


def write(path: Path, params, coded: Coded) -> Coded:
    """Inputs with what the target writes, in turns at T = 1 and T = 0."""
    if not path.exists():
        arrays = {
            name: continued(params, getattr(coded, name)[: WRITTEN[name][0]], name)
            for name in Coded._fields
        }
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, **arrays)
        partial.replace(path)
    read = np.load(path)
    return Coded(*(joined(getattr(coded, name), read[name]) for name in Coded._fields))


def joined(coded: list[Pair], rows: np.ndarray) -> list[Pair]:
    chosen = zip(coded[: len(rows)], rows, strict=True)
    return [(source, trimmed(row)) for (source, _), row in chosen]


def trimmed(row: np.ndarray) -> list[int]:
    """A written text without the start id and what follows its end."""
    ids = row[1:].tolist()
    return ids[: ids.index(t5.END) + 1] if t5.END in ids else ids


def continued(params, chosen: list[Pair], name: str, batch: int = 64) -> np.ndarray:
    """[N, L]: a text for each input, from the start id on."""
    longest, model = WRITTEN[name][1], t5.build(TARGET)
    run = generate.autoregressive(model, longest + 2)
    sampling = make_sampling(batch, 1.0)
    sampling = sampling._replace(temperature=jnp.arange(batch) % 2 * 1.0)
    rows = []
    for at in tqdm(range(0, len(chosen), batch), desc=f"texts, {name}"):
        sources = [source for source, _ in chosen[at : at + batch]]
        sources += [[t5.END]] * (batch - len(sources))
        read = pairs.pad([(source, []) for source in sources], READ[name], 1)
        start = jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32)
        prompt = Prompt(*start, (jnp.asarray(read.inputs), jnp.asarray(read.length)))
        key = jax.random.key(at)
        request = make_request(key, prompt, longest, sampling, t5.END)
        rows.append(np.asarray(run(Params(params), prompt, request).tokens, np.uint16))
    return np.concatenate(rows)[: len(chosen), : longest + 1]


def train_draft(
    folder: Path, config: t5.Config, recipe: loop.Recipe, target, written: Coded
):
    """A draft, distilled (forward KL) on what the target wrote."""
    draft = partial(pairs.logits_of, config)
    task = pairs.task(config, pairs.distillation(draft, TARGET, target))
    return distilled(folder, task, recipe, written)


def train_decoder(folder: Path, target, written: Coded):
    """A draft that sees what was written and not what was read, distilled alike."""

    def draft(params, rows: pairs.PairRows):
        return language.logits_of(DECODER, params, rows.tokens)

    loss = pairs.distillation(draft, TARGET, target)
    return distilled(folder, language.task(DECODER, loss), DECODER_RECIPE, written)


def distilled(folder: Path, task: loop.Task, recipe: loop.Recipe, written: Coded):
    valid = Coded(*(group[:500] for group in written))
    read = Coded(*(group[500:] for group in written))
    sample = pairs.sampler(bucketed(read, recipe))
    return loop.train(folder, task, sample, batches(valid, recipe), recipe)


def write_recipes(runs: Path, path: Path, texts) -> None:
    """How the models were made, and their curves, in one file beside the weights."""
    configs = {"t5_target": TARGET, **DRAFTS, "t5_decoder": DECODER}
    recipes = {"t5_target": TARGET_RECIPE, **DRAFT_RECIPES}
    recipes["t5_decoder"] = DECODER_RECIPE
    content = {
        "text": {
            "ende": f"{len(texts[0])} sentence pairs of Tatoeba, CC BY 2.0 FR,"
            " tatoeba.org and manythings.org/anki",
            "docs": f"{len(texts[1])} documentation strings of Python"
            f" {platform.python_version()} and {', '.join(documentation.PACKAGES)}",
            "sha256": [digest(group) for group in texts],
        },
        "configs": {name: config._asdict() for name, config in configs.items()},
        "recipes": {name: recipe._asdict() for name, recipe in recipes.items()},
        "drafts": f"forward KL to the target on {WRITTEN} texts that it wrote,"
        " half at T = 1, half at T = 0",
        "curves": {
            name: [json.loads(line) for line in (runs / name / "curve.jsonl").open()]
            for name in configs
        },
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def digest(texts: list[tuple[str, str]]) -> str:
    text = "\0".join(side for pair in texts for side in pair)
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()
