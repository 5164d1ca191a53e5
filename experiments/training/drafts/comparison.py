"""A comparison of losses by alpha, the agreement of draft and target, after some
training with each.

Every loss continues from the one draft that KL made (`zoo_code`), with several seeds
for the order of the data. The drafts are stored in the runs, and trained once.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.training import language, pipeline, tokenizer
from experiments.training.drafts import lessons as learning
from experiments.training.texts import code
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained
from specjax.measure.row import Measurement
from specjax.models import gpt
from specjax.pretrained import files_of
from specjax.training import losses, written

ALPHAS = ("alpha_t0", "alpha_t1")
BEFORE = "none"  # the draft that every loss goes on from
TOKENIZER = zoo.FOLDER / zoo.TOKENIZERS["code"]


def build(target: Pretrained, loss: str, seeds: int, runs: str) -> Measurement:
    """Returns the measurement of one loss, by its name in `losses.LOSSES`, or "none".

    Args:
        runs: the folder of `experiments.training.zoo_code`.

    Raises:
        ValueError: the loss is unknown.
    """
    if loss not in (*losses.LOSSES, BEFORE):
        known = ", ".join((*losses.LOSSES, BEFORE))
        raise ValueError(f"no loss {loss!r}: choose one of {known}")
    run = partial(measure, target, loss, seeds, Path(runs))
    files = *files_of(target), TOKENIZER
    return Measurement(run, __name__, files, target.dtype, 0)


def measure(target: Pretrained, loss: str, seeds: int, runs: Path) -> dict:
    """Returns alpha on held-out texts of the target, at T = 0 and T = 1: for each seed,
    the mean, and its standard error if there are several seeds.
    """
    recipe = pipeline.read("code")
    text = code.load(runs / "text.npz", tokenizer.keep(TOKENIZER, bytes))
    stored, sides = checkpoints.load(files_of(target)[0]), (text.train, text.held_out)
    lessons = language.lessons(runs / "drafts", stored, sides=sides, recipe=recipe)
    data = {"lessons": learning.data(lessons)}
    before, after, *_ = pipeline.stages(recipe, "drafts")
    first = pipeline.run(runs, [before], data)
    rates = []
    for seed in range(seeds):
        params = first
        if loss != BEFORE:
            own = after.recipe._replace(seed=seed)
            folder = f"drafts/{loss}_{seed}"
            stage = after._replace(folder=folder, loss=loss, recipe=own)
            params = pipeline.run(runs, [stage], data, first=first)
        rates.append(written.acceptance(after.config, params, lessons.held_out))
    row: dict[str, Any] = {"loss": loss, "parameters": gpt.num_params(after.config)}
    for name in ALPHAS:
        each = [rate[name] for rate in rates]
        se = float(np.std(each, ddof=1) / seeds**0.5) if seeds > 1 else None
        row |= {name: float(np.mean(each)), f"{name}_seeds": each, f"{name}_se": se}
    return row
