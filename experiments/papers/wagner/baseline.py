"""The baseline of Wagner et al. (2024): Algorithm 1 with its matrices written out.

Section 3.1, Eqs. 1 to 3, in the steps of the Transformers library (Section 4.1):
softmax of all rows of both models, ratios at the drafted ids, the row of the first
rejection, max(0, p - q), its norm, a draw. Barriers prevent XLA from fusing one step
into the next, because an eager program cannot fuse either. The law is exact, and for
the same noise the tokens are those of `specjax.verifiers.token`, except for rounding.
Axes: B rows, G = gamma, V vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import sigmoid, token

barrier = jax.lax.optimization_barrier


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """Verifies as `verifiers.token.verify` does."""
    batch, gamma = draft.tokens.shape
    live = jnp.arange(gamma) < draft.num[:, None]
    p = softmax(target)
    if draft.law is None:
        q = barrier(jax.nn.one_hot(draft.tokens, p.shape[-1]))
    else:
        q = softmax(draft.law)
    at = draft.tokens[..., None]
    p_x = jnp.take_along_axis(p[:, :gamma], at, axis=-1)[..., 0]
    q_x = jnp.take_along_axis(q, at, axis=-1)[..., 0]
    # Eq. 1; the library keeps r <= ratio, which lets a token of p = 0 pass at r = 0.
    ratio = barrier(p_x / jnp.where(q_x > 0, q_x, 1.0))
    accepted = barrier((noise.accept < ratio) & live)
    n = jnp.sum(jnp.cumprod(accepted, axis=1), axis=1, dtype=jnp.int32)

    rows = jnp.arange(batch)
    p_n = barrier(p[rows, n])
    q_n = q[rows, jnp.minimum(n, max(gamma - 1, 0))] if gamma else jnp.zeros_like(p_n)
    q_n = barrier(jnp.where((n < draft.num)[:, None], q_n, 0.0))
    left = barrier(jnp.maximum(p_n - q_n, 0.0))  # Eq. 3: a(x)
    mass = left.sum(-1, keepdims=True)  # and b
    weights = barrier(jnp.where(mass > 0, left / jnp.where(mass > 0, mass, 1.0), p_n))
    tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
    chance = jnp.where(live, jnp.minimum(1.0, ratio), 0.0)
    residual = weights if keep_residual else None
    return Verdict(n, tokens, chance, residual=residual)


def softmax(law: Law) -> Array:
    """Returns Eq. 4: all rows as probabilities, [..., V]; removed ids have 0."""
    z = sigmoid.raw_logits(law) * law.scale[..., None]
    z = barrier(jnp.where(sigmoid.support(law), z, -jnp.inf))
    top = barrier(z.max(-1, keepdims=True))
    weights = barrier(jnp.exp(z - top))
    return barrier(weights / weights.sum(-1, keepdims=True))


verifier = Verifier(token.noise, verify, law=sigmoid.law)
