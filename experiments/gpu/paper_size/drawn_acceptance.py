"""A verifier whose acceptances are drawn, for walltime where weights are random.

Random models agree with each other on nothing, and what a step costs does not depend on
what it keeps. So every drafted token is kept by a coin of probability alpha, as Eq. 1
of Leviathan et al. (2023) assumes. The text follows no law.
Axes: B rows, G = gamma.
"""

import jax.numpy as jnp
from jax import Array

from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import token


def build(alpha: float | Array, rule: Verifier = token.verifier) -> Verifier:
    """A verifier that keeps as many tokens as come before the first coin that fails.

    alpha: in [0, 1], a number or a scalar array. rule: `verifiers.token`, or it fused.
    Costs what the rule does: the real verdict is found, and its extra token is the one
    that is added. The coins are the verifier's own uniforms, so that they are
    independent of place and of batch.
    """

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """As `verifiers.token.verify`, with n drawn; accept_prob is alpha."""
        real = rule.verify(target, draft, noise, keep_residual)
        gamma = draft.tokens.shape[1]
        live = jnp.arange(gamma) < draft.num[:, None]
        heads = (noise.accept < alpha) & live
        n = jnp.sum(jnp.cumprod(heads, axis=1), axis=1, dtype=jnp.int32)[:, None]

        extra = jnp.take_along_axis(real.tokens, real.num_accepted[:, None], axis=1)
        slots, drafted = jnp.arange(gamma + 1), jnp.pad(draft.tokens, ((0, 0), (0, 1)))
        tokens = jnp.where(slots < n, drafted, jnp.where(slots == n, extra, 0))
        chance = jnp.where(live, alpha, 0.0)
        return real._replace(num_accepted=n[:, 0], tokens=tokens, accept_prob=chance)

    return Verifier(token.noise, verify, law=rule.law)
