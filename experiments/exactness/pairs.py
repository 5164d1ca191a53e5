"""Every pair of a rule and a draft as a record: whole texts of the real loop.

A row is a draft with every rule that `build_step` accepts for it. The texts drawn with
each rule are tested by `specjax.exactness.sampled_texts`, and so are texts that are
broken on purpose. A rule for trees verifies chains with the program of another rule;
this is checked, and the other rule is tested.
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
from specjax.drafters.rollout import draw_coupled, draw_independent
from specjax.drafts import levels
from specjax.drafts.source import CERTAIN, REDUCED_VOCAB, DraftSource
from specjax.exactness import sampled_texts, small_drafts
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_sampling
from specjax.measure.row import Measurement
from specjax.step import Round
from specjax.types import (
    Draft,
    Drafter,
    Law,
    Params,
    Policy,
    Request,
    Sampling,
    State,
    Verifier,
)
from specjax.verifiers import match, rejection, token

SHARED, ARGMAX, REUSED, STALE, LOWER, LEVELS = 1, 2, 3, 4, 5, 6
FAULTS = {
    SHARED: ("shared", "every draw of a draft has the noise of its first"),
    ARGMAX: ("argmax", "the first token is the most likely; its law says it was drawn"),
    REUSED: ("reused", "every slot has the first one's coin, which also draws"),
    STALE: ("stale", "the rule has the same noise in every call"),
    LOWER: ("lower", "the last draft's law stands in for that of the model above it"),
    LEVELS: ("levels", "a hierarchy's model decides by the coins of its target"),
}


def build(draft: str, gamma: int, *, policy: str, texts: int, seed: int) -> Measurement:
    """Returns the measurement of one row.

    Args:
        draft: a name of `small_drafts.load`.
        texts: texts of a pair, made in calls of `sampled_texts.ROWS`.

    Raises:
        ValueError: the draft or the policy is unknown.
    """
    source = small_drafts.load(draft, sampled_texts.target())
    policies.find(policy)
    run = partial(
        measure,
        source,
        name=draft,
        gamma=gamma,
        policy=policy,
        calls=-(-texts // sampled_texts.ROWS),
        seed=seed,
    )
    return Measurement(run, __name__, dtype="float32", seed=seed)


def measure(
    source: DraftSource, *, name: str, gamma: int, policy: str, calls: int, seed: int
) -> dict:
    """Tests the texts of each rule, and counts the pairs and the faults that passed and
    failed.

    Returns:
        pairs: the results of `test_rules`.
        alike: rules whose program on this draft is that of another rule.
        wrong: pairs whose texts have another law.
        missed: faults whose texts passed the test.
        least_p: the smallest p-value of the right pairs.
        most_visible: the largest `visible` of the right pairs.
    """
    trees = source.drafter(gamma).siblings is not None
    chosen, alike = ([], {}) if trees else chain_rules()
    found = test_rules(
        source,
        gamma=gamma,
        policy=policies.find(policy),
        chosen=chosen,
        calls=calls,
        seed=seed,
    )
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
def chain_rules() -> tuple[list[str], dict[str, str]]:
    """Returns the rules that have their own program for chains, and for each other rule
    the rule whose program it shares.

    Raises:
        RuntimeError: a rule that should share a program has another one.
    """
    chosen = [name for name, claim in CLAIMS.items() if claim.chains is None]
    alike = {name: claim.chains for name, claim in CLAIMS.items() if claim.chains}
    for name, other in alike.items():
        if program(verifiers.find(name)) != program(verifiers.find(other)):
            raise RuntimeError(f"{name} does not verify chains as {other} does")
    return chosen, alike


def program(rule: Verifier) -> str:
    """Returns, as text, the operations that a rule computes for a chain."""
    gamma, key = 3, jax.random.split(keys.root_key(0), 2)
    law = probs.standardize(jnp.zeros((2, gamma + 1, 3)), make_sampling(2, 1.0))
    tokens, num = jnp.zeros((2, gamma), jnp.int32), jnp.full(2, gamma)
    draft = Draft(tokens, num, probs.first_tokens(law, gamma))

    def verdict(law, draft, key):
        noise = rule.noise(key, num, gamma, 3)
        return rule.verify(law, draft, noise)

    return str(jax.make_jaxpr(verdict)(law, draft, key))


def test_rules(
    source: DraftSource,
    *,
    gamma: int,
    policy: Policy | None,
    chosen: Sequence[str],
    calls: int,
    seed: int,
) -> list[dict]:
    """Returns the test results of every rule that accepts a draft, and of the rule's
    faults, under the names of `sampled_texts.TextReport`.

    Args:
        chosen: the rules to test; all if it is empty.
    """
    found = []
    for draw in (draw_independent, draw_coupled):
        drafter = source.drafter(gamma, draw)
        rules = [
            name
            for name in chosen or CLAIMS
            if verifiers.find(name).coupled == (draw is draw_coupled)
            and sampled_texts.accepts(
                sampled_texts.target().model, drafter, verifiers.find(name), policy
            )
        ]
        if not rules:
            continue
        each = [verifiers.find(name) for name in rules]
        texts = sampled_texts.build(drafter, each, policy, apply_fault)
        for number, name in enumerate(rules):
            how = partial(
                sampled_texts.certify, texts, source.params, number=number, seed=seed
            )
            faults = [
                dict(zip(("name", "says"), FAULTS[fault], strict=True))
                | to_json(test_fault(how, fault, calls))
                for fault in find_faults(source, each[number])
            ]
            right = to_json(how(calls=calls))
            found.append({"rule": name} | right | {"faults": faults})
    return found


def test_fault(
    certify: Callable[..., sampled_texts.TextReport], fault: int, calls: int
) -> sampled_texts.TextReport:
    """Returns the report on one call's texts with a fault, or on those of all `calls`
    if one call does not show it."""
    found = certify(fault=fault, calls=1)
    return certify(fault=fault, calls=calls) if found.passed else found


def to_json(found: sampled_texts.TextReport) -> dict:
    return found._asdict() | {"passed": found.passed}


def find_faults(source: DraftSource, rule: Verifier) -> list[int]:
    """Returns the faults that the texts of a rule can show.

    Faults of the draft count only where the rule reads the draft's law. `rejection`
    never keeps a certain token, nor one of a law that lacks ids of the target, where
    p / q has no bound: there only its own draw matters. A hierarchy has two more, of
    which one, as `SHARED` there, needs a last draft that draws.
    """
    if rule is rejection.verifier and source.regime in (CERTAIN, REDUCED_VOCAB):
        return [STALE]
    reads = rule.noise is token.noise and source.regime != CERTAIN
    if not reads:
        return [REUSED, STALE]
    if not isinstance(source.params, Params):
        return [SHARED, ARGMAX, REUSED, STALE]
    last = source.params
    while isinstance(last, Params):
        last = last.draft
    drawn = [] if last is None else [SHARED, LOWER]
    return [*drawn, ARGMAX, LEVELS, REUSED, STALE]


# A decoder with a fault of a number, which may be traced.


def apply_fault(drafter: Drafter, rules: Sequence[Verifier], fault: Array) -> tuple:
    """Returns the drafter and the rules with one of FAULTS; 0 means no fault."""
    return build_broken_draft(drafter, fault), [
        build_broken_rule(rule, fault) for rule in rules
    ]


def build_broken_draft(drafter: Drafter, fault: Array) -> Drafter:
    def draft(
        key: Array, params: Any, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, Any]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(share_slot(fault == SHARED))
            stack.enter_context(use_lower_law(fault == LOWER))
            stack.enter_context(share_key(fault == LEVELS, request.key))
            made, cache = drafter.draft(key, params, request, state, *go_on)
        if made.law is None:
            return made, cache
        likeliest = jnp.argmax(probs.dense(made.law)[:, 0], axis=-1)
        first = jnp.where(fault == ARGMAX, likeliest, made.tokens[:, 0])
        tokens = made.tokens.at[:, 0].set(first.astype(jnp.int32))
        return made._replace(tokens=tokens), cache

    return drafter._replace(draft=draft)


@contextlib.contextmanager
def share_slot(on: Array) -> Iterator[None]:
    """Gives every slot the noise of slot 0, if `on`, while a function is traced."""
    gumbels, uniforms = keys.gumbels, keys.uniforms

    def first_slot(slots: Array | int) -> Array:
        return jnp.where(on, 0, slots)

    shared = {
        "gumbels": lambda key, slots, *more: gumbels(key, first_slot(slots), *more),
        "uniforms": lambda key, slots, *more: uniforms(key, first_slot(slots), *more),
    }
    with mock.patch.multiple(keys, **shared):
        yield


@contextlib.contextmanager
def use_lower_law(on: Array) -> Iterator[None]:
    """Gives each token of a hierarchy the law of the draft below it, if `on`, while a
    function is traced."""
    whole_law = levels.mark_lost

    def law(made: Round) -> Law:
        right, draft = whole_law(made), made.draft
        if draft.law is None:
            return right
        drafted = jnp.log(probs.dense(draft.law))
        logits = right.logits.at[:, : drafted.shape[1]].set(drafted)
        wrong = probs.standardize(logits, Sampling(jnp.ones(len(logits))))
        return jax.tree.map(lambda x, y: jnp.where(on, x, y), wrong, right)

    with mock.patch.object(levels, "mark_lost", law):
        yield


@contextlib.contextmanager
def share_key(on: Array, key: Array) -> Iterator[None]:
    """Gives each level of a hierarchy the random numbers of its target, if `on`, while
    a function is traced."""
    right = levels.round_keys

    def target_key(own: Array, count: Array) -> Array:
        return jnp.where(on, key, right(own, count))

    with mock.patch.object(levels, "round_keys", target_key):
        yield


def build_broken_rule(rule: Verifier, fault: Array) -> Verifier:
    def noise(key: Array, start: Array, gamma: int, vocab: int) -> Any:
        start = jnp.where(fault == STALE, 0, start)
        right = rule.noise(key, start, gamma, vocab)

        def repeat_first(leaf: Array) -> Array:
            return jnp.broadcast_to(leaf[:, :1], leaf.shape)

        if isinstance(right, token.Noise):
            sample = right.sample.at[:, 1].set(right.accept[:, 0])
            wrong = token.Noise(repeat_first(right.accept), sample)
        elif isinstance(right, match.Noise):
            wrong = match.Noise(repeat_first(right.sample))
        else:
            wrong = repeat_first(right)
        return jax.tree.map(lambda a, b: jnp.where(fault == REUSED, a, b), wrong, right)

    return rule._replace(noise=noise)
