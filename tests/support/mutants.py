"""Wrong verifiers, each of which differs from the right one in a line, and which
certificates must catch.

And drafts drawn from another law than they carry; `sampled_mutants` has what only
sampling sees. Most are bugs that some implementation had. A mutant is the library's own
code with one expression replaced; its number is an argument, so that one program serves
all those of a rule.
Axes: B rows, G = gamma, V vocabulary.
"""

import ast
import contextvars
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, native, probs, verifiers
from specjax.exactness import certify, fixtures
from specjax.exactness.claims import CLAIMS, Claim
from specjax.exactness.fixtures import reference
from specjax.types import Draft, Law, Reduced, Sampling, Table, Verdict, Verifier
from specjax.verifiers import token


class Mutant(NamedTuple):
    """A wrong verifier.

    name: what is wrong. check: of `specjax.exactness.certify`, which catches it on the
    named fixture. rule: the verifier that it is a mutant of.
    """

    name: str
    check: str
    fixture: str
    rule: str


TAKEN = "rejected_law(draft, n, p.shape[-1])"
KEPT = "jnp.cumprod(accepted, axis=1)"
OWN, RACE = "y.reshape(batch, rows)", "probs.race(target, noise)"
AT_LAST = "jnp.arange(n.size), jnp.minimum(n, gamma - 1)"
# Of each rule, expressions of its file, and what stands there instead if so much is
# wrong; OLD is the expression.
WRONG = {
    "token": {
        f"jnp.maximum(p - {TAKEN}, 0.0)": {
            "residual is p": "p",
            "residual is |p - q|": f"jnp.abs(p - {TAKEN})",
            "residual floored": f"jnp.maximum(p - {TAKEN}, 0.05)",
            "residual keeps a certain token": "p",
            "residual of an overwritten p": f"overwritten(p, {TAKEN})",
        },
        "jnp.minimum(n, gamma - 1)": {
            "residual of the slot before": "jnp.maximum(OLD - 1, 0)"
        },
        "jnp.where(weights.any(axis=1, keepdims=True), weights, p)": {
            "residual without fallback": "weights"
        },
        "probs.dense(probs.take(target, n))": {
            "bonus from q": "bonus(draft, n, OLD, lambda q: q)",
            "bonus from a residual": "bonus(draft, n, OLD, lambda q: OLD - q)",
            "bonus of the row before": "bonus(draft, n, OLD, lambda _: "
            "probs.dense(probs.take(target, jnp.maximum(n, 1) - 1)))",
            "bonus from the raw logits": "bonus(draft, n, OLD, lambda _: "
            "jax.nn.softmax(probs.take(target, n).logits))",
        },
        "Verdict(n, tokens, jnp.where(live, ratio, 0.0), residual=residual)": {
            "no bonus": "cut_short(OLD, draft)"
        },
        "noise.accept * q_x < p_x": {
            "accepts everything": "jnp.ones_like(live)",
            "accepts if p >= q": "p_x >= q_x",
            "accepts with p": "noise.accept < p_x",
            "accepts with q / p": "noise.accept * p_x < q_x",
            "accepts at equality": "noise.accept * q_x <= p_x",
            "one uniform for the block": "noise.accept[:, :1] * q_x < p_x",
        },
        "probs.first_tokens(target, gamma)": {
            "target row off by one": "jax.tree.map(lambda leaf: leaf[:, 1:], target)"
        },
        KEPT: {"goes on after a rejection": "accepted"},
        f"jnp.sum({KEPT}, axis=1, dtype=jnp.int32)": {
            "whole batch stops together": "jnp.full_like(OLD, jnp.min(OLD))"
        },
        "jnp.arange(gamma) < draft.num[:, None]": {
            "reads past the draft's end": "jnp.ones_like(OLD)"
        },
        "noise.sample": {
            "extra token by the accept uniform": f"jnp.tile(noise.accept[{AT_LAST}]"
            "[:, None], 2)"
        },
        "jnp.minimum(1.0, p_x / jnp.where(q_x > 0, q_x, 1.0))": {
            "reports an unclipped ratio": "p_x / jnp.where(q_x > 0, q_x, 1.0)"
        },
    },
    "block": {
        "jnp.stack([first, *jax.lax.scan(next_weight, first, ratio.T)[1]], axis=1)": {
            "the last ratio is not capped": "OLD.at[:, -1].set("
            "jnp.minimum(1.0, jnp.prod(ratio, axis=1)))"
        },
        "jnp.max(jnp.where(kept, jnp.arange(1, gamma + 1), 0), axis=1, initial=0)": {
            "stops at the first failure": "jnp.sum(jnp.cumprod(kept, axis=1), axis=1)"
        },
        "take(rest)": {"residual without its weight": "take(jnp.maximum(p - q, 0.0))"},
        "rest.sum(-1)[:, 1:]": {
            "residual sums of the row before": "rest.sum(-1)[:, :-1]"
        },
        "jnp.where(jnp.arange(1, gamma + 1) == num, w[:, 1:], h)": {
            "the whole draft is kept as by Algorithm 1": "jnp.where("
            "jnp.arange(1, gamma + 1) == num, jnp.minimum(1.0, ratio), h)"
        },
        "noise.accept < h": {"accepts at equality": "noise.accept <= h"},
    },
    "rejection": {
        "p[jnp.arange(n.size), n]": {
            "residual is p - q": "or_p(OLD - token.rejected_law(draft, n, p.shape[-1]),"
            " OLD)"
        },
        "least * ratio": {"accepts with p / q": "ratio"},
        "jnp.where(inside, below, jnp.inf)": {
            "M over the ids that q prefers": "jnp.where(inside & (q > 1 / q.shape[-1]),"
            " below, 1.0)"
        },
    },
    "match": {
        f"keep(target, draft, {OWN}, keep_residual)": {
            "draws again on a mismatch": "draw_again(OLD, draft, p,"
            " noise.sample[:, 0, ::-1])"
        },
        OWN: {
            "keeps a draft as likely as its own token": "or_draft(OLD, draft, p)",
            "compares with the slot before": "jnp.roll(OLD, 1, axis=1)",
        },
    },
    "gumbel": {
        RACE: {
            "races without the temperature": "probs.race(target._replace("
            "scale=jnp.ones_like(target.scale)), noise)",
            "races by probability": "jnp.argmax(probs.dense(target) + noise, axis=-1)"
            ".astype(jnp.int32)",
        },
        f"match.keep(target, draft, {RACE}, keep_residual)": {
            "emits the draft on a mismatch": "with_draft(OLD, draft)"
        },
    },
    "recursive": {
        "exclude(walk.q, x)": {
            "q of a sibling is not renormalised": "walk.q.at[rows, x].set(0.0)",
            "q of a sibling keeps the one before": "walk.q",
        },
        "jnp.where(down, child + 1, 0)": {
            "rows of another branch": "jnp.where(down, child, 0)"
        },
        "residual_law(walk.r, q)": {
            "forgets a rejected sibling": "walk.r",
            "residual of the first child alone": "jnp.where("
            "(next_child(walk.at, walk.at) == child)[:, None], OLD, walk.r)",
        },
    },
    "kseq": {
        "solve_rho(p, q, count)": {
            "accepts by another number of siblings": "solve_rho(p, q,"
            " jnp.minimum(count, 1))",
            "rho beside the root": "(1 + OLD) / 2",
        },
        "jnp.where(left.any(-1, keepdims=True), left, p)": {
            "residual of recursive rejection": "jnp.where(count[:, None] == 2,"
            " recursive.residual_law(recursive.residual_law(p, q), q), OLD)"
        },
    },
    "traversal": {
        "w_up[:, None] * r_up - q": {"residual without its weight": "r_up - q"},
        "jnp.where(up == 0, 1.0, rest)": {
            "keeps the chance that it had": "jnp.where(up == 0, 1.0, w_up)"
        },
        "recursive.exclude(further, y)": {"goes on with what was left of q": "further"},
    },
    "greedy_block": {
        "now.q.at[:, depth].set(q)": {
            "judges the best by q": "now.q.at[:, depth].set(q_here)"
        },
        "child.sum(1)": {
            "the best of one more": "OLD + (OLD == 2)",
            "counts two that agree once": "OLD - ((OLD == 2) &"
            " (draft.tokens[:, 0] == draft.tokens[:, 1]))",
        },
    },
}
# Of Algorithm 1 too: the draft is not what it should be, by `spoil_draft` or its
# fixture.
DRAFTS = {
    "accepts by q sharpened": "random",
    "drops a drafted token for its value": "random",
    "q of the tokens of both is not renormalised": "common",
    "q of another token of both": "common",
    "drafts by argmax, compares with q": "drawn by argmax",
    "drafts sharper than q": "drawn sharper",
    "drafts from the top 2 of q": "drawn from the top 2",
    "drafts from q in bfloat16": "drawn in bfloat16",
}
# Where not "random", and what catches it where that is not its "law".
TREES = dict(recursive="tree", traversal="tree")
TREES |= dict(kseq="tree, replaced", greedy_block="tree, replaced")
FIXTURES = {
    "residual keeps a certain token": "certain",
    "residual without fallback": "p = q, other logits",
    "bonus from the raw logits": "T 0.7, top-k 2",
    "reads past the draft's end": "ragged",
    "races without the temperature": "T 0.7, min-p 0.3",
    "residual is p - q": "early exit of a gpt",
}
CHECKS = {
    "residual without fallback": "support",
    "bonus from the raw logits": "support",
    "no bonus": "per_call",  # lossless, only slower
    "accepts at equality": "support",  # u = 0 and p(x) = 0
    "one uniform for the block": "cells",  # the law alone may look right
    "extra token by the accept uniform": "tokens",  # its residual is right
    "reports an unclipped ratio": "accept_prob",
    "draws again on a mismatch": "path",
    "compares with the slot before": "path",
    "races by probability": "path",
    "emits the draft on a mismatch": "path",
}


def list_mutants(rule: str, names: Iterable[str]) -> Iterator[Mutant]:
    fixtures = dict.fromkeys(names, TREES.get(rule, "random")) | FIXTURES | DRAFTS
    for name in names:
        yield Mutant(name, CHECKS.get(name, "law"), fixtures[name], rule)


MUTANTS = tuple(
    mutant
    for rule, others in WRONG.items()
    for mutant in list_mutants(rule, [*itertools.chain(*others.values())])
)
MUTANTS += (*list_mutants("token", DRAFTS),)
NUMBERS = {name: i for i, name in enumerate(("", *(each.name for each in MUTANTS)))}


@functools.cache
def trials() -> dict[str, fixtures.Trial]:
    """Returns the trials of the certificate by name, and trials with drafts of another
    law."""
    every = [*fixtures.trials(), *fixtures.tree_trials()]
    known = {trial.fixture.name: trial for trial in every}
    plain = known["random"].fixture

    def round_law(prefix: tuple) -> np.ndarray:
        q = np.float64(np.asarray(reference(plain.draft(prefix), Sampling(1.0)), "f4"))
        q = np.float64(jnp.asarray(q, jnp.bfloat16))
        return q / q.sum()

    for name, law in {
        "drawn by argmax": lambda x: reference(plain.draft(x), Sampling(0.0)),
        "drawn sharper": lambda x: reference(plain.draft(x), Sampling(0.7)),
        "drawn from the top 2": lambda x: reference(plain.draft(x), Sampling(1.0, 2)),
        "drawn in bfloat16": round_law,
    }.items():
        wrong = plain._replace(drawn=law)
        known[name] = known["random"]._replace(fixture=wrong)
    return known


# What some of them call.


def overwritten(p: Array, q: Array) -> Array:
    """Returns the residual of a rule that writes the ratio of the acceptance over p."""
    return jnp.maximum(p / jnp.where(q > 0, q, 1.0) - q, 0.0)


def bonus(draft: Draft, n: Array, p: Array, wrong: Callable) -> Array:
    """Returns p [B, V] at a rejected token, and `wrong` of the last q after a whole
    draft."""
    q = token.rejected_law(draft._replace(num=draft.num + 1), n, p.shape[-1])
    return jnp.where((n < draft.num)[:, None], p, wrong(q))


def cut_short(verdict: Verdict, draft: Draft) -> Verdict:
    """Puts the extra token in the place of the last token of a draft that is kept
    completely."""
    n = verdict.num_accepted
    whole = (n == draft.num) & (n > 0)
    last = jnp.take_along_axis(draft.tokens, (n - whole)[:, None], axis=1)
    sure = jax.nn.one_hot(last[:, 0], verdict.residual.shape[-1])
    weights = jnp.where(whole[:, None], sure, verdict.residual)
    there = jnp.arange(verdict.tokens.shape[1]) <= (n - whole)[:, None]
    tokens = jnp.where(there, verdict.tokens, 0)
    return verdict._replace(num_accepted=n - whole, tokens=tokens, residual=weights)


def or_p(weights: Array, p: Array) -> Array:
    """Returns weights [B, V], or p where no weight is left."""
    weights = jnp.maximum(weights, 0.0)
    return jnp.where(weights.any(axis=1, keepdims=True), weights, p)


def draw_again(verdict: Verdict, draft: Draft, p: Array, u: Array) -> Verdict:
    n = verdict.num_accepted
    own = p[jnp.arange(n.size), n]
    tokens = token.emit(draft, n, probs.pick(own, u))
    return verdict._replace(tokens=tokens, residual=own)


def or_draft(y: Array, draft: Draft, p: Array) -> Array:
    """Returns the target's own tokens, or drafted tokens with the same probability."""
    gamma = draft.tokens.shape[1]
    ids = jnp.stack([draft.tokens, y[:, :gamma]], axis=-1)
    drafted, own = jnp.moveaxis(jnp.take_along_axis(p[:, :gamma], ids, axis=-1), -1, 0)
    return y.at[:, :gamma].set(jnp.where(drafted >= own, draft.tokens, y[:, :gamma]))


def with_draft(verdict: Verdict, draft: Draft) -> Verdict:
    """Emits the rejected token instead of another one."""
    drafted, n = jnp.pad(draft.tokens, ((0, 0), (0, 1))), verdict.num_accepted[:, None]
    there = (jnp.arange(drafted.shape[1]) == n) & (n < draft.num[:, None])
    return verdict._replace(tokens=jnp.where(there, drafted, verdict.tokens))


HELPERS = (overwritten, bonus, cut_short, or_p, draw_again, or_draft, with_draft)


def spoil_draft(draft: Draft, either: Callable) -> Draft:
    """Returns a draft that is wrong before Algorithm 1 looks at it."""
    law, gamma = draft.law, draft.tokens.shape[1]
    if law is None or isinstance(law.logits, Table):
        return draft
    unlikely = probs.at(law, draft.tokens)[:, -1] < 0.3
    shorter = draft.num - (unlikely & (draft.num == gamma))
    half = Sampling(jnp.full(draft.num.shape, 0.5))
    others = {"accepts by q sharpened": probs.standardize(law.logits, half)}
    if isinstance(law.logits, Reduced):  # the mass of other ids; the order of its own
        turned = law.logits._replace(place=jnp.roll(law.logits.place, 1))
        more = law._replace(lse=law.lse + 0.5)
        others |= {"q of the tokens of both is not renormalised": more}
        others |= {"q of another token of both": law._replace(logits=turned)}
    num = either(draft.num, {"drops a drafted token for its value": shorter})
    return draft._replace(num=num, law=either(law, others))


# Rules with one expression replaced, by the number of a mutant; 0 breaks nothing.


def swap(wrong, right, others: dict):
    """Returns `right`, an array or a tree of arrays, or what the mutant `wrong` has in
    its place."""
    for name, other in others.items():
        here = wrong == NUMBERS[name]
        right = jax.tree.map(lambda a, b, h=here: jnp.where(h, b, a), right, other)
    return right


class ChooseMutant(ast.NodeTransformer):
    """Replaces each expression that some mutant changes by a choice between its
    versions.

    others: of each, what stands there by the name of a mutant.
    """

    def __init__(self, others: dict[str, dict[str, str]]):
        self.others, self.met = others, set()

    def visit(self, node: ast.AST) -> ast.AST:
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        node = self.generic_visit(node)
        if text not in self.others:
            return node
        self.met.add(text)
        names, others = zip(*self.others[text].items(), strict=True)
        others = (other.replace("OLD", f"({text})") for other in others)
        each = [ast.parse(other, mode="eval").body for other in others]
        given = [node, ast.Dict([*map(ast.Constant, names)], each)]
        return ast.Call(ast.Name("either", ast.Load()), given, [])


@functools.cache
def mutated_names(rule: str) -> dict:
    """Returns the names in a rule's file, with a call of `either` in place of each
    expression that a mutant changes."""
    module, others = import_module(f"specjax.verifiers.{rule}"), WRONG[rule]
    put = ChooseMutant(others)
    tree = put.visit(ast.parse(inspect.getsource(module)))
    assert put.met == {*others}, (rule, {*others} - put.met)  # not in the file any more
    names = {"__name__": module.__name__, **{each.__name__: each for each in HELPERS}}
    tree = ast.fix_missing_locations(tree)
    exec(compile(tree, module.__file__, "exec"), names)
    return names


def decide(rule: str, wrong, target: Law, draft: Draft, noise) -> Verdict:
    either = functools.partial(swap, wrong)
    draft = spoil_draft(draft, either) if rule == "token" else draft
    names = mutated_names(rule)
    names["either"] = either
    return names["verifier"].verify(target, draft, noise, True)


def build(name: str) -> Verifier:
    """Returns the mutant of Algorithm 1 with this name."""

    def verify(target: Law, draft: Draft, noise: token.Noise, keep_residual=False):
        verdict = decide("token", NUMBERS[name], target, draft, noise)
        return verdict if keep_residual else verdict._replace(residual=None)

    return Verifier(token.noise, verify)


# Certificates. The number is a leaf of the noise, beside the rule's own.

CHOSEN = contextvars.ContextVar("the number that the noise of a certificate holds")


@functools.cache
def number_mutants(rule: str) -> tuple[Verifier, Claim]:
    right, claim = verifiers.find(rule), CLAIMS[rule]

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        return right.noise(key, start, gamma, vocab), jnp.zeros_like(start)

    def verify(target: Law, draft: Draft, noise: tuple, keep_residual=False):
        return decide(rule, noise[1][0], target, draft, noise[0])

    def cells(situation, dtype: str):
        right = claim.cells(situation, dtype)
        number = np.full(right.sample.shape[:-1], CHOSEN.get())
        return right._replace(noise=(right.noise, number))

    return Verifier(noise, verify), claim._replace(cells=cells)


@functools.cache
def certify_mutant(name: str, rule: str, fixture: str) -> certify.Certificate:
    """Certifies texts of three tokens; the `name` "" is the right rule.

    Mutants are of definitions: what compiled code computes instead is compared with
    these elsewhere, and certified as it is.
    """
    (of, gamma, _), (verifier, claim) = trials()[fixture], number_mutants(rule)
    CHOSEN.set(NUMBERS[name] if of.drawn is None else 0)  # else the draft is wrong
    with native.products(native.XLA):
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
