"""The exact law of one emitted token: under Algorithm 1, and under rules that differ
from it.

p is the target's law, q the drafter's, x a token drawn from q that is kept with
probability min(1, p(x) / q(x)) unless a rule says otherwise. Axes: V vocabulary.
"""

import numpy as np


def emitted_laws(p: np.ndarray, q: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the law [V] of each rule, for two laws [V] that are not equal; the first
    is p itself.
    """
    kept, left = np.minimum(p, q), np.maximum(p - q, 0)  # Appendix A.1
    lost, apart, liked = 1 - kept.sum(), np.abs(p - q), np.where(p >= q, q, 0)
    return {
        "Algorithm 1": kept + lost * left / left.sum(),
        "after a rejection, draw from p": kept + lost * p,
        "after a rejection, draw from |p - q|": kept + lost * apart / apart.sum(),
        "draw the residual by the uniform that rejected": kept + reuse_uniform(p, q),
        "keep a draft if p >= q, else reject it": (
            liked + (1 - liked.sum()) * left / left.sum()
        ),
        "keep every draft": q.copy(),
    }


def reuse_uniform(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Returns the law [V] of the added token, if the uniform that rejected x is also
    used to draw from the residual.

    The uniform u, p(x) / q(x) <= u < 1, inverts the residual's cumulative law.
    """
    left = np.maximum(p - q, 0)
    ends = np.cumsum(left) / left.sum()
    begins = np.concatenate([[0.0], ends[:-1]])
    drafted = q > 0
    chance = np.minimum(1, p[drafted] / q[drafted])[:, None]
    both = np.maximum(ends - np.maximum(begins, chance), 0)
    return q[drafted] @ both
