"""Trains a draft for SmolLM2-135M-Instruct on that model's own answers: hours on a CPU.

    specjax fetch smollm2
    python -m experiments.training.zoo_smollm2 --data FOLDER

FOLDER holds the questions, as `texts.questions` reads them. Stages, each resumable and
skipped when done: what the target answers, with its law at every token; which ids the
draft says; the draft, which begins as layers of its target and learns from the answers.
`--write K/N` does no more than every N-th batch of answers, from the K-th on: N such
processes write side by side. What comes out of `runs/smollm2` is copied into the
package with its recipe and its curves.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.training import loop, pipeline
from experiments.training.drafts import asked, some_ids, written
from experiments.training.drafts.answers import Plan
from experiments.training.drafts.some_ids import Lesson
from experiments.training.drafts.written import Written
from experiments.training.pipeline import Data, Stage
from experiments.training.texts import questions
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained, reduced
from specjax.models.reduced import Reduction

TARGET, DRAFT = "smollm2", "smollm2_draft"


def main() -> None:
    recipe = pipeline.read("smollm2")
    parser = pipeline.parser(__doc__, "runs/smollm2", recipe)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--batches", type=int, default=recipe["asked"]["batches"])
    parser.add_argument("--write", metavar="K/N")
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    options = parser.parse_args()
    recipe = pipeline.chosen(options, recipe)
    recipe["asked"]["batches"] = options.batches
    try:
        target = checkpoints.load(TARGET)
        target = target._replace(tokenizer_file=target.files[0])
        part = tuple(map(int, options.write.split("/"))) if options.write else (0, 1)
        batches = answered(target, options.data, options.runs, recipe, part)
        if not options.write:
            train(target, batches, options.runs, options.export, recipe)
    except ValueError as error:
        parser.error(str(error))


def answered(
    target: Pretrained, data: Path, runs: Path, recipe: dict, part: tuple = (0, 1)
) -> list[Written]:
    """What the target answers, batch by batch."""
    plan = Plan(**recipe["answers"])
    ours = ("held_out", "first")
    sizes = {k: v for k, v in recipe["asked"].items() if k not in ours}
    asking = asked.Asking(plan=plan, **sizes)
    return asked.write(target, questions.read(data), asking, runs / "answers", part)


def train(
    target: Pretrained, batches: list[Written], runs: Path, export: Path, recipe: dict
) -> None:
    """The draft, into `export`. The first batches are held out; its ids are the most
    frequent ones of `first` batches, from which it learns before it does from all."""
    asked, whole = recipe["asked"], target.model.vocab
    apart, first = asked["held_out"], batches[asked["held_out"] : asked["first"]]
    ids = some_ids.frequent(first, recipe["models"]["draft"]["vocab"], whole)
    named = [some_ids.among(it, ids, whole) for it in batches]
    embedding = target.params["embedding"]

    def lesson(part: Written, index: np.ndarray) -> Lesson:
        return Lesson(part.rows(index), embedding)

    held_out = [lesson(it, np.arange(len(it.ids))) for it in named[:apart]]

    def data(learnt: Written, stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Lesson:
            size, rng = stage.recipe.batch, np.random.default_rng(seed)
            return lesson(learnt, rng.integers(len(learnt.ids), size=size))

        loss = partial(some_ids.distillation, stage.loss)
        return Data(batch, {"held_out": held_out}, loss, about(target, learnt, ids))

    parts = {"first": named[apart : asked["first"]], "answers": named[apart:]}
    texts = {name: partial(data, written.join(part)) for name, part in parts.items()}
    rotation = target.config.rotation
    stages = [
        stage._replace(
            config=stage.config._replace(
                rotation=rotation, local=tuple(stage.config.local)
            )
        )
        for stage in pipeline.stages(recipe)
    ]
    config = stages[-1].config
    begun = some_ids.pruned(config, recipe["first_layers"], target.params, ids)
    params = pipeline.run(runs, stages, texts, begun)
    alphas = some_ids.accepted(config, params, held_out)
    reduced.save(export / f"{DRAFT}.safetensors", Reduction(config, params, ids))
    tokens = sum(int((it.texts.length - it.texts.begun).sum()) for it in batches)
    print(f"{tokens} tokens of answers: {alphas}")
    pipeline.save(
        export / f"{DRAFT}.json", runs, recipe, tokens=tokens, held_out=alphas
    )


def about(target: Pretrained, learnt: Written, ids: np.ndarray) -> dict[str, Any]:
    """JSON, what tells runs apart besides their recipe."""
    digests = {"target": target.params, "answers": learnt.texts._asdict(), "ids": ids}
    return {
        name: loop.digest(jax.tree.map(np.asarray, x)) for name, x in digests.items()
    }


if __name__ == "__main__":
    main()
