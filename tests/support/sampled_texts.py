"""Texts of the real loop with one of `sampled_mutants`, which there is three numbers.

One compilation serves all of them: a rule, a way to draw, and an edit of the draft.
Axes: N rows of a sample, n tokens, V vocabulary.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate
from specjax.drafters import adaptive, autoregressive
from specjax.types import Draft, Drafter, Law, Params, Request, State, Verifier
from specjax.verifiers import named
from tests import goodness, tiny
from tests.sampled_mutants import EXACT, MUTANTS, Mutant, unbroken

GAMMA, ROWS = 3, goodness.ROWS // 2  # these errors are large
POLICY = adaptive.heuristic(start=3, least=2)  # the rows of a batch draft 2 or 3
WORLD = tiny.tables()  # not first met in a trace, which would keep its own
SLOTS = len(goodness.PROMPT) + goodness.TOKENS + GAMMA + 1


def rule_of(mutant: Mutant) -> Verifier:
    return mutant.rule or named(mutant.verifier)


def distinct(function: Callable) -> tuple:
    each = (*MUTANTS, *EXACT)
    twins = map(unbroken, each)
    return tuple(dict.fromkeys(function(mutant) for mutant in (*each, *twins)))


RULES = distinct(rule_of)
DRAWS = distinct(lambda mutant: mutant.draw)
EDITS = distinct(lambda mutant: mutant.edit)


def one_of(rules: tuple[Verifier, ...], which: Array) -> Verifier:
    """The verifier rules[which], for a `which` that is traced."""

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        return key, start

    def verify(target: Law, draft: Draft, noise: tuple):
        sizes = draft.tokens.shape[1], target.logits.shape[-1]

        def branch(rule: Verifier, target: Law, draft: Draft):
            return rule.verify(target, draft, rule.noise(*noise, *sizes))

        branches = [functools.partial(branch, rule) for rule in rules]
        return jax.lax.switch(which, branches, target, draft)

    return Verifier(noise, verify)


def one_drawer(which: Array) -> Callable:
    def draw(key: Array, request: Request, state: State) -> Callable:
        branches = [each(key, request, state) for each in DRAWS]
        return lambda law, slot: jax.lax.switch(which, branches, law, slot)

    return draw


def edited(drafter: Drafter, which: Array) -> Drafter:
    def draft(key: Array, params, request: Request, state: State):
        right, cache = drafter.draft(key, params, request, state)
        numbers = [lambda draft, e=edit: e(draft).num for edit in EDITS]
        return right._replace(num=jax.lax.switch(which, numbers, right)), cache

    return drafter._replace(draft=draft)


@jax.jit
def decode(which: tuple, params: Params, prompt, request) -> generate.Output:
    rule, draw, edit = which
    drafter = autoregressive.build(WORLD.draft, GAMMA, one_drawer(draw))
    parts = edited(drafter, edit), one_of(RULES, rule), POLICY
    loop = generate.build_loop(generate.Parts(WORLD.target, *parts), SLOTS)
    return loop(params, prompt, request)


def weights(binary: bool) -> Params:
    """Of target and draft, [V, V] each."""
    if not binary:
        return Params(WORLD.target_weights, WORLD.draft_weights)
    laws = [1 / 3, 2 / 3, 0, 0], [2 / 3, 1 / 3, 0, 0]
    return Params(*(jnp.log(jnp.tile(jnp.array(law), (4, 1))) for law in laws))


@functools.cache
def laws(binary: bool) -> tuple[np.ndarray, np.ndarray]:
    logits = weights(binary).target
    return tuple(goodness.markov_law(logits, s) for s in goodness.SETTINGS)


def texts(mutant: Mutant, seed: int = 0) -> np.ndarray:
    """[N, n] of its loop."""
    which = rule_of(mutant), mutant.draw, mutant.edit
    return _texts(*map(tuple.index, (RULES, DRAWS, EDITS), which), mutant.binary, seed)


@functools.cache
def _texts(rule: int, draw: int, edit: int, binary: bool, seed: int) -> np.ndarray:
    asked = goodness.ask(ROWS, seed)
    return goodness.written(decode((rule, draw, edit), weights(binary), *asked))
