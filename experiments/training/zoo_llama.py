"""Trains a pair of Llama's kind on dialogues that the user has; a CPU will do.

    python -m experiments.training.zoo_llama --dialogues FOLDER

FOLDER holds DialogSum and SAMSum as `texts.dialogues` reads them. Stages, each
resumable and skipped when done: the tokenizer; a small target; the target, grown from
it; the draft, which reads the same dialogues, then learns from what the target writes.
The licences of the dialogues keep the pair from being bundled: two folders of Hugging
Face come out, `runs/llama/target` and `runs/llama/draft`, with how they were made in
`runs/llama/recipes.json`.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import sentencepiece

from experiments.training import loop, tokenizer
from experiments.training.drafts import dialogues as drafts
from experiments.training.targets import dialogues as targets
from experiments.training.targets import stages
from experiments.training.texts import dialogues
from specjax import checkpoints, zoo
from specjax.models import llama

RECIPES = {**targets.RECIPES, **drafts.RECIPES}
CURVES = {
    "target, small": "target/small",
    "target, grown": "target/grown",
    "draft": "draft/read",
    "draft, kl": "draft/kl",
    "draft, hybrid": "draft/hybrid",
}


def main() -> None:
    """Runs every stage, then exports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dialogues", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--runs", type=Path, default=Path("runs/llama"))
    parser.add_argument("--texts", type=int, default=drafts.TEXTS)
    stages.add_lengths(parser, RECIPES)
    arguments = parser.parse_args()
    try:
        train(
            arguments.dialogues,
            arguments.runs,
            stages.chosen(arguments, RECIPES),
            arguments.texts,
        )
    except ValueError as error:
        parser.error(str(error))


def train(
    folder: Path, runs: Path, recipes: dict[str, loop.Recipe], texts: int
) -> None:
    """The pair, into `runs`; what it was made from goes into `runs/training`."""
    work = runs / "training"
    work.mkdir(parents=True, exist_ok=True)
    pieces = subwords(work / "tokenizer.model", folder)
    text = targets.load(folder, pieces)
    large = targets.train(work / "target", text, recipes)
    export(runs / "target", targets.LARGE, large, work)
    target = checkpoints.load(runs / "target")
    draft, alphas = drafts.train(work / "draft", target, text, recipes, texts)
    export(runs / "draft", drafts.DRAFT, draft, work)
    content = {
        "text": {
            side: dialogues.read(folder, side).digest for side in ("train", "valid")
        },
        "target": targets.LARGE._asdict(),
        "draft": drafts.DRAFT._asdict(),
        "texts": texts,
        "recipes": {name: recipe._asdict() for name, recipe in recipes.items()},
        "held_out": alphas,
        "curves": loop.curves(work, CURVES),
    }
    written = json.dumps(content, indent=1) + "\n"
    loop.replace(runs / "recipes.json", written.encode())
    print(f"{runs}: " + ", ".join(f"{name} {alphas[name]:.3f}" for name in alphas))


def subwords(path: Path, folder: Path) -> sentencepiece.SentencePieceProcessor:
    """The tokenizer, trained on the dialogues unless it is there."""
    if not path.exists():
        documents = dialogues.read(folder, "train").documents
        loop.replace(path, tokenizer.train(documents, targets.VOCAB))
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def export(folder: Path, config: llama.Config, params: Any, work: Path) -> None:
    """A folder of Hugging Face with its tokenizer, in the place of an older one."""
    fresh = work / folder.name / "export"
    shutil.rmtree(fresh, ignore_errors=True)
    kept = folder.name, config, llama.build(config), params
    whole = checkpoints.Pretrained(*kept, start=zoo.START, ends=(zoo.END,))
    checkpoints.save(fresh, whole)
    shutil.copy(work / "tokenizer.model", fresh)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


if __name__ == "__main__":
    main()
