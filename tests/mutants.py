"""Wrong verifiers, each one line away from the right one, that certificates must catch.

`verify` is Algorithm 1 as in `specjax/verifiers/token.py`; `wrong` names the line that
is broken. Most are bugs that some implementation had.
Axes: B rows, G = gamma, V vocabulary.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import token


class Mutant(NamedTuple):
    """check: the check of `specjax.certify` that catches it, on the named fixture."""

    name: str
    check: str
    fixture: str = "random"


MUTANTS = (
    Mutant("residual is p", "law"),
    Mutant("residual is |p - q|", "law"),
    Mutant("residual of the slot before", "law"),
    Mutant("residual floored", "law"),
    Mutant("residual keeps a certain token", "law", "certain"),
    Mutant("residual without fallback", "support", "p = q, other logits"),
    Mutant("bonus from q", "law"),
    Mutant("no bonus", "per_call"),  # lossless, only slower
    Mutant("accepts if p >= q", "law"),
    Mutant("accepts with p", "law"),
    Mutant("accepts with q / p", "law"),
    Mutant("accepts at equality", "support"),  # u = 0 and p(x) = 0
    Mutant("accepts by q sharpened", "law"),
    Mutant("target row off by one", "law"),
    Mutant("goes on after a rejection", "law"),
    Mutant("whole batch stops together", "law"),
    Mutant("reads past the draft's end", "law", "ragged"),
    Mutant("one uniform for the block", "cells"),  # the law alone may look right
    Mutant("extra token by the accept uniform", "tokens"),  # its residual is right
    Mutant("reports an unclipped ratio", "accept_prob"),
)


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual=False, *, wrong: str
) -> Verdict:
    """`verifiers.token.verify` with one line replaced."""
    gamma = draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    if wrong == "reads past the draft's end":
        live = jnp.ones_like(live)
    if wrong == "accepts by q sharpened":
        settings = Sampling(jnp.full(draft.num.shape, 0.5))
        draft = draft._replace(law=probs.standardize(draft.law.logits, settings))
    rows = jax.tree.map(lambda leaf: leaf[:, 1:], target)
    if wrong != "target row off by one":
        rows = probs.first(target, gamma)
    p_x = probs.at(rows, draft.tokens)
    q_x = jnp.ones_like(p_x) if draft.law is None else probs.at(draft.law, draft.tokens)
    u = noise.accept
    accepted = {
        "accepts if p >= q": p_x >= q_x,
        "accepts with p": u < p_x,
        "accepts with q / p": u * p_x < q_x,
        "accepts at equality": u * q_x <= p_x,
        "one uniform for the block": u[:, :1] * q_x < p_x,
    }.get(wrong, u * q_x < p_x)
    kept = jnp.cumprod(accepted & live, axis=1)
    if wrong == "goes on after a rejection":
        kept = accepted & live
    n = jnp.sum(kept, axis=1, dtype=jnp.int32)
    if wrong == "whole batch stops together":
        n = jnp.full_like(n, jnp.min(n))

    weights = residual(target, draft, n, wrong)
    if wrong == "no bonus":  # the last accepted token takes the extra one's place
        whole = (n == draft.num) & (n > 0)
        n = n - whole
        last = jnp.take_along_axis(draft.tokens, n[:, None], axis=1)
        only = jax.nn.one_hot(last[:, 0], weights.shape[-1])
        weights = jnp.where(whole[:, None], only, weights)
    sample = noise.sample
    if wrong == "extra token by the accept uniform":
        at = jnp.minimum(n, gamma - 1)[:, None]
        sample = jnp.tile(jnp.take_along_axis(u, at, axis=1), (1, 2))
    extra = probs.pick(weights, sample)

    slots = jnp.arange(gamma + 1)
    tokens = jnp.where(slots < n[:, None], jnp.pad(draft.tokens, ((0, 0), (0, 1))), 0)
    tokens = jnp.where(slots == n[:, None], extra[:, None], tokens)
    ratio = p_x / jnp.where(q_x > 0, q_x, 1.0)
    if wrong != "reports an unclipped ratio":
        ratio = jnp.minimum(1.0, ratio)
    return Verdict(n, tokens, jnp.where(live, ratio, 0.0), residual=weights)


def residual(target: Law, draft: Draft, n: Array, wrong: str) -> Array:
    """What the extra token is drawn from, [B, V]."""
    p = probs.dense(probs.take(target, n))
    at = jnp.minimum(n, draft.tokens.shape[1] - 1)
    if wrong == "residual of the slot before":
        at = jnp.maximum(at - 1, 0)
    if draft.law is None:
        drafted = jnp.take_along_axis(draft.tokens, at[:, None], axis=1)[:, 0]
        q = jax.nn.one_hot(drafted, p.shape[-1])
    else:
        q = probs.dense(probs.take(draft.law, at))
    rejected = (n < draft.num)[:, None]
    if wrong == "bonus from q":
        p = jnp.where(rejected, p, q)
    q = jnp.where(rejected, q, 0.0)
    weights = {
        "residual is p": p,
        "residual keeps a certain token": p,
        "residual is |p - q|": jnp.abs(p - q),
        "residual floored": jnp.maximum(p - q, 0.05),
    }.get(wrong, jnp.maximum(p - q, 0.0))
    if wrong == "residual without fallback":
        return weights
    return jnp.where(weights.any(axis=1, keepdims=True), weights, p)


@functools.cache
def build(name: str) -> Verifier:
    """The mutant of this name; "" breaks nothing."""
    return Verifier(token.noise, functools.partial(verify, wrong=name))


def shared_noise(key: Array, start: Array, gamma: int, vocab: int) -> token.Noise:
    """One accept uniform for all slots: seen in the noise alone."""
    right = token.noise(key, start, gamma, vocab)
    return right._replace(accept=jnp.tile(right.accept[:, :1], (1, gamma)))


def reused_noise(key: Array, start: Array, gamma: int, vocab: int) -> token.Noise:
    """The extra token drawn with the key that decided the first slot."""
    right = token.noise(key, start, gamma, vocab)
    same = keys.uniform(keys.purpose(key, keys.ACCEPT), 0)
    return right._replace(sample=right.sample.at[:, 1].set(same))


def coarse_noise(key: Array, start: Array, gamma: int, vocab: int) -> token.Noise:
    """bfloat16 uniforms: 128 values, 0 one time in 128."""
    right = token.noise(key, start, gamma, vocab)
    return jax.tree.map(lambda u: jnp.floor(u * 128) / 128, right)


NOISES = (shared_noise, reused_noise, coarse_noise)
