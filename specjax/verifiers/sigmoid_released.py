"""The sigmoids of Wagner et al. (2024) as the authors' code has them. Lossy, no bound.

https://github.com/dwgnr/optimized-speculative-sampling, beside `verifiers.sigmoid`,
which is what the paper prints (https://arxiv.org/abs/2406.11016). Equations 5 and 6 are
the same. The token after the kept drafts is drawn otherwise: their kernel takes
sigmoids of the gamma rows of the drafts alone, so that after a whole draft the weights
are the logits of the target's last row as they are; and no weight is below FLOOR.
p is the target. Axes: B rows, V vocabulary.
"""

import jax.numpy as jnp
from jax import Array

from specjax.types import Law, Lossy, Verifier
from specjax.verifiers import sigmoid, token

GUARANTEE = "lossy: sigmoids and raw logits as in the authors' code, no bound"
FLOOR = 1e-5  # the least weight of an id, whatever the vocabulary
GUARD = 1e-6  # what the sum of a residual begins with


def build(alpha: float, beta: float, dtype: str = "float32") -> Verifier:
    """The rule with scale constants alpha < 0 < beta; dtype and noise as of `sigmoid`.

    Kept as there (Eqs. 5 and 6), but for logits beyond alpha and beta, whose weights
    are 0 and 1. After a rejection the weights are max(1e-5, max(0, p^ - q^) / (1e-6 +
    b)), b their sum (Eq. 7 has no floor); after a draft that is kept whole max(1e-5, z)
    of the target's logits z, divided by the temperature and filtered (the paper: p^).
    All V ids may be drawn, those that top-k, top-p or min-p removed too, and of a large
    vocabulary they have much of it. Their code only samples: a row of which a single id
    is kept, as at temperature 0, stays that id here. Not reproduced: several texts at a
    time, whose rows their code mixes up, and a sum b that leaves elements out. No
    kernel of this project fuses it. Raises ValueError as `sigmoid.build`.
    """
    squash = sigmoid.squashed(alpha, beta, dtype, bounded=True)
    verify = sigmoid.decide(squash, end)
    return Verifier(token.noise, verify, GUARANTEE, law=sigmoid.law)


def end(row: Law, p: Array, q: Array, whole: Array) -> Array:
    """Weights [B, V] of the token after the kept drafts, as of `sigmoid.decide`."""
    kept = sigmoid.support(row)
    z = jnp.where(kept, sigmoid.logits_of(row) * row.scale[..., None], 0.0)
    left = jnp.fmax(p - q, 0.0)
    left = left / (GUARD + left.sum(axis=1, keepdims=True))
    left = jnp.fmax(jnp.where(whole[:, None], z, left), FLOOR)
    single = kept.sum(axis=1, keepdims=True) == 1
    return jnp.where(single, kept.astype(left.dtype), left)


LOSSY = Lossy(lambda scale: build(-scale, scale), 1e4, sigmoid.MEANING)
