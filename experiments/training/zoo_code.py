"""Trains the bundled code models again, in hours on a CPU.

    python -m experiments.training.zoo_code

Stages, each resumable and skipped when done: the tokenizer; a small target, on the
standard library; the target, on more text, grown from it; what it writes; the draft,
distilled on that; the bigram table. What comes out of `runs/zoo` is copied into the
package with its recipe and its curves.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece

from experiments.training import language, loop, tokenizer
from experiments.training.drafts import code as drafts
from experiments.training.targets import code as targets
from experiments.training.targets import stages
from experiments.training.texts import corpus
from specjax import checkpoints, zoo
from specjax.drafters import ngram

VOCAB = 8192
SEED = targets.SMALL._replace(dtype="bfloat16")
SEED_RECIPE = loop.Recipe(steps=2700, decay=800, rate=2e-3)
SHIPPED = "hybrid", 0  # loss and seed of the draft's last stages
# The weight is the best of 0.5, 0.65, 0.75, 0.8, 0.85, 0.9 on held-out text.
BIGRAM = {"weight": 0.75, "add": 0.1, "places": 64}
CURVES = {
    "seed": "seed",
    "target, small": "target/small",
    "target, grown": "target/grown",
    "draft": "drafts/draft",
    "draft, {}".format(*SHIPPED): "drafts/{}_{}".format(*SHIPPED),
    "draft, longer": "drafts/{}_{}_longer".format(*SHIPPED),
}


def main() -> None:
    """Runs every stage, then exports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    stages.add_lengths(parser, targets.RECIPES)
    arguments = parser.parse_args()
    runs, export = arguments.runs, arguments.export
    runs.mkdir(parents=True, exist_ok=True)
    library = corpus.stdlib("train").documents
    pieces = subwords(runs / "tokenizer.model", library)
    text = targets.load(runs / "text.npz", pieces)
    recipes = stages.chosen(arguments, targets.RECIPES)
    first = seed(runs / "seed", pieces, library)
    large = targets.train(runs / "target", text, first, recipes)
    shutil.copy(runs / "tokenizer.model", export / "tokenizer.model")
    path = export / "code_target.safetensors"
    zoo.save(path, targets.LARGE, large, bits=8)
    draft = train_draft(runs / "drafts", path, text)
    zoo.save(export / "code_small.safetensors", drafts.DRAFT, draft, bits=8)
    coded = [[zoo.START, *ids, zoo.END] for ids in pieces.encode(library)]
    table = ngram.fit(coded, VOCAB, 2, **BIGRAM)
    zoo.save_ngrams(export / "bigram.safetensors", table)
    write_recipes(runs, export / "recipes.json", recipes)


def subwords(path: Path, documents: list[str]) -> sentencepiece.SentencePieceProcessor:
    if not path.exists():
        loop.replace(path, tokenizer.train(documents, VOCAB))
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def seed(folder: Path, pieces, library: list[str]) -> Callable[[], Any]:
    """Trains the target's first weights, small, on the standard library alone, when
    they are asked for."""

    def train() -> Any:
        valid = corpus.stdlib("valid").documents
        data, held_out = (targets.coded(pieces, read) for read in (library, valid))
        task = language.task(SEED, language.next_token_loss(SEED))
        return language.train(folder, task, data, held_out, SEED_RECIPE)

    return train


def train_draft(runs: Path, target: Path, text: targets.Text) -> Any:
    """By KL, then twice by the loss that ships, of the target as it is stored."""
    texts = drafts.read(runs, checkpoints.load(target), text)
    first = drafts.distilled(runs, texts)
    after = drafts.continued(runs, texts, first, *SHIPPED)
    return drafts.longer(runs, texts, after, *SHIPPED)


def write_recipes(runs: Path, path: Path, recipes: stages.Recipes) -> None:
    """How the models were made, and their curves, in one file beside the weights."""
    about = json.loads((runs / "text.json").read_text())
    loss, order = SHIPPED
    content = {
        "text": f"functions in the library of Python {about['python']}"
        " and in the packages below",
        "documents": about,
        "code_target": {
            "config": targets.LARGE._asdict(),
            "seed": {"config": SEED._asdict(), "recipe": SEED_RECIPE._asdict()},
            "small": {
                "config": targets.SMALL._asdict(),
                "recipe": recipes["small"]._asdict(),
            },
            "grown": recipes["grown"]._asdict(),
        },
        "code_small": {
            "config": drafts.DRAFT._asdict(),
            "text": f"{drafts.GREEDY} texts that code_target wrote at T = 0,"
            f" {drafts.SAMPLED} at T = 1, and {drafts.READ} that it read, with its law"
            " at every token",
            "kl": drafts.KL._asdict(),
            loss: drafts.after(order)._asdict(),
            f"{loss}_longer": drafts.LONGER._asdict(),
        },
        "bigram": BIGRAM,
        "curves": loop.curves(runs, CURVES),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
