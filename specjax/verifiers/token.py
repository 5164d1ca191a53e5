"""The verifier of Algorithm 1: accepts drafted tokens in turn, and redraws the first
rejected one.

p is the target, q the drafter, as in Leviathan et al. (2023), Sections 2.3 and A.1.
Axes: B rows, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.native import laws
from specjax.types import Draft, FusedRule, Law, Verdict, Verifier


class Noise(NamedTuple):
    """Uniform numbers in [0, 1) that one iteration uses.

    accept: [B, G], one for each drafted token.
    sample: [B, 2], for the extra token.
    """

    accept: Array
    sample: Array


def noise(key: Array, start: Array, gamma: int, vocab: int) -> Noise:
    """Returns the uniforms of the iteration that starts at `start`, from keys [B]."""
    del vocab
    coins = [(keys.ACCEPT, slot) for slot in range(gamma)]
    u = keys.uniforms_by_name(keys.iteration(key, start), [*coins, (keys.SAMPLE, 0)])
    return Noise(u[:, :gamma, 0], u[:, gamma])


def verify(
    target: Law, draft: Draft, noise: Noise, keep_residual: bool = False
) -> Verdict:
    """Keeps n tokens and adds one, so that every token follows p (Appendix A.1).

    target: law [B, G + 1] of p_1 .. p_{G+1}. See `specjax.types.Verdict`.
    """
    gamma = draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    p_x = probs.at(probs.first_tokens(target, gamma), draft.tokens)
    q_x = jnp.ones_like(p_x) if draft.law is None else probs.at(draft.law, draft.tokens)

    # Accept x_i while r_i < p_i(x_i) / q_i(x_i): multiplied out, as q_i(x_i) may be
    # tiny, and strict, so that a token with p = 0 is not accepted at r = 0.
    accepted = (noise.accept * q_x < p_x) & live
    n = jnp.sum(jnp.cumprod(accepted, axis=1), axis=1, dtype=jnp.int32)

    extra = draw_extra(target, draft, n, u=noise.sample)
    ratio = jnp.minimum(1.0, p_x / jnp.where(q_x > 0, q_x, 1.0))
    residual = residual_weights(target, draft, n) if keep_residual else None
    tokens = emit(draft, n, extra)
    return Verdict(n, tokens, jnp.where(live, ratio, 0.0), residual=residual)


def residual_weights(target: Law, draft: Draft, n: Array) -> Array:
    """Returns p'(x) = max(0, p_{n+1}(x) - q_{n+1}(x)), not normalized, [B, V].

    Taking q = 0 after the last drafted token makes it p, without a special case.
    """
    p = probs.dense(probs.take(target, n))
    weights = jnp.maximum(p - rejected_law(draft, n, p.shape[-1]), 0.0)
    # Rounding can reject where p and q agree, and leave no residual: then p is right.
    return jnp.where(weights.any(axis=1, keepdims=True), weights, p)


def draw_extra(target: Law, draft: Draft, n: Array, *, u: Array) -> Array:
    """Draws the token after the n accepted ones, x ~ p'(x); u [B, 2] -> ids [B]."""
    return laws.residual(_draw_extra, laws.ResidualOperands(trial(target, draft), n, u))


def _draw_extra(of: laws.ResidualOperands) -> list[Array]:
    target, law, tokens, num = of.trial
    weights = residual_weights(target, Draft(tokens, num, law), of.n)
    return [probs.pick(weights, of.u)]


def trial(target: Law, draft: Draft) -> laws.Trial:
    """Returns what a rule decides on, as compiled code takes it."""
    return laws.Trial(target, draft.law, draft.tokens, draft.num)


def emit(draft: Draft, n: Array, extra: Array) -> Array:
    """Returns `Verdict.tokens` [B, G + 1]: n [B] drafted tokens, then `extra`, then
    0."""
    n = n[:, None]
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
    slots = jnp.arange(drafted.shape[1])
    return jnp.where(slots < n, drafted, jnp.where(slots == n, extra[:, None], 0))


def rejected_law(draft: Draft, n: Array, vocab: int) -> Array:
    """Returns q_{n+1} [B, V] of the first rejected token; 0 where none was rejected."""
    gamma = draft.tokens.shape[1]
    if gamma == 0:
        return jnp.zeros((n.shape[0], vocab))
    at = jnp.minimum(n, gamma - 1)
    if draft.law is None:
        token = jnp.take_along_axis(draft.tokens, at[:, None], axis=1)[:, 0]
        q = jax.nn.one_hot(token, vocab)
    else:
        q = probs.dense(probs.take(draft.law, at))
    return jnp.where((n < draft.num)[:, None], q, 0.0)


verifier = Verifier(noise, verify, rule=FusedRule())
