"""The sigmoid rule of Wagner et al. (2024) as in the authors' code. Lossy, no bound.

https://github.com/dwgnr/optimized-speculative-sampling. `verifiers.sigmoid` is the rule
of the paper's equations (https://arxiv.org/abs/2406.11016). Equations 5 and 6 are the
same here; the token after the kept drafts is drawn differently. The authors' kernel
applies the sigmoid only to the gamma rows of drafted tokens, so after a fully accepted
draft the weights are the plain logits of the target's last row, and no weight is below
FLOOR.

p is the target. Axes: B rows, V vocabulary.
"""

import jax.numpy as jnp
from jax import Array

from specjax.types import Law, Lossy, Verifier
from specjax.verifiers import sigmoid, token

GUARANTEE = "lossy: sigmoids and raw logits as in the authors' code, no bound"
FLOOR = 1e-5  # the least weight of an id, whatever the vocabulary
GUARD = 1e-6  # is added to the sum of a residual


def build(alpha: float, beta: float, dtype: str = "float32") -> Verifier:
    """Returns the rule with scale constants alpha < 0 < beta; see `sigmoid.build`.

    Drafts are kept as by `sigmoid` (Eqs. 5 and 6), except that logits below alpha have
    weight 0 and logits above beta have weight 1. After a rejection the weights are
    max(1e-5, max(0, p^ - q^) / (1e-6 + b)), where b is their sum (Eq. 7 has no floor).
    After a fully accepted draft they are max(1e-5, z) for the target's logits z,
    divided by the temperature and filtered (the paper: p^). Because of the floor every
    one of the V ids may be drawn, including those removed by top-k, top-p or min-p; in
    a large vocabulary these have much of the weight. The authors' code only samples;
    here a row that keeps a single id, as at temperature 0, always draws that id.

    Not reproduced: batches of several texts, whose rows the authors' code mixes up, and
    a sum b that leaves elements out. No kernel of this project fuses this rule. Raises
    ValueError like `sigmoid.build`.
    """
    squash = sigmoid.build_squash(alpha, beta, dtype, bounded=True)
    verify = sigmoid.build_verify(squash, extra_weights)
    return Verifier(token.noise, verify, GUARANTEE, law=sigmoid.law)


def extra_weights(row: Law, p: Array, q: Array, whole: Array) -> Array:
    """Returns weights [B, V] of the token after the kept ones, for `build_verify`."""
    kept = sigmoid.support(row)
    z = jnp.where(kept, sigmoid.raw_logits(row) * row.scale[..., None], 0.0)
    left = jnp.fmax(p - q, 0.0)
    left = left / (GUARD + left.sum(axis=1, keepdims=True))
    left = jnp.fmax(jnp.where(whole[:, None], z, left), FLOOR)
    single = kept.sum(axis=1, keepdims=True) == 1
    return jnp.where(single, kept.astype(left.dtype), left)


LOSSY = Lossy(lambda scale: build(-scale, scale), 1e4, sigmoid.MEANING)
