"""By which loss a draft agrees most with its target: alpha after a while of each.

Every loss goes on from the one draft that KL made (`drafts.code`), with some seeds for
the order of what it reads. The drafts are kept in the runs, and trained once.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor

from experiments.training.drafts import code, losses
from experiments.training.targets import code as targets
from specjax import checkpoints, zoo
from specjax.measure.row import Measurement
from specjax.models import gpt
from specjax.sides import Player

ALPHAS = ("alpha_t0", "alpha_t1")
BEFORE = "none"  # the draft that every loss goes on from
TOKENIZER = zoo.FOLDER / zoo.TOKENIZERS["code"]


def build(target: Player, loss: str, seeds: int, runs: str) -> Measurement:
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


def measure(target: Player, loss: str, seeds: int, runs: Path) -> dict:
    """alpha on held-out texts of the target's, at T = 0 and T = 1: of each seed, the
    mean, and its standard error where there are several."""
    runs.mkdir(parents=True, exist_ok=True)
    pieces = SentencePieceProcessor(model_file=str(TOKENIZER))
    text = targets.load(runs / "text.npz", pieces)
    texts = code.read(runs / "drafts", checkpoints.load(target.files[0]), text)
    first = code.distilled(runs / "drafts", texts)
    drafts = [
        first
        if loss == BEFORE
        else code.continued(runs / "drafts", texts, first, loss, seed)
        for seed in range(seeds)
    ]
    rates = [code.accepted(params, texts) for params in drafts]
    return described(loss, rates)


def described(loss: str, rates: list[dict[str, float]]) -> dict:
    row: dict[str, Any] = {"loss": loss, "parameters": gpt.num_params(code.DRAFT)}
    for name in ALPHAS:
        each = [rate[name] for rate in rates]
        row |= {name: float(np.mean(each)), f"{name}_seeds": each}
        se = np.std(each, ddof=1) / len(each) ** 0.5 if len(each) > 1 else None
        row[f"{name}_se"] = None if se is None else float(se)
    return row
