"""How much of a text repeats itself: small models do at T = 0, which is easy to draft.

Axes: N sequences, L tokens, M generated tokens in all.
"""

import numpy as np

from specjax.measure.scoring import Scores
from specjax.measure.texts import Text
from specjax.theory import estimate

RUN = 8  # tokens in a row that are there twice: a loop, not a common phrase


def repeated(ids: np.ndarray) -> np.ndarray:
    """[L] bool: the tokens at which a run of RUN tokens ends that was there before."""
    seen, marks = set(), np.zeros(len(ids), bool)
    for end in range(RUN, len(ids) + 1):
        run = tuple(ids[end - RUN : end].tolist())
        marks[end - 1] = run in seen
        seen.add(run)
    return marks


def outside(text: Text, scores: Scores | None) -> dict[str, float | None]:
    """Of greedy texts: `repeated`, the share of generated tokens that end a run which
    the text, its prompt included, had before; and alpha at the others, with its error;
    None where nothing was scored."""
    marks = [
        repeated(ids[:length])[start:length]
        for ids, start, length in zip(*text[:3], strict=True)
    ]
    inside = np.concatenate(marks)
    row = {"repeated": float(inside.mean()) if inside.size else 0.0}
    row |= {"alpha_fresh": None, "alpha_fresh_se": None}
    if scores is not None and not inside.all():
        beta, sequence = scores.beta[~inside], scores.sequence[~inside]
        alpha = estimate.rao_blackwell(beta, sequence)
        row["alpha_fresh"] = alpha.value
        row["alpha_fresh_se"] = None if alpha.se != alpha.se else alpha.se
    return row
