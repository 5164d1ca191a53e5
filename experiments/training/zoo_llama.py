"""Trains a pair of Llama's kind on dialogues that the user has; a CPU will do.

    python -m experiments.training.zoo_llama --dialogues FOLDER

FOLDER holds DialogSum and SAMSum as `texts.dialogues` reads them. Stages, each
resumable and skipped when done: the tokenizer; a small target; the target, grown from
it; the draft, which reads the same dialogues, then learns from what the target writes.
The licences of the dialogues keep the pair from being bundled: two folders of Hugging
Face come out, `runs/llama/target` and `runs/llama/draft`, with how they were made in
`runs/llama/recipes.json`.
"""

import shutil
from pathlib import Path
from typing import Any

from experiments.training import language, pipeline, tokenizer
from experiments.training.texts import dialogues
from specjax import checkpoints, zoo
from specjax.models import llama


def main() -> None:
    recipe = pipeline.read("llama")
    parser = pipeline.parser(__doc__, "runs/llama", recipe)
    parser.add_argument("--dialogues", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--texts", type=int, default=recipe["written"]["greedy"])
    options = parser.parse_args()
    recipe = pipeline.chosen(options, recipe)
    recipe["written"] |= {"greedy": options.texts, "sampled": options.texts}
    try:
        train(options.dialogues, options.runs, recipe)
    except ValueError as error:
        parser.error(str(error))


def train(folder: Path, runs: Path, recipe: dict) -> None:
    """The pair, into `runs`; what it was made from goes into `runs/training`."""
    work = runs / "training"
    work.mkdir(parents=True, exist_ok=True)
    path, vocab = work / "tokenizer.model", recipe["models"]["large"]["vocab"]
    read = {side: dialogues.read(folder, side) for side in ("train", "valid")}
    documents = read["train"].documents
    pieces = tokenizer.keep(path, lambda: tokenizer.train(documents, vocab))
    coded = (language.encode(pieces, it.documents) for it in read.values())
    train, valid = map(language.stream, coded)
    fixed = {name: (valid, count) for name, count in recipe["held_out"].items()}
    data = {"text": language.data(train, fixed)}

    def export(side: str, config: llama.Config, params: Any) -> Path:
        """A folder of Hugging Face with its tokenizer, in the place of an older one."""
        fresh, there = work / side / "export", runs / side
        shutil.rmtree(fresh, ignore_errors=True)
        kept = side, config, llama.build(config), params
        whole = checkpoints.Pretrained(*kept, start=zoo.START, ends=(zoo.END,))
        checkpoints.save(fresh, whole)
        shutil.copy(path, fresh)
        shutil.rmtree(there, ignore_errors=True)
        return fresh.rename(there)

    alphas = language.pair(work, recipe, data, (train, valid), export)
    about = {side: it.digest for side, it in read.items()}
    made = runs / "recipes.json"
    pipeline.save(made, work, recipe, text=about, held_out=alphas)
    print(f"{runs}: " + ", ".join(f"{name} {alphas[name]:.3f}" for name in alphas))


if __name__ == "__main__":
    pipeline.command(main)
