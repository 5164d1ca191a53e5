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

from experiments.training import beginnings, language, pipeline, tokenizer
from experiments.training.beginnings import Continued
from experiments.training.drafts import written
from experiments.training.texts import dialogues
from specjax import checkpoints, zoo
from specjax.models import llama


def main() -> None:
    """Runs every stage, then exports."""
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
    work, path = runs / "training", runs / "training" / "tokenizer.model"
    work.mkdir(parents=True, exist_ok=True)
    large, small = (pipeline.config(recipe, name) for name in ("large", "draft"))
    read = {side: dialogues.read(folder, side) for side in ("train", "valid")}
    documents = read["train"].documents
    pieces = tokenizer.keep(path, lambda: tokenizer.train(documents, large.vocab))
    sides = [
        language.stream(language.encode(pieces, it.documents)) for it in read.values()
    ]
    fixed = {name: (sides[1], count) for name, count in recipe["held_out"].items()}
    data = {"text": language.data(sides[0], fixed)}
    params = pipeline.run(work, pipeline.stages(recipe, "target"), data)
    export(runs / "target", large, params, work)
    target, plan = checkpoints.load(runs / "target"), Continued(**recipe["written"])
    lessons = beginnings.lessons(work / "draft", target, *sides, plan)
    data["lessons"] = written.data(lessons)
    draft = pipeline.run(work, pipeline.stages(recipe, "draft"), data)
    export(runs / "draft", small, draft, work)
    alphas = written.accepted(small, draft, lessons.held_out)
    about = {side: it.digest for side, it in read.items()}
    path = runs / "recipes.json"
    pipeline.save(path, work, recipe, text=about, held_out=alphas)
    print(f"{runs}: " + ", ".join(f"{name} {alphas[name]:.3f}" for name in alphas))


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
