"""The acceptance rules of other engines, each written here from its public description.

They are transcriptions into the types of this project, to be certified as our own rules
are; they are not the engines' code. A rule is a function (target, draft) -> (chance,
weights): the probability [B, G] that each token is kept, and the weights [B, G + 1, V]
that the token after n kept ones is drawn from. Left out are constants below 1e-6 that
guard a division, except where they are the rule's subject; batches of more than one
row; and arithmetic below float32. Most descriptions do not say what happens where a
residual is empty: here the target's weights replace it. p is the target, q the drafter.
Axes: B rows, G = gamma, V vocabulary.
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
    """Returns the verifier of a rule that stops at the first token that it rejects.

    A token is kept where u is below its chance; unless `strict`, also where u equals
    it, so that at u = 0 a token with no chance at all is kept.
    """

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


def test_draft(p: Array, q: Array, draft: Draft) -> tuple[Array, Array]:
    """Keeps x with probability min(1, p(x) / q(x)); the residual is max(0, p - q), and
    the extra token is drawn from p.

    Args:
        p: weights [B, G + 1, V].
        q: weights [B, G, V].
    """
    chance = jnp.minimum(1.0, block.ratios(draft, p, q))
    live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
    q = jnp.pad(jnp.where(live[..., None], q, 0.0), ((0, 0), (0, 1), (0, 0)))
    rest = jnp.maximum(p - q, 0.0)
    return chance, jnp.where(rest.any(-1, keepdims=True), rest, p)


def ratio(target: Law, draft: Draft) -> tuple[Array, Array]:
    """Applies Algorithm 1 to the laws that target and draft carry."""
    q = block.draft_law(draft, target.logits.shape[-1])
    return test_draft(probs.dense(target), q, draft)


def argmax_of_ratio(target: Law, draft: Draft) -> tuple[Array, Array]:
    """Applies the ratio to softmax laws at T = 1, and takes the argmax wherever a token
    should be drawn.
    """
    p, q = jax.nn.softmax(target.logits), jax.nn.softmax(draft.law.logits)
    chance, rows = test_draft(p, q, draft)
    best = jnp.argmax(rows, axis=-1)
    return chance, jax.nn.one_hot(best, rows.shape[-1], dtype=rows.dtype)


@functools.cache
def build_divided(temperature: float, guard: float) -> Callable:
    """Returns Algorithm 1 with the laws of softmax(logits / (temperature + guard))."""

    def rule(target: Law, draft: Draft) -> tuple[Array, Array]:
        laws = target.logits, draft.law.logits
        p, q = (jax.nn.softmax(logits / (temperature + guard)) for logits in laws)
        return test_draft(p, q, draft)

    return rule


@functools.cache
def build_truncated_first(sampling: Sampling) -> Callable:
    """Returns the rule that applies top-k and top-p at T = 1 and the temperature after
    them, for certain drafts.

    The token after a draft that is kept whole is drawn from the target's own law.

    Args:
        sampling: one number for each setting.
    """

    def rule(target: Law, draft: Draft) -> tuple[Array, Array]:
        full = [None if s is None else jnp.full(draft.num.shape, s) for s in sampling]
        at_1 = Sampling(jnp.ones_like(full[0]), *full[1:])
        cut = probs.standardize(target.logits, at_1)
        z = jnp.where(probs.dense(cut) > 0, target.logits, -jnp.inf)
        p = jax.nn.softmax(z / sampling.temperature)
        q = jax.nn.one_hot(draft.tokens, p.shape[-1], dtype=p.dtype)
        chance, rows = test_draft(p, q, draft)
        return chance, rows.at[:, -1].set(probs.dense(target)[:, -1])

    return rule


@functools.cache
def sigmoid(scale: float) -> Callable:
    """Returns the rule in which weights 1 / (1 + exp(-(z - a) / (b - a))), with a =
    -scale and b = scale, replace p and q.

    An id that a filter removed has a logit of -inf and therefore a weight of 0.
    """

    def weights(law: Law) -> Array:
        z = law.logits * law.scale[..., None]
        z = jnp.where(probs.dense(law) > 0, z, -jnp.inf)
        return jax.nn.sigmoid((z + scale) / (2 * scale))

    return lambda target, draft: test_draft(weights(target), weights(draft.law), draft)


def keep_everything(target: Law, draft: Draft) -> tuple[Array, Array]:
    """Keeps every drafted token, whatever the laws: a control."""
    return jnp.ones(draft.tokens.shape), probs.dense(target)


def without_bonus(verifier: Verifier) -> Verifier:
    """Returns the same rule in a loop that adds no token after a draft that is kept
    whole.

    A verdict must have an extra token, so the last drafted token takes its place.
    """

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
