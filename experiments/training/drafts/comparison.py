"""By which loss a draft agrees most with its target: alpha after a while of each.

Every loss goes on from the one draft that KL made (`zoo_code`), with some seeds for the
order of what it reads. The drafts are kept in the runs, and trained once.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.training import pipeline, tokenizer, zoo_code
from experiments.training.drafts import losses, written
from experiments.training.texts import code
from specjax import checkpoints, zoo
from specjax.measure.row import Measurement
from specjax.models import gpt
from specjax.sides import Side

ALPHAS = ("alpha_t0", "alpha_t1")
BEFORE = "none"  # the draft that every loss goes on from
TOKENIZER = zoo.FOLDER / zoo.TOKENIZERS["code"]


def build(target: Side, loss: str, seeds: int, runs: str) -> Measurement:
    """The measurement of one loss, of `losses.LOSSES` or "none".

    runs: the folder of `experiments.training.zoo_code`. Raises ValueError for another
    loss.
    """
    if loss not in (*losses.LOSSES, BEFORE):
        known = ", ".join((*losses.LOSSES, BEFORE))
        raise ValueError(f"no loss {loss!r}: choose one of {known}")
    run = partial(measure, target, loss, seeds, Path(runs))
    files = *target.files, TOKENIZER
    return Measurement(run, __name__, files, target.dtype, 0)


def measure(target: Side, loss: str, seeds: int, runs: Path) -> dict:
    """alpha on held-out texts of the target's, at T = 0 and T = 1: of each seed, the
    mean, and its standard error where there are several."""
    recipe = pipeline.read("code")
    text = code.load(runs / "text.npz", tokenizer.keep(TOKENIZER, bytes))
    stored = checkpoints.load(target.files[0])
    lessons = zoo_code.read(runs / "drafts", stored, text, recipe)
    data = {"lessons": written.data(lessons)}
    stages = pipeline.stages(recipe, "drafts")
    first = pipeline.run(runs, stages[:1], data)
    rates = []
    for seed in range(seeds):
        params, after = first, stages[1]
        if loss != BEFORE:
            recipe = after.recipe._replace(seed=seed)
            after = after._replace(folder=f"drafts/{loss}_{seed}", loss=loss)
            params = pipeline.run(runs, [after._replace(recipe=recipe)], data, first)
        rates.append(written.accepted(after.config, params, lessons.held_out))
    return described(loss, rates)


def described(loss: str, rates: list[dict[str, float]]) -> dict:
    size = gpt.num_params(pipeline.config(pipeline.read("code"), "draft"))
    row: dict[str, Any] = {"loss": loss, "parameters": size}
    for name in ALPHAS:
        each = [rate[name] for rate in rates]
        row |= {name: float(np.mean(each)), f"{name}_seeds": each}
        se = np.std(each, ddof=1) / len(each) ** 0.5 if len(each) > 1 else None
        row[f"{name}_se"] = None if se is None else float(se)
    return row
