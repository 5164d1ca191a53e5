"""Texts of the real loop with one of `sampled_mutants`, which there is three numbers.

One compilation serves all of them: a rule, a way to draw, and an edit of the draft.
Axes: N rows of a sample, n tokens, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate, policies
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import (
    BLOCK,
    Drafter,
    Params,
    Request,
    Sampling,
    State,
    Verifier,
)
from specjax.verifiers import named
from tests.support import goodness, tiny
from tests.support.drafter_cases import Case
from tests.support.one_rule import one_of
from tests.support.sampled_mutants import EXACT, MUTANTS, Mutant, unbroken

GAMMA, ROWS = 3, goodness.ROWS // 2  # these errors are large
SHORT = 2  # gamma of loops that are compiled for each drafter
FEW = 4_000  # of blocks, which are wide
POLICY = policies.heuristic(start=3, least=2)  # the rows of a batch draft 2 or 3
# Not first met in a trace, which would keep its own.
WORLD, BLOCKS = tiny.tables(), tiny.blocks()
# Half the time to compile, and as fast.
BRISK = {"xla_backend_optimization_level": 1}
SLOTS = len(goodness.PROMPT) + goodness.TOKENS + GAMMA + 1


class Choices(NamedTuple):
    """What one compilation serves, each to be named by its number."""

    rules: tuple[Verifier, ...]
    draws: tuple[Callable, ...]
    edits: tuple[Callable, ...]


def rule_of(mutant: Mutant) -> Verifier:
    return mutant.rule or named(mutant.verifier)


def choices(wide: bool) -> Choices:
    """Those of all mutants that decode in blocks, or of all others."""
    these = [each for each in (*MUTANTS, *EXACT) if (each.world == "blocks") == wide]
    mutants = [*these, *map(unbroken, these)]
    parts = [(rule_of(each), each.draw, each.edit) for each in mutants]
    return Choices(*(tuple(dict.fromkeys(kind)) for kind in zip(*parts, strict=True)))


CHOICES = {wide: choices(wide) for wide in (False, True)}


@functools.cache
def loop(case: Case, rules: tuple[Verifier, ...]) -> Callable:
    """One compilation for all rules of a drafter: which of them is an argument."""

    @functools.partial(jax.jit, compiler_options=BRISK)
    def run(which, params: Params, prompt, request) -> generate.Output:
        decoder = case.decoder(WORLD, SHORT, one_of(rules, which))
        return generate.build_loop(decoder, SLOTS)(params, prompt, request)

    return run


def one_drawer(draws: tuple[Callable, ...], which: Array) -> Callable:
    def draw(key: Array, request: Request, state: State) -> Callable:
        branches = [each(key, request, state) for each in draws]
        return lambda law, slot: jax.lax.switch(which, branches, law, slot)

    return draw


def edited(drafter: Drafter, edits: tuple[Callable, ...], which: Array) -> Drafter:
    def draft(key: Array, params, request: Request, state: State):
        right, cache = drafter.draft(key, params, request, state)
        numbers = [lambda draft, e=edit: e(draft).num for edit in edits]
        return right._replace(num=jax.lax.switch(which, numbers, right)), cache

    return drafter._replace(draft=draft)


@functools.partial(jax.jit, static_argnames="wide", compiler_options=BRISK)
def decode(which: tuple, params: Params, prompt, request, wide: bool = False):
    """The `generate.Output` of the choices that `which` numbers."""
    world = BLOCKS if wide else WORLD
    rules, draws, edits = CHOICES[wide]
    rule, draw, edit = which
    drafter = autoregressive.build(world.draft, GAMMA, one_drawer(draws, draw))
    parts = edited(drafter, edits, edit), one_of(rules, rule), POLICY
    loop = generate.build_loop(Decoder(world.target, *parts), SLOTS)
    return loop(params, prompt, request)


def weights(world: str) -> Params:
    """Of target and draft, [V, V] each."""
    if world != "binary":
        whole = BLOCKS if world == "blocks" else WORLD
        return Params(whole.target_weights, whole.draft_weights)
    laws = [1 / 3, 2 / 3, 0, 0], [2 / 3, 1 / 3, 0, 0]
    return Params(*(jnp.log(jnp.tile(jnp.array(law), (4, 1))) for law in laws))


@functools.cache
def laws(world: str) -> tuple[np.ndarray, np.ndarray]:
    """Of `texts`, in even rows and in odd ones."""
    if world == "blocks":
        logits = tiny.tables(3).target_weights
        return (goodness.markov_law(logits, Sampling(1.0)),) * 2
    logits = weights(world).target
    return tuple(goodness.markov_law(logits, s) for s in goodness.SETTINGS)


def texts(mutant: Mutant, seed: int = 0) -> np.ndarray:
    """[N, n] of its loop: ids, or in the world of blocks the block of each."""
    which = rule_of(mutant), mutant.draw, mutant.edit
    chosen = CHOICES[mutant.world == "blocks"]
    return _texts(*map(tuple.index, chosen, which), mutant.world, seed)


@functools.cache
def _texts(rule: int, draw: int, edit: int, world: str, seed: int) -> np.ndarray:
    wide, asked = world == "blocks", goodness.ask(ROWS, seed)
    if wide:
        prompt = make_prompt([goodness.PROMPT] * FEW)
        limits = goodness.TOKENS, make_sampling(FEW, 1.0)
        asked = prompt, make_request(jax.random.key(seed), prompt, *limits)
    output = decode((rule, draw, edit), weights(world), *asked, wide=wide)
    return goodness.written(output) // (BLOCK if wide else 1)
