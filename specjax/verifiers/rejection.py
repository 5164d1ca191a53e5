"""Rejection sampling, a baseline for Algorithm 1: Appendix A.2.

It is exact and never better than Algorithm 1: it accepts with probability p(x) / (M
q(x)), where M = max_x p(x) / q(x), so the id that q underestimates most lowers the
acceptance of every id. After a rejection it draws from p itself. A q that gives
probability 0 to an id of p accepts nothing.

p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

import jax.numpy as jnp

from specjax import probs
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import block, token


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """Decides as `verifiers.token.verify` does, with the acceptances of this rule, and
    with p as the residual."""
    gamma = draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    p, q = probs.dense(target), block.draft_law(draft, target.logits.shape[-1])
    ratio = block.ratios(draft, p, q)

    # 1 / M = min_x q(x) / p(x), over the ids that the target can draw.
    inside = p[:, :gamma] > 0
    below = q / jnp.where(inside, p[:, :gamma], 1.0)
    least = jnp.min(jnp.where(inside, below, jnp.inf), axis=-1)
    chance = jnp.minimum(1.0, least * ratio)  # p(x_i) / (M q(x_i))
    accepted = (noise.accept < chance) & live
    n = jnp.sum(jnp.cumprod(accepted, axis=1), axis=1, dtype=jnp.int32)

    weights = p[jnp.arange(n.size), n]  # on a rejection too: p, unmodified
    tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
    residual = weights if keep_residual else None
    return Verdict(n, tokens, jnp.where(live, chance, 0.0), residual=residual)


verifier = Verifier(token.noise, verify)
