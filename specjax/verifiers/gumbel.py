"""Drafter-invariant verification: the text depends on the key and not on the draft.

Daliri, Musco & Suresh (2024), https://arxiv.org/abs/2408.07978. Position t of a text
has one Gumbel variable per id, g_t, and its token is y_t = argmax(log p_t + g_t), which
follows p_t (the Gumbel-max theorem). A draft is kept as long as it agrees with y. The
output is therefore, token for token, that of the same loop without a drafter, at any
temperature and for any drafter, gamma, policy and batch.

A draft that uses the same g_t (`drafters.rollout.draw_coupled`) is kept with
probability sum_x 1 / sum_y max(p(y) / p(x), q(y) / q(x)), which lies between
beta / (2 - beta) and beta = sum_x min(p(x), q(x)). Any other draft is kept as often as
by `verifiers.match`.

p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import match


def noise(key: Array, start: Array, gamma: int, vocab: int) -> Array:
    """Returns g [B, G + 1, V] for positions start .. start + gamma, from the request
    keys."""
    each = [keys.gumbel(key, start + slot, vocab) for slot in range(gamma + 1)]
    return jnp.stack(each, axis=1)


def verify(
    target: Law, draft: Draft, noise: Array, keep_residual: bool = False
) -> Verdict:
    """Keeps x_i while it equals y_i, the winner of the race at its place, then adds the
    y of the next slot.

    accept_prob is p_i(x_i), the acceptance probability of a draft that was drawn
    independently of the noise; residual has all its weight on the added token.
    """
    return match.keep(target, draft, probs.race(target, noise), keep_residual)


def acceptance(p: Array, q: Array) -> Array:
    """Returns how often coupled draws of p and q agree: the sum in the module's
    docstring.

    p, q: [..., V]. The result is [...] in the precision of p. Ids with p = 0 or q = 0
    add nothing.
    """
    both = (p > 0) & (q > 0)
    over_p = p[..., None, :] / jnp.where(both, p, 1.0)[..., None]
    over_q = q[..., None, :] / jnp.where(both, q, 1.0)[..., None]
    return jnp.where(both, 1 / jnp.maximum(over_p, over_q).sum(-1), 0.0).sum(-1)


verifier = Verifier(noise, verify, guarantee="pathwise", coupled=True)
