"""A draft of some ids for a target that was fetched, from what that target wrote."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.training import loop, pipeline
from experiments.training.drafts import some_ids, written
from experiments.training.drafts.some_ids import Lesson
from experiments.training.drafts.written import Written
from experiments.training.pipeline import Data, Stage
from specjax.checkpoints import Pretrained, reduced
from specjax.models.reduced import Reduction, table_of


def train(
    target: Pretrained,
    batches: Sequence[Written],
    apart: int,
    stages: Sequence[Stage],
    runs: Path,
    path: Path,
    recipe: dict,
) -> None:
    """Writes the draft to `path`, and its recipe beside it. batches: what the target
    wrote, of which the first `apart` are held out."""
    config, whole = stages[-1].config, target.model.vocab
    ids = some_ids.frequent(batches[apart:], config.vocab, whole)
    named = [some_ids.among(it, ids, whole) for it in batches]
    embedding = table_of(target.params)

    def lesson(part: Written, index: np.ndarray) -> Lesson:
        return Lesson(part.rows(index), embedding)

    held_out = [lesson(it, np.arange(len(it.ids))) for it in named[:apart]]
    learnt = written.join(named[apart:])

    def data(stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Lesson:
            rng = np.random.default_rng(seed)
            return lesson(
                learnt, rng.integers(len(learnt.ids), size=stage.recipe.batch)
            )

        loss = partial(some_ids.distillation, stage.loss)
        return Data(batch, {"held_out": held_out}, loss, about(target, learnt, ids))

    first = some_ids.pruned(config, recipe["first_layers"], target.params, ids)
    data_of = {stage.data: data for stage in stages}
    params = pipeline.run(runs, stages, data_of, first)
    alphas = some_ids.accepted(config, params, held_out)
    reduced.save(path, Reduction(config, params, ids))
    tokens = sum(int((it.texts.length - it.texts.begun).sum()) for it in batches)
    print(f"{tokens} tokens of the target's: {alphas}")
    made = path.with_suffix(".json")
    pipeline.save(made, runs, recipe, tokens=tokens, held_out=alphas)


def about(target: Pretrained, learnt: Written, ids: np.ndarray) -> dict[str, Any]:
    """JSON, what tells runs apart besides their recipe."""
    digests = {"target": target.params, "answers": learnt.texts._asdict(), "ids": ids}
    return {
        name: loop.digest(jax.tree.map(np.asarray, x)) for name, x in digests.items()
    }
