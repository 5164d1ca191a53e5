"""Block verification: decides on the whole draft at once, which keeps more of it.

Sun, Mendlovic, Leviathan et al. (2024), https://arxiv.org/abs/2403.10444. It is as
exact as Algorithm 1, and no verifier of a single draft keeps more tokens on average. It
reads every row of both distributions, while `verifiers.token` needs two rows of them.

p is the target, q the drafter, and w_i is the paper's p_i: the probability that the
first i tokens are kept, given these tokens. Axes: B rows, G = gamma, V vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.native import laws
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import token


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """Decides as `verifiers.token.verify` does, but on the whole draft at once: its
    number of kept tokens n and its residual differ.

    The noise must be fresh in every iteration. An iteration also uses tokens that it
    then rejects, so a token drawn again from the same noise would not be independent.
    """
    if keep_residual:
        p, q = probs.dense(target), draft_law(draft, target.logits.shape[-1])
        return decide(p, q, draft, noise)
    of = laws.VerdictOperands(token.trial(target, draft), noise.accept, noise.sample)
    n, h, extra = laws.block(_decide, of)
    return Verdict(n, token.emit(draft, n, extra), h)


def _decide(of: laws.VerdictOperands) -> list[Array]:
    target, law, tokens, num = of.trial
    draft = Draft(tokens, num, law)
    p, q = probs.dense(target), draft_law(draft, target.logits.shape[-1])
    verdict = decide(p, q, draft, token.Noise(of.accept, of.u))
    n = verdict.num_accepted.astype(jnp.int32)
    extra = jnp.take_along_axis(verdict.tokens, n[:, None], axis=1)[:, 0]
    return [n, verdict.accept_prob, extra.astype(jnp.int32)]


def decide(
    p: Array, q: Array, draft: Draft, noise: token.Noise, keep_residual: bool = True
) -> Verdict:
    """Decides on a draft from dense probabilities: p [B, G + 1, V] and q [B, G, V]."""
    gamma, num = draft.tokens.shape[1], draft.num[:, None]
    live = jnp.arange(gamma) < num
    ratio = ratios(draft, p, q)

    # w_0 = 1, w_i = min(1, w_{i-1} p(x_i) / q(x_i)).
    def next_weight(w: Array, r: Array) -> tuple[Array, Array]:
        return (jnp.minimum(1.0, w * r),) * 2

    first = jnp.ones_like(p[:, 0, 0])
    w = jnp.stack(
        [first, *jax.lax.scan(next_weight, first, ratio.T)[1]], axis=1
    )  # [B, G + 1]

    # s_i = sum_x max(0, w_i p_{i+1}(x) - q_{i+1}(x)); q = 0 after the last drafted one.
    q = jnp.pad(jnp.where(live[..., None], q, 0.0), ((0, 0), (0, 1), (0, 0)))
    rest = jnp.maximum(w[..., None] * p - q, 0.0)
    # h_i = s_i / (s_i + 1 - w_i), and h = w at the last: there s = w, as q = 0.
    s = rest.sum(-1)[:, 1:]
    below = s + (1 - w[:, 1:])  # s + 1 would round a small s away
    h = jnp.where(below > 0, s / jnp.where(below > 0, below, 1.0), 1.0)
    h = jnp.where(jnp.arange(1, gamma + 1) == num, w[:, 1:], h)

    # n = max {i : u_i < h_i}: the last success, not the first failure.
    kept = (noise.accept < h) & live
    n = jnp.max(jnp.where(kept, jnp.arange(1, gamma + 1), 0), axis=1, initial=0)

    # The extra token: norm(max(0, w_n p_{n+1} - q_{n+1})).
    take = probs.take_fn(n)
    weights = take(rest)
    weights = jnp.where(weights.any(axis=1, keepdims=True), weights, take(p))
    tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
    residual = weights if keep_residual else None
    return Verdict(n, tokens, jnp.where(live, h, 0.0), residual=residual)


def draft_law(draft: Draft, vocab: int) -> Array:
    """Returns q [B, G, V]; the law of a deterministic draft has all mass on its own
    tokens."""
    if draft.law is None:
        return jax.nn.one_hot(draft.tokens, vocab)
    return probs.dense(draft.law)


def ratios(draft: Draft, p: Array, q: Array) -> Array:
    """Returns p(x_i) / q(x_i) [B, G], and 0 where q is 0, because such an x_i is never
    drawn."""
    at = draft.tokens[..., None]
    p_x = jnp.take_along_axis(p[:, : at.shape[1]], at, axis=-1)[..., 0]
    q_x = jnp.take_along_axis(q, at, axis=-1)[..., 0]
    return jnp.where(q_x > 0, p_x / jnp.where(q_x > 0, q_x, 1.0), 0.0)


verifier = Verifier(token.noise, verify)
