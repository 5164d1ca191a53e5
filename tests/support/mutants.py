"""Wrong verifiers, each one line away from the right one, that certificates must catch.

And drafts drawn from another law than they carry; `sampled_mutants` has what only
sampling sees. Most are bugs that some implementation had. The number of a mutant is an
argument: one program serves all those of a rule.
Axes: B rows, G = gamma, V vocabulary.
"""

import contextvars
import functools
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs, verifiers
from specjax.exactness import certify, fixtures
from specjax.exactness.claims import CLAIMS, Claim
from specjax.exactness.fixtures import reference
from specjax.types import Draft, Law, Reduced, Sampling, Table, Verdict, Verifier
from specjax.verifiers import (
    block,
    greedy_block,
    gumbel,
    kseq,
    match,
    recursive,
    rejection,
    token,
)


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
    Mutant("q of the tokens of both is not renormalised", "law", "common"),
    Mutant("q of another token of both", "law", "common"),
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
    Mutant("q of a sibling is not renormalised", "law", "tree", "recursive"),
    Mutant("q of a sibling keeps the one before", "law", "tree", "recursive"),
    Mutant("rows of another branch", "law", "tree", "recursive"),
    Mutant("forgets a rejected sibling", "law", "tree", "recursive"),
    Mutant("residual of the first child alone", "law", "tree", "recursive"),
    Mutant("accepts by another number of siblings", "law", "tree, replaced", "kseq"),
    Mutant("residual of recursive rejection", "law", "tree, replaced", "kseq"),
    Mutant("rho beside the root", "law", "tree, replaced", "kseq"),
    Mutant("residual without its weight", "law", "tree", "traversal"),
    Mutant("keeps the chance that it had", "law", "tree", "traversal"),
    Mutant("goes on with what was left of q", "law", "tree", "traversal"),
    Mutant("judges the best by q", "law", "tree, replaced", "greedy_block"),
    Mutant("the best of one more", "law", "tree, replaced", "greedy_block"),
    Mutant("counts two that agree once", "law", "tree, replaced", "greedy_block"),
)
NUMBERS = {name: i for i, name in enumerate(("", *(each.name for each in MUTANTS)))}


@functools.cache
def trials() -> dict[str, fixtures.Trial]:
    """Those of the certificate by name, and drafts of another law."""
    every = [*fixtures.trials(), *fixtures.tree_trials()]
    known = {trial.fixture.name: trial for trial in every}
    plain = known["random"].fixture

    def rounded(prefix: tuple) -> np.ndarray:
        q = np.float64(np.asarray(reference(plain.draft(prefix), Sampling(1.0)), "f4"))
        q = np.float64(jnp.asarray(q, jnp.bfloat16))
        return q / q.sum()

    for name, law in {
        "drawn by argmax": lambda x: reference(plain.draft(x), Sampling(0.0)),
        "drawn sharper": lambda x: reference(plain.draft(x), Sampling(0.7)),
        "drawn from the top 2": lambda x: reference(plain.draft(x), Sampling(1.0, 2)),
        "drawn in bfloat16": rounded,
    }.items():
        wrong = plain._replace(drawn=law)
        known[name] = known["random"]._replace(fixture=wrong)
    return known


# Rules with one line replaced, by the number of a mutant; 0 breaks nothing.


def swapped(wrong, right, others: dict):
    """`right`, an array or a tree of them, or what the mutant `wrong` has there."""
    for name, other in others.items():
        here = wrong == NUMBERS[name]
        right = jax.tree.map(lambda a, b, h=here: jnp.where(h, b, a), right, other)
    return right


def wrong_token(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    either, gamma = functools.partial(swapped, wrong), draft.tokens.shape[1]
    if draft.law is not None and not isinstance(draft.law.logits, Table):
        unlikely = probs.at(draft.law, draft.tokens)[:, -1] < 0.3
        shorter = draft.num - (unlikely & (draft.num == gamma))
        settings = Sampling(jnp.full(draft.num.shape, 0.5))
        sharp = probs.standardize(draft.law.logits, settings)
        draft = draft._replace(
            num=either(draft.num, {"drops a drafted token for its value": shorter}),
            law=either(draft.law, {"accepts by q sharpened": sharp}),
        )
    if draft.law is not None and isinstance(draft.law.logits, Reduced):
        draft = draft._replace(law=either(draft.law, wrong_ids(draft.law)))
    live = jnp.arange(gamma) < draft.num[:, None]
    live = either(live, {"reads past the draft's end": jnp.ones_like(live)})
    late = jax.tree.map(lambda leaf: leaf[:, 1:], target)
    rows = either(probs.first(target, gamma), {"target row off by one": late})
    p_x, u = probs.at(rows, draft.tokens), noise.accept
    q_x = jnp.ones_like(p_x) if draft.law is None else probs.at(draft.law, draft.tokens)
    accepted = either(
        u * q_x < p_x,
        {
            "accepts everything": jnp.ones_like(live),
            "accepts if p >= q": p_x >= q_x,
            "accepts with p": u < p_x,
            "accepts with q / p": u * p_x < q_x,
            "accepts at equality": u * q_x <= p_x,
            "one uniform for the block": u[:, :1] * q_x < p_x,
        },
    )
    accepted &= live
    kept = jnp.cumprod(accepted, axis=1)
    kept = either(kept, {"goes on after a rejection": accepted})
    n = jnp.sum(kept, axis=1, dtype=jnp.int32)
    n = either(n, {"whole batch stops together": jnp.full_like(n, jnp.min(n))})

    weights = residual(target, draft, n, either)
    whole = (n == draft.num) & (n > 0)  # the last one kept takes the extra one's place
    last = jnp.take_along_axis(draft.tokens, (n - whole)[:, None], axis=1)[:, 0]
    only = jax.nn.one_hot(last, weights.shape[-1])
    only = jnp.where(whole[:, None], only, weights)
    n, weights = either((n, weights), {"no bonus": (n - whole, only)})
    coin = jnp.take_along_axis(u, jnp.minimum(n, gamma - 1)[:, None], axis=1)
    coin = {"extra token by the accept uniform": jnp.tile(coin, (1, 2))}
    tokens = token.emit(draft, n, probs.pick(weights, either(noise.sample, coin)))
    ratio = p_x / jnp.where(q_x > 0, q_x, 1.0)
    ratio = either(jnp.minimum(1.0, ratio), {"reports an unclipped ratio": ratio})
    return Verdict(n, tokens, jnp.where(live, ratio, 0.0), residual=weights)


def wrong_ids(law: Law) -> dict[str, Law]:
    """Of a draft that says some of the ids: with the mass of the others, or by the
    order of its own ids."""
    turned = law.logits._replace(place=jnp.roll(law.logits.place, 1))
    return {
        "q of the tokens of both is not renormalised": law._replace(lse=law.lse + 0.5),
        "q of another token of both": law._replace(logits=turned),
    }


def residual(target: Law, draft: Draft, n: Array, either) -> Array:
    """What the extra token is drawn from, [B, V]."""
    p = probs.dense(probs.take(target, n))
    at = jnp.minimum(n, draft.tokens.shape[1] - 1)
    at = either(at, {"residual of the slot before": jnp.maximum(at - 1, 0)})
    if draft.law is None:
        drafted = jnp.take_along_axis(draft.tokens, at[:, None], axis=1)[:, 0]
        q = jax.nn.one_hot(drafted, p.shape[-1])
    else:
        q = probs.dense(probs.take(draft.law, at))
    rejected = (n < draft.num)[:, None]
    before = probs.dense(probs.take(target, jnp.maximum(n, 1) - 1))
    bonus = {
        "bonus from q": q,
        "bonus from a residual": jnp.maximum(p - q, 0.0),
        "bonus of the row before": before,
        "bonus from the raw logits": jax.nn.softmax(probs.take(target, n).logits),
    }
    p = jnp.where(rejected, p, either(p, bonus))
    q = jnp.where(rejected, q, 0.0)
    # The acceptance wrote its ratio where the residual looks for p.
    overwritten = jnp.maximum(p / jnp.where(q > 0, q, 1.0) - q, 0.0)
    wrong = {
        "residual is p": p,
        "residual keeps a certain token": p,
        "residual is |p - q|": jnp.abs(p - q),
        "residual floored": jnp.maximum(p - q, 0.05),
        "residual of an overwritten p": jnp.where(rejected, overwritten, p),
    }
    weights = either(jnp.maximum(p - q, 0.0), wrong)
    return either(or_p(weights, p), {"residual without fallback": weights})


def or_p(weights: Array, p: Array) -> Array:
    """[B, V]: p where nothing is left to draw from."""
    return jnp.where(weights.any(axis=1, keepdims=True), weights, p)


def verdict_of(draft: Draft, n: Array, chance: Array, weights: Array, noise) -> Verdict:
    tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
    return Verdict(n, tokens, chance, residual=weights)


def wrong_block(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    """`verifiers.block.verify`, written with a loop."""
    either, gamma = functools.partial(swapped, wrong), draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    p, q = probs.dense(target), block.drafted_law(draft, target.logits.shape[-1])
    ratio = block.ratios(draft, p, q)
    q = jnp.pad(jnp.where(live[..., None], q, 0.0), ((0, 0), (0, 1), (0, 0)))
    w = [jnp.ones_like(p[:, 0, 0])]
    for i in range(gamma):
        w.append(jnp.minimum(1.0, w[-1] * ratio[:, i]))
    product = jnp.minimum(1.0, jnp.prod(ratio, axis=1))
    w[-1] = either(w[-1], {"the last ratio is not capped": product})
    w = jnp.stack(w, axis=1)
    rest = jnp.maximum(w[..., None] * p - q, 0.0)
    s = rest.sum(-1)
    s = either(s[:, 1:], {"residual sums of the row before": s[:, :-1]})
    below = s + 1 - w[:, 1:]
    h = jnp.where(below > 0, s / jnp.where(below > 0, below, 1.0), 1.0)
    last = either(w[:, 1:], {"the whole draft is kept as by Algorithm 1": ratio})
    h = jnp.where(jnp.arange(1, gamma + 1) == draft.num[:, None], last, h)
    h = jnp.minimum(1.0, h)
    kept = either(noise.accept < h, {"accepts at equality": noise.accept <= h}) & live
    n = jnp.max(jnp.where(kept, jnp.arange(1, gamma + 1), 0), axis=1, initial=0)
    first = jnp.sum(jnp.cumprod(kept, axis=1), axis=1, dtype=jnp.int32)
    n = either(n, {"stops at the first failure": first})
    plain = {"residual without its weight": jnp.maximum(p - q, 0.0)}
    rows = jnp.arange(n.size)
    weights = or_p(either(rest, plain)[rows, n], p[rows, n])
    return verdict_of(draft, n, jnp.where(live, h, 0.0), weights, noise)


def wrong_rejection(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    right = rejection.verify(target, draft, noise, True)
    p, q = probs.dense(target), block.drafted_law(draft, target.logits.shape[-1])
    rows, gamma = jnp.arange(right.num_accepted.size), draft.tokens.shape[1]
    by_token = token.verify(target, draft, noise, True)
    n = by_token.num_accepted
    by_token = verdict_of(draft, n, by_token.accept_prob, p[rows, n], noise)

    liked = (q > 1 / q.shape[-1]) & (p[:, :gamma] > 0)
    ratio = jnp.where(liked, q / jnp.where(liked, p[:, :gamma], 1.0), 1.0)
    chance = jnp.minimum(1.0, ratio.min(-1) * block.ratios(draft, p, q))
    chance = jnp.where(jnp.arange(gamma) < draft.num[:, None], chance, 0.0)
    kept = jnp.cumprod(noise.accept < chance, axis=1)
    n = jnp.sum(kept, axis=1, dtype=jnp.int32)
    by_liked = verdict_of(draft, n, chance, p[rows, n], noise)

    n = right.num_accepted
    taken = token.rejected_law(draft, n, p.shape[-1])
    weights = or_p(jnp.maximum(p[rows, n] - taken, 0.0), p[rows, n])
    others = {
        "residual is p - q": verdict_of(draft, n, right.accept_prob, weights, noise),
        "accepts with p / q": by_token,
        "M over the ids that q prefers": by_liked,
    }
    return swapped(wrong, right, others)


def wrong_match(wrong, target: Law, draft: Draft, noise: match.Noise) -> Verdict:
    right = match.verify(target, draft, noise, True)
    gamma, n, p = draft.tokens.shape[1], right.num_accepted, probs.dense(target)
    own = p[jnp.arange(n.size), n]
    extra = probs.pick(own, noise.sample[:, 0, ::-1])
    again = right._replace(tokens=token.emit(draft, n, extra), residual=own)
    y = probs.pick(p.reshape(-1, p.shape[-1]), noise.sample.reshape(-1, 2))
    y, rows = y.reshape(p.shape[:2]), probs.first(target, gamma)
    near = probs.at(rows, draft.tokens) >= probs.at(rows, y[:, :gamma])
    likely = y.at[:, :gamma].set(jnp.where(near, draft.tokens, y[:, :gamma]))
    keep = functools.partial(match.keep, target, draft, keep_residual=True)
    others = {
        "draws again on a mismatch": again,
        "keeps a draft as likely as its own token": keep(likely),
        "compares with the slot before": keep(jnp.roll(y, 1, axis=1)),
    }
    return swapped(wrong, right, others)


def wrong_gumbel(wrong, target: Law, draft: Draft, noise: Array) -> Verdict:
    right = gumbel.verify(target, draft, noise, True)
    cold = target._replace(scale=jnp.ones_like(target.scale))
    likely = jnp.argmax(probs.dense(target) + noise, axis=-1).astype(jnp.int32)
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
    n, slots = right.num_accepted[:, None], jnp.arange(drafted.shape[1])
    there = (slots == n) & (n < draft.num[:, None])
    emitted = right._replace(tokens=jnp.where(there, drafted, right.tokens))
    keep = functools.partial(match.keep, target, draft, keep_residual=True)
    others = {
        "races without the temperature": keep(probs.race(cold, noise)),
        "races by probability": keep(likely),
        "emits the draft on a mismatch": emitted,
    }
    return swapped(wrong, right, others)


# Rules for trees are the library's own, of whose parts some are replaced.


def wrong_recursive(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    either, right = functools.partial(swapped, wrong), recursive.without
    residual = recursive.rest

    def without(q: Array, x: Array) -> Array:
        further = {"q of a sibling keeps the one before": q}
        raw = q.at[jnp.arange(x.size), x].set(0.0)
        further |= {"q of a sibling is not renormalised": raw}
        return either(right(q, x), further)

    def rest(r: Array, q: Array) -> Array:
        left = residual(r, q)
        drawn = (q[:, None] == probs.dense(draft.law)).all(-1)
        once = jnp.where(drawn.any(-1, keepdims=True), left, r)  # of a first child
        others = {"forgets a rejected sibling": r}
        return either(left, others | {"residual of the first child alone": once})

    rows = np.maximum(np.arange(target.logits.shape[1]) - 1, 0)
    beside = jax.tree.map(lambda leaf: leaf[:, rows], target)
    target = either(target, {"rows of another branch": beside})
    with mock.patch.multiple(recursive, without=without, rest=rest):
        return recursive.verifier.verify(target, draft, noise, True)


def wrong_traversal(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    """`verifiers.traversal.verify` of the tree that the root's first child has one
    child and its second none: those three nodes in their order."""
    if draft.parent is None:
        return block.verify(target, draft, noise, True)
    either, batch = functools.partial(swapped, wrong), draft.num.shape[0]
    rows, p = jnp.arange(batch), probs.dense(target)
    root, first = p[:, 0], p[:, 1]
    q = [probs.dense(probs.take(draft.law, jnp.full(batch, i))) for i in range(3)]
    x, u = draft.tokens, noise.accept
    live = jnp.arange(3) < draft.num[:, None]

    def at(law: Array, i: int) -> Array:
        return law[rows, x[:, i]]

    def reject(w: Array, r: Array, q: Array) -> tuple[Array, Array]:
        s = jnp.maximum(w[:, None] * r - q, 0.0)
        plain = jnp.maximum(r - q, 0.0)
        s = either(s, {"residual without its weight": plain})
        mass = s.sum(-1)
        below = mass + 1 - w
        rest = jnp.where(below > 0, mass / jnp.where(below > 0, below, 1.0), 1.0)
        rest = either(rest, {"keeps the chance that it had": w})
        return rest, or_p(s, r) / or_p(s, r).sum(-1, keepdims=True)

    one = jnp.ones(batch)
    own = recursive.proposal(q[0], x[:, 0])
    w0 = jnp.minimum(1.0, at(root, 0) / at(own, 0))
    low = recursive.proposal(q[2], x[:, 2])
    w2 = jnp.minimum(1.0, w0 * at(first, 2) / at(low, 2))
    after, left = reject(w0, first, low)
    w0 = jnp.where(live[:, 2], after, w0)
    first = jnp.where(live[:, 2, None], left, first)
    _, second_root = reject(one, root, own)
    further = recursive.without(q[0], x[:, 0])
    further = either(further, {"goes on with what was left of q": q[0]})
    further = recursive.proposal(further, x[:, 1])
    w1 = jnp.minimum(1.0, at(second_root, 1) / at(further, 1))
    _, third_root = reject(one, second_root, further)
    chance = jnp.stack([w0, w1, w2], axis=1) * live
    kept = (u < chance) & live
    deep, mid = kept[:, 2], kept[:, 0]
    side = kept[:, 1]
    n = jnp.where(deep, 2, jnp.where(mid | side, 1, 0))
    lead = jnp.where(deep | mid, 0, 1)
    path = jnp.stack([lead, jnp.full(batch, 2), jnp.full(batch, 2)], axis=1)
    path = jnp.where(jnp.arange(3) < n[:, None], path, jnp.arange(3))
    none = jnp.where(live[:, 1, None], third_root, second_root)
    none = jnp.where(live[:, 0, None], none, root)
    weights = jnp.where(side[:, None], p[:, 2], none)
    weights = jnp.where(mid[:, None], first, weights)
    weights = jnp.where(deep[:, None], p[:, 3], weights)
    tokens = recursive.along(draft, path, n, probs.pick(weights, noise.sample))
    return Verdict(n.astype(jnp.int32), tokens, chance, path, weights)


def wrong_kseq(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    either, right = functools.partial(swapped, wrong), kseq.solved
    residual = kseq.rest

    def solved(p: Array, q: Array, count: Array) -> Array:
        rho = right(p, q, count)
        one = right(p, q, jnp.minimum(count, 1))
        others = {"accepts by another number of siblings": one}
        return either(rho, others | {"rho beside the root": (1 + rho) / 2})

    def rest(node: kseq.Node) -> Array:
        left = residual(node)
        twice = recursive.rest(recursive.rest(node.p, node.q), node.q)
        twice = jnp.where(node.count[:, None] == 2, twice, left)
        return either(left, {"residual of recursive rejection": twice})

    with mock.patch.multiple(kseq, solved=solved, rest=rest):
        return kseq.verify(target, draft, noise, True)


def wrong_greedy(wrong, target: Law, draft: Draft, noise: token.Noise) -> Verdict:
    """Of a tree whose only siblings are the first two nodes."""
    either, right, x = (
        functools.partial(swapped, wrong),
        greedy_block.best_of,
        draft.tokens,
    )

    def best_of(p: Array, q: Array, count: Array) -> tuple[Array, Array]:
        both = count == 2
        twins = both & (x[:, 0] == x[:, 1])
        counted = {"the best of one more": count + both}
        count = either(count, counted | {"counts two that agree once": count - twins})
        rank, law = right(p, q, count)
        return rank, either(law, {"judges the best by q": q})

    with mock.patch.object(greedy_block, "best_of", best_of):
        return greedy_block.verify(target, draft, noise, True)


WRONG = dict(token=wrong_token, block=wrong_block, rejection=wrong_rejection)
WRONG |= dict(match=wrong_match, gumbel=wrong_gumbel)
WRONG |= dict(recursive=wrong_recursive, traversal=wrong_traversal, kseq=wrong_kseq)
WRONG |= dict(greedy_block=wrong_greedy)


def build(name: str) -> Verifier:
    """The mutant of Algorithm 1 of this name."""

    def verify(target: Law, draft: Draft, noise: token.Noise, keep_residual=False):
        verdict = wrong_token(NUMBERS[name], target, draft, noise)
        return verdict if keep_residual else verdict._replace(residual=None)

    return Verifier(token.noise, verify)


# Certificates. The number is a leaf of the noise, beside the rule's own.

CHOSEN = contextvars.ContextVar("the number that the noise of a certificate holds")


@functools.cache
def numbered(rule: str) -> tuple[Verifier, Claim]:
    right, claim = verifiers.named(rule), CLAIMS[rule]

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        return right.noise(key, start, gamma, vocab), jnp.zeros_like(start)

    def verify(target: Law, draft: Draft, noise: tuple, keep_residual=False):
        return WRONG[rule](noise[1][0], target, draft, noise[0])

    def cells(situation, dtype: str):
        right = claim.cells(situation, dtype)
        number = np.full(right.sample.shape[:-1], CHOSEN.get())
        return right._replace(noise=(right.noise, number))

    return Verifier(noise, verify), claim._replace(cells=cells)


@functools.cache
def certified(name: str, rule: str, fixture: str) -> certify.Certificate:
    """Of three tokens; `name` "" breaks nothing."""
    (of, gamma, _), (verifier, claim) = trials()[fixture], numbered(rule)
    CHOSEN.set(NUMBERS[name] if of.drawn is None else 0)  # else the draft is wrong
    return certify.certify(verifier, of, gamma, 3, claim)


# Noise.


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
