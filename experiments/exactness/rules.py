"""Acceptance rules of other engines, each written here from its public description.

They are transcriptions into the types of this project, to be certified as our own
rules are, and not the engines' code. A rule is a function (target, draft) -> the chance
[B, G] that each token is kept with, and the weights [B, G + 1, V] that the token after
n kept ones is drawn from. Left out: constants below 1e-6 that guard a division, except
where they are the rule's subject; more than one row a batch; arithmetic below float32.
Where a residual is empty, which most descriptions do not mention, the target's weights
stand in for it.
p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import block, token


@functools.cache
def build(rule: Callable, strict: bool = True) -> Verifier:
    """The verifier of a rule that stops at the first token it does not keep: one of
    which u is not below its chance; unless strict, above it, so that at u = 0 one with
    no chance at all is kept."""

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        chance, rows = rule(target, draft)
        live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
        u = noise.accept
        kept = (u < chance if strict else u <= chance) & live
        n = jnp.sum(jnp.cumprod(kept, axis=1), axis=1, dtype=jnp.int32)
        weights = rows[jnp.arange(n.size), n]
        tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
        residual = weights if keep_residual else None
        return Verdict(n, tokens, jnp.where(live, chance, 0.0), residual=residual)

    return Verifier(token.noise, verify, "as transcribed")


def tested(p: Array, q: Array, draft: Draft) -> tuple[Array, Array]:
    """Keeps x with min(1, p(x) / q(x)), mends with max(0, p - q), adds from p; weights
    [B, G + 1, V] and [B, G, V]."""
    chance = jnp.minimum(1.0, block.ratios(draft, p, q))
    live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
    q = jnp.pad(jnp.where(live[..., None], q, 0.0), ((0, 0), (0, 1), (0, 0)))
    rest = jnp.maximum(p - q, 0.0)
    return chance, jnp.where(rest.any(-1, keepdims=True), rest, p)


def ratio(target: Law, draft: Draft) -> tuple[Array, Array]:
    """Algorithm 1, by the laws that target and draft carry."""
    q = block.draft_law(draft, target.logits.shape[-1])
    return tested(probs.dense(target), q, draft)


def argmax_of_ratio(target: Law, draft: Draft) -> tuple[Array, Array]:
    """The ratio of softmax laws at T = 1, and argmax wherever a token is drawn."""
    p, q = jax.nn.softmax(target.logits), jax.nn.softmax(draft.law.logits)
    chance, rows = tested(p, q, draft)
    best = jnp.argmax(rows, axis=-1)
    return chance, jax.nn.one_hot(best, rows.shape[-1], dtype=rows.dtype)


@functools.cache
def divided_by(temperature: float, guard: float) -> Callable:
    """Algorithm 1 with laws of softmax(logits / (temperature + guard))."""

    def rule(target: Law, draft: Draft) -> tuple[Array, Array]:
        laws = target.logits, draft.law.logits
        p, q = (jax.nn.softmax(logits / (temperature + guard)) for logits in laws)
        return tested(p, q, draft)

    return rule


@functools.cache
def truncated_first(sampling: Sampling) -> Callable:
    """For certain drafts: top-k and top-p at T = 1, the temperature after them; first
    for the token after a draft that is kept whole. sampling: one number a setting."""

    def rule(target: Law, draft: Draft) -> tuple[Array, Array]:
        full = [None if s is None else jnp.full(draft.num.shape, s) for s in sampling]
        at_1 = Sampling(jnp.ones_like(full[0]), *full[1:])
        cut = probs.standardize(target.logits, at_1)
        z = jnp.where(probs.dense(cut) > 0, target.logits, -jnp.inf)
        p = jax.nn.softmax(z / sampling.temperature)
        q = jax.nn.one_hot(draft.tokens, p.shape[-1], dtype=p.dtype)
        chance, rows = tested(p, q, draft)
        return chance, rows.at[:, -1].set(probs.dense(target)[:, -1])

    return rule


@functools.cache
def sigmoid(scale: float) -> Callable:
    """Weights 1 / (1 + exp(-(z - a) / (b - a))) for a = -scale, b = scale stand for p
    and for q; an id that a filter removed has a logit of -inf and so a weight of 0."""

    def weights(law: Law) -> Array:
        z = law.logits * law.scale[..., None]
        z = jnp.where(probs.dense(law) > 0, z, -jnp.inf)
        return jax.nn.sigmoid((z + scale) / (2 * scale))

    return lambda target, draft: tested(weights(target), weights(draft.law), draft)


def everything(target: Law, draft: Draft) -> tuple[Array, Array]:
    """Keeps every drafted token, whatever the laws: a control."""
    return jnp.ones(draft.tokens.shape), probs.dense(target)


def without_bonus(verifier: Verifier) -> Verifier:
    """The same rule in a loop that adds no token to a draft that is kept whole, whose
    last one takes the place of it, as a verdict has one."""

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        verdict = verifier.verify(target, draft, noise, keep_residual=True)
        whole = (verdict.num_accepted == draft.num) & (draft.num > 0)
        n = verdict.num_accepted - whole
        last = jnp.take_along_axis(verdict.tokens, n[:, None], axis=1)[:, 0]
        weights = verdict.residual
        only = jax.nn.one_hot(last, weights.shape[-1], dtype=weights.dtype)
        weights = jnp.where(whole[:, None], only, weights)
        slots = jnp.arange(verdict.tokens.shape[1])
        tokens = jnp.where(slots <= n[:, None], verdict.tokens, 0)
        residual = weights if keep_residual else None
        return verdict._replace(num_accepted=n, tokens=tokens, residual=residual)

    return Verifier(verifier.noise, verify, verifier.guarantee)
