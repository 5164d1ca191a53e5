"""Wrong verifiers, each one line away from the right one, that certificates must catch.

Here those of Algorithm 1, and drafts drawn from another law than they carry;
`mutants_joint` has those of the other verifiers, `sampled_mutants` what only sampling
sees. `verify` is Algorithm 1 as in `specjax/verifiers/token.py`; `wrong` names the line
that is broken. Most are bugs that some implementation had.
Axes: B rows, G = gamma, V vocabulary.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs
from specjax.exactness.fixtures import Fixture, reference, trials
from specjax.types import Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import token


class Mutant(NamedTuple):
    """name: what is wrong. check: of `specjax.exactness.certify`, which catches it on
    the named fixture. rule: the verifier that it is a mutant of."""

    name: str
    check: str
    fixture: str = "random"
    rule: str = "token"


MUTANTS = (
    Mutant("residual is p", "law"),
    Mutant("residual is |p - q|", "law"),
    Mutant("residual of the slot before", "law"),
    Mutant("residual floored", "law"),
    Mutant("residual keeps a certain token", "law", "certain"),
    Mutant("residual without fallback", "support", "p = q, other logits"),
    Mutant("residual of an overwritten p", "law"),
    Mutant("bonus from q", "law"),
    Mutant("bonus from a residual", "law"),
    Mutant("bonus of the row before", "law"),
    Mutant("bonus from the raw logits", "support", "T 0.7, top-k 2"),
    Mutant("no bonus", "per_call"),  # lossless, only slower
    Mutant("accepts everything", "law"),
    Mutant("accepts if p >= q", "law"),
    Mutant("accepts with p", "law"),
    Mutant("accepts with q / p", "law"),
    Mutant("accepts at equality", "support"),  # u = 0 and p(x) = 0
    Mutant("accepts by q sharpened", "law"),
    Mutant("target row off by one", "law"),
    Mutant("goes on after a rejection", "law"),
    Mutant("whole batch stops together", "law"),
    Mutant("reads past the draft's end", "law", "ragged"),
    Mutant("drops a drafted token for its value", "law"),
    Mutant("one uniform for the block", "cells"),  # the law alone may look right
    Mutant("extra token by the accept uniform", "tokens"),  # its residual is right
    Mutant("reports an unclipped ratio", "accept_prob"),
    Mutant("drafts by argmax, compares with q", "law", "drawn by argmax"),
    Mutant("drafts sharper than q", "law", "drawn sharper"),
    Mutant("drafts from the top 2 of q", "law", "drawn from the top 2"),
    Mutant("drafts from q in bfloat16", "law", "drawn in bfloat16"),
)


@functools.cache
def fixtures() -> dict[str, tuple[Fixture, int]]:
    """name -> (fixture, gamma): those of the certificate, and drafts of another law."""
    known = {trial.fixture.name: (trial.fixture, trial.gamma) for trial in trials()}
    plain, gamma = known["random"]

    def rounded(prefix: tuple) -> np.ndarray:
        q = np.float64(np.asarray(reference(plain.draft(prefix), Sampling(1.0)), "f4"))
        q = np.float64(jnp.asarray(q, jnp.bfloat16))
        return q / q.sum()

    other = {
        "drawn by argmax": lambda x: reference(plain.draft(x), Sampling(0.0)),
        "drawn sharper": lambda x: reference(plain.draft(x), Sampling(0.7)),
        "drawn from the top 2": lambda x: reference(plain.draft(x), Sampling(1.0, 2)),
        "drawn in bfloat16": rounded,
    }
    drawn = {name: (plain._replace(drawn=law), gamma) for name, law in other.items()}
    return known | drawn


def verify(
    target: Law, draft: Draft, noise: token.Noise, keep_residual=False, *, wrong: str
) -> Verdict:
    """`verifiers.token.verify` with one line replaced."""
    gamma = draft.tokens.shape[1]
    if wrong == "drops a drafted token for its value":
        unlikely = probs.at(draft.law, draft.tokens)[:, -1] < 0.3
        draft = draft._replace(num=draft.num - (unlikely & (draft.num == gamma)))
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
        "accepts everything": jnp.ones_like(live),
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
    tokens = token.emit(draft, n, probs.pick(weights, sample))
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
    bonus = {
        "bonus from q": q,
        "bonus from a residual": jnp.maximum(p - q, 0.0),
        "bonus of the row before": probs.dense(
            probs.take(target, jnp.maximum(n, 1) - 1)
        ),
        "bonus from the raw logits": jax.nn.softmax(probs.take(target, n).logits),
    }.get(wrong, p)
    p = jnp.where(rejected, p, bonus)
    q = jnp.where(rejected, q, 0.0)
    weights = {
        "residual is p": p,
        "residual keeps a certain token": p,
        "residual is |p - q|": jnp.abs(p - q),
        "residual floored": jnp.maximum(p - q, 0.05),
        # The acceptance wrote its ratio where the residual looks for p.
        "residual of an overwritten p": jnp.where(
            rejected, jnp.maximum(p / jnp.where(q > 0, q, 1.0) - q, 0.0), p
        ),
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
    same = keys.uniform(keys.purpose(keys.iteration(key, start), keys.ACCEPT), 0)
    return right._replace(sample=right.sample.at[:, 1].set(same))


def coarse_noise(key: Array, start: Array, gamma: int, vocab: int) -> token.Noise:
    """bfloat16 uniforms: 128 values, 0 one time in 128."""
    right = token.noise(key, start, gamma, vocab)
    return jax.tree.map(lambda u: jnp.floor(u * 128) / 128, right)


NOISES = (shared_noise, reused_noise, coarse_noise)
