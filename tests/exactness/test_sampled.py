"""Texts of the real loop follow the target's law, whatever decides on the drafts.

What enumeration cannot see is tested here: keys, noise, batches, steps after steps.
That Algorithm 1's texts do, with every drafter, is `test_token_verifier.py`'s.
Axes: N rows, n tokens, G = gamma, V vocabulary.
"""

import functools

import jax
import numpy as np
import pytest

from specjax import generate
from specjax.verifiers import named
from tests import goodness, mutation, sampled_mutants, sampled_texts
from tests.drafters import BY_NAME
from tests.sampled_mutants import EXACT, MUTANTS, Mutant
from tests.sampled_texts import GAMMA, SLOTS, WORLD

NEVER, FINE = mutation.NEVER, 1e-3  # the seeds are fixed
RULES = ("block", "rejection", "match", "gumbel")
# Laws in a table; no laws, and ragged drafts. Dense laws are in the mutants' program.
DRAFTERS = ("trigram", "copying")

each_rule = pytest.mark.parametrize("rule", RULES)


@functools.cache
def loop(drafter: str):
    """One compilation for all rules: which of them is an argument."""
    case, rules = BY_NAME[drafter], tuple(map(named, RULES))

    @jax.jit
    def run(which, params, prompt, request):
        rule = sampled_texts.one_of(rules, which)
        parts = case.parts(WORLD, GAMMA, rule)
        return generate.build_loop(parts, SLOTS)(params, prompt, request)

    return run


@functools.cache
def decode(drafter: str, rule: str) -> generate.Output:
    params = BY_NAME[drafter].params(WORLD)
    asked = goodness.ask(goodness.ROWS, seed=1)
    return loop(drafter)(RULES.index(rule), params, *asked)


def p_value(mutant: Mutant) -> float:
    laws = sampled_texts.laws(mutant.binary)
    return goodness.p_value(sampled_texts.texts(mutant), laws)


def name(mutant: Mutant) -> str:
    return f"{mutant.name}, {mutant.verifier}"


@functools.cache
def texts_of(drafter: str, rule: str) -> np.ndarray:
    if drafter != "adaptive":
        return goodness.written(decode(drafter, rule))
    halves = [sampled_texts.texts(Mutant("", "", rule), seed) for seed in (2, 3)]
    return np.concatenate(halves)


@each_rule
@pytest.mark.parametrize("drafter", ("adaptive", *DRAFTERS))
def test_texts_follow_the_target(drafter, rule):
    texts = texts_of(drafter, rule)
    assert len(texts) == goodness.ROWS
    assert goodness.p_value(texts, sampled_texts.laws(False)) > FINE


@each_rule
@pytest.mark.parametrize("drafter", ("adaptive", *DRAFTERS))
def test_the_check_notices_the_law_of_the_draft(drafter, rule):
    """The same texts do not follow q."""
    texts, logits = texts_of(drafter, rule), WORLD.draft_weights
    laws = [goodness.markov_law(logits, setting) for setting in goodness.SETTINGS]
    assert goodness.p_value(texts, tuple(laws)) < NEVER


@each_rule
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_steps_differ_in_length(drafter, rule):
    """Else the texts would show little: some tokens are kept, and some are not."""
    counts = decode(drafter, rule).counts
    assert counts.calls.max() == goodness.TOKENS
    certain = drafter == "copying" and rule == "rejection"  # q misses an id: none kept
    assert (counts.accepted.sum() == 0) == certain
    assert counts.accepted.sum() < counts.tested.sum()


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_is_caught_and_its_twin_is_not(mutant):
    assert p_value(mutant) < NEVER
    assert p_value(sampled_mutants.unbroken(mutant)) > FINE


@pytest.mark.parametrize("mutant", EXACT, ids=name)
def test_what_looks_wrong_and_is_exact(mutant):
    assert p_value(mutant) > FINE
    twin = sampled_mutants.unbroken(mutant)
    same = np.array_equal(sampled_texts.texts(mutant), sampled_texts.texts(twin))
    assert same == (mutant.verifier == "gumbel" and mutant.rule is None)


def test_only_neighbours_show_that_they_share_their_coins():
    mutant = next(m for m in MUTANTS if m.name == "coins of the row beside")
    texts, laws = sampled_texts.texts(mutant), sampled_texts.laws(False)
    even, odd = texts[::2], texts[1::2]
    alone = goodness.text_p_values(even, laws[0]) + goodness.text_p_values(odd, laws[1])
    assert goodness.bonferroni(alone) > FINE
    assert goodness.neighbours_p_value(even, odd, laws) < NEVER


def test_a_rule_as_an_argument_is_that_rule():
    """Bit by bit what the loop of this rule alone says."""
    case, asked = BY_NAME["copying"], goodness.ask(goodness.ROWS, seed=1)
    run = generate.build(case.parts(WORLD, GAMMA, named("block")), SLOTS)
    alone = run(case.params(WORLD), *asked)
    jax.tree.map(np.testing.assert_array_equal, alone, decode("copying", "block"))
