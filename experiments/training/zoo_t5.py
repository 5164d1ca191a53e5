"""Trains the bundled T5 family again.

    python -m experiments.training.zoo_t5 --pairs FOLDER

A target and three drafts, small, base and large in the spirit of Leviathan et al.
(2023), 4.1, and a decoder alone; for the tasks of `targets.t5`, whose sentences are
read from FOLDER. Stages, each resumable and skipped when done: the tokenizer; a small
target; the target, grown from it; what it writes; the drafts; the counts. Hours on a
CPU.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from experiments.training import counts, loop
from experiments.training.drafts import copying
from experiments.training.drafts import t5 as drafts
from experiments.training.targets import stages, t5_seed
from experiments.training.targets import t5 as targets
from experiments.training.targets.t5_seed import HELD_OUT, VOCAB, Sentences
from experiments.training.texts import documentation
from specjax import checkpoints, zoo

SHIPPED = "hybrid"  # loss of the drafts' last stages
CURVES = {
    "seed": "seed",
    "target, small": "target/small",
    "target, grown": "target/grown",
}
CURVES |= {f"{name}, copying": f"drafts/{name}_copying" for name in drafts.DRAFTS}
CURVES |= {name: f"drafts/{name}" for name in drafts.DRAFTS}
CURVES |= {
    f"{name}, {stage}": f"drafts/{name}_{stage}"
    for name in drafts.DRAFTS
    for stage in drafts.after(name, SHIPPED)
}


def main() -> None:
    """Runs every stage, then exports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo_t5"))
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    stages.add_lengths(parser, targets.RECIPES)
    arguments = parser.parse_args()
    runs, export = arguments.runs, arguments.export
    runs.mkdir(parents=True, exist_ok=True)
    texts = t5_seed.sentences(arguments.pairs), documentation.pairs("train")
    pieces = t5_seed.subwords(runs / "tokenizer.model", texts)
    train, valid = (
        targets.load(runs / f"{side}.npz", pieces, arguments.pairs)
        for side in ("train", "valid")
    )
    recipes = stages.chosen(arguments, targets.RECIPES)
    first = partial(seed, runs / "seed", pieces, texts)
    large = targets.train(runs / "target", train, valid, first, recipes)
    path = export / "t5_target.safetensors"
    zoo.save(path, targets.LARGE, large, bits=8)
    (export / "t5.model").write_bytes((runs / "tokenizer.model").read_bytes())

    written = drafts.read(runs / "drafts", checkpoints.load(path), train, valid)
    for name, config in drafts.DRAFTS.items():
        begun = drafts.distilled(runs / "drafts", name, written)
        params = drafts.continued(runs / "drafts", name, written, begun, SHIPPED)
        zoo.save(export / f"{name}.safetensors", config, params, bits=8)
    targets_of = [target.tolist() for group in train.values() for _, target in group]
    table = counts.fit(targets_of, VOCAB)
    zoo.save_ngrams(export / "t5_bigram.safetensors", table)
    write_recipes(runs, export / "t5_recipes.json", recipes)


def seed(folder: Path, pieces, texts: tuple[Sentences, Sentences]) -> Any:
    """The target's first weights, trained when they are asked for."""
    listed, docs = texts
    train = t5_seed.coded(pieces, listed[HELD_OUT:], docs)
    valid = t5_seed.coded(pieces, listed[:HELD_OUT], documentation.pairs("valid"))
    return t5_seed.train(folder, train, valid)


def write_recipes(runs: Path, path: Path, recipes: stages.Recipes) -> None:
    """How the models were made, and their curves, in one file beside the weights."""
    content = {
        "text": {
            "sentences": "pairs of Tatoeba, CC BY 2.0 FR, tatoeba.org and"
            " manythings.org/anki; joined, several of them",
            "docs": "documentation strings of Python and of"
            f" {', '.join(documentation.PACKAGES)}",
            "correct": "prose of documentation of Python and of all packages below",
            **{
                side: json.loads((runs / f"{side}.json").read_text())
                for side in ("train", "valid")
            },
        },
        "t5_target": {
            "config": targets.LARGE._asdict(),
            "seed": {
                "config": t5_seed.SEED._asdict(),
                "recipe": t5_seed.RECIPE._asdict(),
            },
            "small": {
                "config": targets.SMALL._asdict(),
                "recipe": recipes["small"]._asdict(),
            },
            "grown": recipes["grown"]._asdict(),
        },
        "drafts": {
            name: {"config": config._asdict(), **draft_stages(name)}
            for name, config in drafts.DRAFTS.items()
        },
        "copying": copying.RECIPE._asdict(),
        "written": {name: part._asdict() for name, part in drafts.PARTS.items()},
        "t5_bigram": counts.COUNTS,
        "curves": loop.curves(runs, CURVES),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def draft_stages(name: str) -> dict[str, dict]:
    """Every recipe of a draft after it has learnt to copy, in their order."""
    recipes = {"kl": drafts.KL[name], **drafts.after(name, SHIPPED)}
    return {stage: recipe._asdict() for stage, recipe in recipes.items()}


if __name__ == "__main__":
    main()
