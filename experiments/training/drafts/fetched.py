"""A draft of some ids for a target that was fetched, from what that target wrote."""

from collections.abc import Mapping, Sequence
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
from specjax.models import llama
from specjax.models.reduced import Config, Reduction, table_of


def train(
    target: Pretrained,
    held_out: Sequence[Written],
    parts: Mapping[str, Sequence[Written]],
    runs: Path,
    path: Path,
    recipe: dict,
    more: np.ndarray | None = None,
) -> None:
    """Writes the draft to `path`, and its recipe beside it. held_out: batches of what
    the target wrote. parts: others, by what the recipe's stages call them; the ids are
    the most frequent ones of the first part, with those of `more` as
    `some_ids.frequent` has it, and the last holds all."""
    stages = [it._replace(config=fitted(it, target)) for it in pipeline.stages(recipe)]
    config, whole = stages[-1].config, target.model.vocab
    ids = some_ids.frequent(next(iter(parts.values())), config.vocab, whole, more)
    embedding = table_of(target.params)

    def named(batches: Sequence[Written]) -> list[Written]:
        return [some_ids.among(it, ids, whole) for it in batches]

    def lesson(part: Written, index: np.ndarray) -> Lesson:
        return Lesson(part.rows(index), embedding)

    fixed = [lesson(it, np.arange(len(it.ids))) for it in named(held_out)]

    def data(learnt: Written, stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Lesson:
            size, rng = stage.recipe.batch, np.random.default_rng(seed)
            return lesson(learnt, rng.integers(len(learnt.ids), size=size))

        loss = partial(some_ids.distillation, stage.loss)
        return Data(batch, {"held_out": fixed}, loss, about(target, learnt, ids))

    joined = {name: written.join(named(part)) for name, part in parts.items()}
    texts = {name: partial(data, part) for name, part in joined.items()}
    begun = some_ids.pruned(config, recipe["first_layers"], target.params, ids)
    params = pipeline.run(runs, stages, texts, begun)
    alphas = some_ids.accepted(config, params, fixed)
    reduced.save(path, Reduction(config, params, ids))
    *_, every = parts.values()
    spans = (it.texts.length - it.texts.begun for it in (*held_out, *every))
    tokens = sum(int(span.sum()) for span in spans)
    print(f"{tokens} tokens of the target's: {alphas}")
    made = path.with_suffix(".json")
    pipeline.save(made, runs, recipe, tokens=tokens, held_out=alphas)


def fitted(stage: Stage, target: Pretrained) -> Config:
    """The sizes of a stage's draft, with what a Llama has of its target."""
    config = stage.config
    if not isinstance(config, llama.Config):
        return config
    local = tuple(config.local)
    return config._replace(rotation=target.config.rotation, local=local)


def about(target: Pretrained, learnt: Written, ids: np.ndarray) -> dict[str, Any]:
    """JSON, what tells runs apart besides their recipe."""
    digests = {"target": target.params, "answers": learnt.texts._asdict(), "ids": ids}
    return {
        name: loop.digest(jax.tree.map(np.asarray, x)) for name, x in digests.items()
    }
