"""Every pair of a rule and a draft as a record: whole texts of the real loop.

A row is a draft, with every rule that `build_step` takes for it: texts by the draws of
both, judged by `specjax.exactness.sampled`, and the same broken on purpose. A rule for
trees verifies chains by the program of another, which is made sure of; that one is put
to them.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, policies, probs, verifiers
from specjax.drafters.rollout import coupled, independent
from specjax.exactness import sampled, small_drafts
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_sampling
from specjax.measure.row import Measurement
from specjax.sides import CERTAIN, Side
from specjax.types import Draft, Drafter, Policy, Request, State, Verifier
from specjax.verifiers import match, rejection, token

SHARED, ARGMAX, REUSED, STALE = 1, 2, 3, 4
FAULTS = {
    SHARED: ("shared", "every draw of a draft has the noise of its first"),
    ARGMAX: ("argmax", "the first token is the likeliest; its law says it was drawn"),
    REUSED: ("reused", "every slot has the first one's coin, which also draws"),
    STALE: ("stale", "the rule has the same noise in every call"),
}


def build(draft: str, gamma: int, policy: str, texts: int, seed: int) -> Measurement:
    """A row of the table. draft: a name of `small_drafts.named`. texts: of a pair, in
    calls of `sampled.ROWS`. Raises ValueError for what is no draft or policy."""
    side = small_drafts.named(draft, sampled.target())
    policies.named(policy)
    run = partial(measure, side, draft, gamma, policy, -(-texts // sampled.ROWS), seed)
    return Measurement(run, __name__, dtype="float32", seed=seed)


def measure(
    side: Side, name: str, gamma: int, policy: str, calls: int, seed: int
) -> dict:
    """What each rule's texts say, and how many pairs and faults there are.

    pairs: as `judged` has them. alike: rules whose program on this draft is that of
    another. wrong: pairs whose texts have another law; missed: faults whose texts have
    not. least_p: of right pairs. most_visible: their largest `visible`.
    """
    chosen, alike = of_chains() if side.drafter(gamma).siblings is None else ([], {})
    found = judged(side, gamma, policies.named(policy), chosen, calls, seed)
    faults = [fault for pair in found for fault in pair["faults"]]
    return {
        "draft": name,
        "gamma": gamma,
        "policy": policy,
        "pairs": found,
        "alike": alike,
        "total": len(found),
        "wrong": sum(not pair["passed"] for pair in found),
        "faults": len(faults),
        "missed": sum(fault["passed"] for fault in faults),
        "least_p": min(pair["p_value"] for pair in found),
        "most_visible": max(pair["visible"] for pair in found),
    }


@functools.cache
def of_chains() -> tuple[list[str], dict[str, str]]:
    """Returns the rules with a program of their own for chains, and of each other rule
    whose program it has. Raises RuntimeError for one that has another."""
    chosen = [name for name, claim in CLAIMS.items() if claim.chains is None]
    alike = {name: claim.chains for name, claim in CLAIMS.items() if claim.chains}
    for name, other in alike.items():
        if program(verifiers.named(name)) != program(verifiers.named(other)):
            raise RuntimeError(f"{name} does not verify chains as {other} does")
    return chosen, alike


def program(rule: Verifier) -> str:
    """Returns what a rule computes of a chain, operation by operation."""
    gamma, key = 3, jax.random.split(keys.root_key(0), 2)
    law = probs.standardize(jnp.zeros((2, gamma + 1, 3)), make_sampling(2, 1.0))
    tokens, num = jnp.zeros((2, gamma), jnp.int32), jnp.full(2, gamma)
    draft = Draft(tokens, num, probs.first(law, gamma))

    def verdict(law, draft, key):
        noise = rule.noise(key, num, gamma, 3)
        return rule.verify(law, draft, noise)

    return str(jax.make_jaxpr(verdict)(law, draft, key))


def judged(
    side: Side,
    gamma: int,
    policy: Policy | None,
    chosen: Sequence[str],
    calls: int,
    seed: int,
) -> list[dict]:
    """Returns of every rule that takes a draft what was found, by the names of
    `sampled.Found`, and of its faults. chosen: these alone, all if none is named."""
    found = []
    for draw in (independent, coupled):
        drafter = side.drafter(gamma, draw)
        rules = [
            name
            for name in chosen or CLAIMS
            if verifiers.named(name).coupled == (draw is coupled)
            and sampled.accepts(
                sampled.target().model, drafter, verifiers.named(name), policy
            )
        ]
        if not rules:
            continue
        each = [verifiers.named(name) for name in rules]
        texts = sampled.build(drafter, each, policy, broken)
        for number, name in enumerate(rules):
            how = partial(sampled.certify, texts, side.params, number, seed=seed)
            faults = [
                dict(zip(("name", "says"), FAULTS[fault], strict=True))
                | plain(how(fault=fault, calls=1))
                for fault in faults_of(side, each[number])
            ]
            right = plain(how(calls=calls))
            found.append({"rule": name} | right | {"faults": faults})
    return found


def plain(found: sampled.Found) -> dict:
    return found._asdict() | {"passed": found.passed}


def faults_of(side: Side, rule: Verifier) -> list[int]:
    """Returns which faults texts show.

    Those of a draft only where the rule reads its law. `rejection` never keeps a
    certain token, so that no coin of a slot counts.
    """
    certain = side.regime == CERTAIN
    if rule is rejection.verifier and certain:
        return [STALE]
    reads = rule.noise is token.noise and not certain
    return [*([SHARED, ARGMAX] if reads else []), REUSED, STALE]


# A decoder with a fault of a number, which may be traced.


def broken(drafter: Drafter, rules: Sequence[Verifier], fault: Array) -> tuple:
    """Returns both with one of FAULTS; 0 is none."""
    return draft_of(drafter, fault), [rule_of(rule, fault) for rule in rules]


def draft_of(drafter: Drafter, fault: Array) -> Drafter:
    def draft(
        key: Array, params: Any, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, Any]:
        with one_slot(fault == SHARED):
            made, cache = drafter.draft(key, params, request, state, *go_on)
        if made.law is None:
            return made, cache
        likeliest = jnp.argmax(probs.dense(made.law)[:, 0], axis=-1)
        first = jnp.where(fault == ARGMAX, likeliest, made.tokens[:, 0])
        tokens = made.tokens.at[:, 0].set(first.astype(jnp.int32))
        return made._replace(tokens=tokens), cache

    return drafter._replace(draft=draft)


@contextlib.contextmanager
def one_slot(on: Array) -> Iterator[None]:
    """While this is traced, every slot has the noise of slot 0 where `on`."""
    gumbels, uniforms = keys.gumbels, keys.uniforms

    def of_first(slots: Array | int) -> Array:
        return jnp.where(on, 0, slots)

    shared = {
        "gumbels": lambda key, slots, *more: gumbels(key, of_first(slots), *more),
        "uniforms": lambda key, slots, *more: uniforms(key, of_first(slots), *more),
    }
    with mock.patch.multiple(keys, **shared):
        yield


def rule_of(rule: Verifier, fault: Array) -> Verifier:
    def noise(key: Array, start: Array, gamma: int, vocab: int) -> Any:
        start = jnp.where(fault == STALE, 0, start)
        right = rule.noise(key, start, gamma, vocab)

        def of_first(leaf: Array) -> Array:
            return jnp.broadcast_to(leaf[:, :1], leaf.shape)

        if isinstance(right, token.Noise):
            sample = right.sample.at[:, 1].set(right.accept[:, 0])
            wrong = token.Noise(of_first(right.accept), sample)
        elif isinstance(right, match.Noise):
            wrong = match.Noise(of_first(right.sample))
        else:
            wrong = of_first(right)
        return jax.tree.map(lambda a, b: jnp.where(fault == REUSED, a, b), wrong, right)

    return rule._replace(noise=noise)
