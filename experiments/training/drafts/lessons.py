"""The texts of a target that its draft learns from, by task.

Axes: N texts.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.training.pipeline import Data, Stage
from specjax.training.written import Written, batches, distillation, join


class Lessons(NamedTuple):
    """The data that a draft learns from, and the data that it is measured on.

    Attributes:
        train: by task, its share of the batches, and the number of its texts in a
            batch, None for the recipe's.
        held_out: by the names of the curve.
        target: the `loop.digest` of the model that wrote them.
    """

    train: Mapping[str, tuple[Written, float, int | None]]
    held_out: Mapping[str, Written]
    target: str


def lessons(
    target: str,
    wrote: Callable[[str, bool, float], Written],
    more: Sequence[Written] = (),
) -> Lessons:
    """Returns greedy and sampled texts, for training and held out.

    Args:
        target: its digest.
        wrote: a function (name, whether held out, temperature) -> texts.
        more: additional texts for training.
    """
    train = [wrote("greedy", False, 0.0), wrote("sampled", False, 1.0), *more]
    held_out = {"t0": wrote("held_out_greedy", True, 0.0)}
    held_out["t1"] = wrote("held_out_sampled", True, 1.0)
    return Lessons({"": (join(train), 1.0, None)}, held_out, target)


def data(lessons: Lessons) -> Callable[[Stage], Data]:
    """Returns the training data for a stage of a draft: a task is chosen by its share,
    then texts of it.
    """
    tasks = list(lessons.train.values())
    share = np.array([part[1] for part in tasks])
    held_out = {name: batches(part) for name, part in lessons.held_out.items()}

    def stage_data(stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Written:
            rng, at = np.random.default_rng(seed), 0
            if len(tasks) > 1:
                at = rng.choice(len(tasks), p=share / share.sum())
            texts, _, rows = tasks[at]
            size = rows or stage.recipe.batch
            return texts.rows(rng.integers(len(texts.ids), size=size))

        loss, about = partial(distillation, stage.loss), {"target": lessons.target}
        return Data(batch, held_out, loss, about)

    return stage_data
