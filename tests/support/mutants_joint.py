"""Wrong block, rejection, match and gumbel verifiers that certificates must catch.

Each is the verifier's own code, with its arguments or its verdict wrong, or with one
line replaced. Axes: B rows, G = gamma, V vocabulary.
"""

import functools

import jax.numpy as jnp
from jax import Array

from specjax import probs, verifiers
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import block, gumbel, match, rejection, token
from tests.support.mutants import Mutant

MUTANTS = (
    Mutant("the last ratio is not capped", "law", rule="block"),
    Mutant("stops at the first failure", "law", rule="block"),
    Mutant("residual without its weight", "law", rule="block"),
    Mutant("residual sums of the row before", "law", rule="block"),
    Mutant("the whole draft is kept as by Algorithm 1", "law", rule="block"),
    Mutant("accepts at equality", "support", rule="block"),
    Mutant("residual is p - q", "law", "early exit of a gpt", rule="rejection"),
    Mutant("accepts with p / q", "law", rule="rejection"),
    Mutant("M over the ids that q prefers", "law", rule="rejection"),
    Mutant("draws again on a mismatch", "path", rule="match"),
    Mutant("keeps a draft as likely as its own token", "law", rule="match"),
    Mutant("compares with the slot before", "path", rule="match"),
    Mutant("races without the temperature", "law", "T 0.7, min-p 0.3", rule="gumbel"),
    Mutant("races by probability", "path", rule="gumbel"),
    Mutant("emits the draft on a mismatch", "path", rule="gumbel"),
)


def wrong_block(
    target: Law, draft: Draft, noise: token.Noise, keep_residual=False, *, wrong: str
) -> Verdict:
    """`verifiers.block.verify`, written with a loop, with one line replaced."""
    del keep_residual
    gamma = draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    p, q = probs.dense(target), block.drafted_law(draft, target.logits.shape[-1])
    ratio = block.ratios(draft, p, q)
    q = jnp.pad(jnp.where(live[..., None], q, 0.0), ((0, 0), (0, 1), (0, 0)))
    w = [jnp.ones_like(p[:, 0, 0])]
    for i in range(gamma):
        w.append(jnp.minimum(1.0, w[-1] * ratio[:, i]))
    if wrong == "the last ratio is not capped":
        product = jnp.cumprod(ratio, axis=1)[:, -1]
        w[-1] = jnp.minimum(1.0, product)
    w = jnp.stack(w, axis=1)
    rest = jnp.maximum(w[..., None] * p - q, 0.0)
    s = rest.sum(-1)
    s = s[:, :-1] if wrong == "residual sums of the row before" else s[:, 1:]
    below = s + 1 - w[:, 1:]
    h = jnp.where(below > 0, s / jnp.where(below > 0, below, 1.0), 1.0)
    last = ratio if wrong == "the whole draft is kept as by Algorithm 1" else w[:, 1:]
    h = jnp.where(jnp.arange(1, gamma + 1) == draft.num[:, None], last, h)
    h = jnp.minimum(1.0, h)
    kept = (noise.accept < h) & live
    if wrong == "accepts at equality":
        kept = (noise.accept <= h) & live
    n = jnp.max(jnp.where(kept, jnp.arange(1, gamma + 1), 0), axis=1, initial=0)
    if wrong == "stops at the first failure":
        n = jnp.sum(jnp.cumprod(kept, axis=1), axis=1, dtype=jnp.int32)
    if wrong == "residual without its weight":
        rest = jnp.maximum(p - q, 0.0)
    rows = jnp.arange(n.size)
    weights = rest[rows, n]
    weights = jnp.where(weights.any(axis=1, keepdims=True), weights, p[rows, n])
    tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
    return Verdict(n, tokens, jnp.where(live, h, 0.0), residual=weights)


def wrong_rejection(
    target: Law, draft: Draft, noise: token.Noise, keep_residual=False, *, wrong: str
) -> Verdict:
    if wrong == "accepts with p / q":
        right = token.verify(target, draft, noise, True)
        weights = probs.dense(probs.take(target, right.num_accepted))
        extra = probs.pick(weights, noise.sample)
        tokens = token.emit(draft, right.num_accepted, extra)
        return right._replace(tokens=tokens, residual=weights)
    p, q = probs.dense(target), block.drafted_law(draft, target.logits.shape[-1])
    if wrong == "M over the ids that q prefers":
        gamma = draft.tokens.shape[1]
        liked = (q > 1 / q.shape[-1]) & (p[:, :gamma] > 0)
        ratio = jnp.where(liked, q / jnp.where(liked, p[:, :gamma], 1.0), 1.0)
        chance = jnp.minimum(1.0, ratio.min(-1) * block.ratios(draft, p, q))
        live = jnp.arange(gamma) < draft.num[:, None]
        chance = jnp.where(live, chance, 0.0)
        kept = noise.accept < chance
        n = jnp.sum(jnp.cumprod(kept, axis=1), axis=1, dtype=jnp.int32)
        weights = p[jnp.arange(n.size), n]
        tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
        return Verdict(n, tokens, chance, residual=weights)
    right = rejection.verify(target, draft, noise, keep_residual)
    if wrong != "residual is p - q":
        return right
    n, rows = right.num_accepted, jnp.arange(right.num_accepted.size)
    taken = token.rejected_law(draft, n, p.shape[-1])
    weights = jnp.maximum(p[rows, n] - taken, 0.0)
    weights = jnp.where(weights.any(axis=1, keepdims=True), weights, p[rows, n])
    tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
    return right._replace(tokens=tokens, residual=weights)


def wrong_match(
    target: Law, draft: Draft, noise: match.Noise, keep_residual=False, *, wrong: str
) -> Verdict:
    right = match.verify(target, draft, noise, keep_residual)
    gamma, n = draft.tokens.shape[1], right.num_accepted
    if wrong == "draws again on a mismatch":
        p = probs.dense(probs.take(target, n))
        extra = probs.pick(p, noise.sample[:, 0, ::-1])
        return right._replace(tokens=token.emit(draft, n, extra), residual=p)
    y = every(target, noise)
    if wrong == "keeps a draft as likely as its own token":
        rows = probs.first(target, gamma)
        near = probs.at(rows, draft.tokens) >= probs.at(rows, y[:, :gamma])
        y = y.at[:, :gamma].set(jnp.where(near, draft.tokens, y[:, :gamma]))
    if wrong == "compares with the slot before":
        y = jnp.roll(y, 1, axis=1)
    return match.keep(target, draft, y, keep_residual)


def every(target: Law, noise: match.Noise) -> Array:
    """The target's own tokens, [B, G + 1]."""
    p = probs.dense(target)
    flat = probs.pick(p.reshape(-1, p.shape[-1]), noise.sample.reshape(-1, 2))
    return flat.reshape(p.shape[:2])


def wrong_gumbel(
    target: Law, draft: Draft, noise: Array, keep_residual=False, *, wrong: str
) -> Verdict:
    if wrong == "races without the temperature":
        y = probs.race(target._replace(scale=jnp.ones_like(target.scale)), noise)
        return match.keep(target, draft, y, keep_residual)
    if wrong == "races by probability":
        y = jnp.argmax(probs.dense(target) + noise, axis=-1)
        return match.keep(target, draft, y, keep_residual)
    right = gumbel.verify(target, draft, noise, keep_residual)
    if wrong != "emits the draft on a mismatch":
        return right
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
    n, slots = right.num_accepted[:, None], jnp.arange(drafted.shape[1])
    there = (slots == n) & (n < draft.num[:, None])
    return right._replace(tokens=jnp.where(there, drafted, right.tokens))


WRONG = {
    "block": wrong_block,
    "rejection": wrong_rejection,
    "match": wrong_match,
    "gumbel": wrong_gumbel,
}


@functools.cache
def build(rule: str, name: str) -> Verifier:
    """The mutant of this name; "" breaks nothing."""
    verify = functools.partial(WRONG[rule], wrong=name)
    return verifiers.named(rule)._replace(verify=verify)
