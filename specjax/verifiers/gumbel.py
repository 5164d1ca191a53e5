"""Drafter-invariant verification: the text depends on the key and not on the draft.

Position t of a text has one Gumbel variable an id, g_t, and its token is
y_t = argmax(log p_t + g_t), which follows p_t (the Gumbel-max theorem). A draft is kept
while it agrees with y. So the output is that of the same loop without a drafter, token
for token, at any temperature, for any drafter, gamma, policy and batch. Daliri, Musco &
Suresh (2024), https://arxiv.org/abs/2408.07978.

With drafts that race with the same g_t (`drafters.rollout.coupled`) a token is kept
with probability sum_x 1 / sum_y max(p(y) / p(x), q(y) / q(x)), which is between
beta / (2 - beta) and beta = sum_x min(p(x), q(x)); others as by `verifiers.match`.
p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import match


def noise(key: Array, start: Array, gamma: int, vocab: int) -> Array:
    """g [B, G + 1, V] of the positions start .. start + gamma: request key [B]."""
    each = [keys.gumbel(key, start + slot, vocab) for slot in range(gamma + 1)]
    return jnp.stack(each, axis=1)


def verify(
    target: Law, draft: Draft, noise: Array, keep_residual: bool = False
) -> Verdict:
    """Keeps x_i while y_i = x_i, then adds the y of that slot.

    accept_prob is p_i(x_i), the chance of a draft that was drawn without regard to the
    noise; residual is all on the token that was added.
    """
    return match.keep(target, draft, probs.race(target, noise), keep_residual)


def acceptance(p: Array, q: Array) -> Array:
    """How often coupled draws of p and q [..., V] agree: the sum in this module's head.

    [...] in the precision of p. Ids that both miss count for nothing.
    """
    both = (p > 0) & (q > 0)
    over_p = p[..., None, :] / jnp.where(both, p, 1.0)[..., None]
    over_q = q[..., None, :] / jnp.where(both, q, 1.0)[..., None]
    return jnp.where(both, 1 / jnp.maximum(over_p, over_q).sum(-1), 0.0).sum(-1)


verifier = Verifier(noise, verify, guarantee="pathwise", coupled=True)
