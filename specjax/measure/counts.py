"""Tokens and steps of decoded batches, as they happened and as expected.

Outputs are keyed by (gamma, index); batches by index. Axes: K values of gamma, N
batches.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from specjax import generate
from specjax.measure import scoring
from specjax.measure.texts import Text, join, text_of
from specjax.runtime import hosts
from specjax.theory import estimate, predict
from specjax.types import Prompt, Request

TINY = 1e-30  # p of a written token, where another shape rounded it away
EXPECTED = ("predicted_steps", "steps_se", "predicted_tokens_per_call")


class Batch(NamedTuple):
    prompt: Prompt
    request: Request


def join_texts(outputs: dict, batches: Mapping[int, Batch], gamma: int = 0) -> Text:
    """Joins the texts that were written with this `gamma`."""
    pairs = [(outputs[gamma, i], batch.prompt) for i, batch in batches.items()]
    return join([text_of(*pair) for pair in pairs])


def count_written(out: generate.Output, batch: Batch) -> int:
    """Returns the number of tokens in a batch's texts, without their prompts."""
    return int(np.sum(out.length - hosts.read(batch.request.start)))


def acceptance(
    scores: scoring.Scores | None, runs: Sequence[generate.Output]
) -> estimate.Estimate:
    """Returns alpha over all scored tokens, or over the tested tokens of the runs.

    Without scores, because the draft has no law, it is the share of the tested tokens
    in `runs` that were kept.
    """
    if scores is not None:
        return estimate.rao_blackwell(scores.beta, scores.sequence)
    counts = [(run.counts.accepted, run.counts.tested) for run in runs]
    return scoring.accepted_share(*map(np.concatenate, zip(*counts, strict=True)))


def tokens_and_steps(
    gammas: Sequence[int], outputs: dict, batches: Mapping[int, Batch]
) -> dict[str, list]:
    """Returns the tokens and steps of each batch, [K][N]."""

    def count_outputs(count: Callable) -> list[list[int]]:
        return [
            [int(count(outputs[gamma, i], batch)) for i, batch in batches.items()]
            for gamma in gammas
        ]

    steps = count_outputs(lambda out, batch: out.counts.calls.max())
    return {"tokens": count_outputs(count_written), "steps": steps}


def calls(
    gammas: Sequence[int], outputs: dict, batches: Mapping[int, Batch]
) -> dict[str, list]:
    """Returns the steps of all batches, and the tokens per call, for each gamma."""
    columns: dict[str, list[float]] = {"steps": [], "tokens_per_call": []}
    for gamma in gammas:
        every = [outputs[gamma, i].counts.calls for i in batches]
        total = sum(
            count_written(outputs[gamma, i], batch) for i, batch in batches.items()
        )
        columns["steps"].append(int(sum(each.max() for each in every)))
        columns["tokens_per_call"].append(float(total / np.sum(every)))
    return columns


def expected_calls(
    gammas: Sequence[int],
    scores: scoring.Scores,
    outputs: dict,
    batches: Mapping[int, Batch],
) -> dict[str, list]:
    """Returns the expected steps and calls for the same texts that were scored.

    They follow from the scores of these texts by dynamic programming; they are not a
    prediction of a speed.
    """
    columns: dict[str, list[float | None]] = {key: [] for key in EXPECTED}
    for gamma in gammas:
        laws = call_laws(gamma, scores)
        expected = batch_steps(laws, len(batches))
        columns["predicted_steps"].append(float(sum(expected)))
        steps = [outputs[gamma, i].counts.calls.max() for i in batches]
        # Coins, and texts other than those scored: of the sum of the differences.
        several = len(batches) > 1
        luck = np.std(np.subtract(steps, expected), ddof=1) if several else np.nan
        columns["steps_se"].append(
            estimate.nan_to_none(float(luck * len(batches) ** 0.5))
        )
        every = sum(float(law @ np.arange(law.size)) for law in laws)
        columns["predicted_tokens_per_call"].append(scores.p.size / every)
    return columns


def call_laws(gamma: int, scores: scoring.Scores) -> list[np.ndarray]:
    """Returns the distribution of the number of calls of each scored text."""
    accept = predict.accept_probability(np.maximum(scores.p, TINY), scores.q)
    texts = range(scores.sequence.max() + 1)
    return [predict.calls_law(accept[scores.sequence == i], gamma) for i in texts]


def batch_steps(laws: Sequence[np.ndarray], batches: int) -> list[float]:
    """Returns the expected steps of each of `batches` batches of consecutive rows."""
    rows = np.split(np.arange(len(laws)), batches)
    return [predict.expected_steps([laws[i] for i in row]) for row in rows]
