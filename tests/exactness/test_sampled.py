"""Texts of the real loop follow the target's law, whatever decides on the drafts.

What enumeration cannot see is tested here: keys, noise, batches, steps after steps. One
program serves all rules and mutants; its drafts are ragged and its rows adapt. That
texts follow the target with every drafter is `verifiers/test_token.py`'s.
Axes: N rows, n tokens, G = gamma, V vocabulary.
"""

import functools

import jax
import numpy as np
import pytest

from specjax import generate, verifiers
from specjax.drafters import best_first, forked, grown, tree
from specjax.step import Decoder
from specjax.verifiers import named, names
from tests import mutation
from tests.support import goodness, sampled_mutants
from tests.support.sampled_mutants import EXACT, MUTANTS, PAIR, WORLD, Mutant

NEVER, FINE = mutation.NEVER, 1e-3  # the seeds are fixed


def texts(mutant: Mutant, samples: int) -> np.ndarray:
    each = [sampled_mutants.texts(mutant, seed) for seed in range(samples)]
    return np.concatenate(each)


@functools.cache
def p_value(mutant: Mutant) -> float:
    laws = sampled_mutants.laws(mutant.world)
    return goodness.p_value(texts(mutant, mutant.samples), laws)


def name(mutant: Mutant) -> str:
    return f"{mutant.verifier}: {mutant.wrong}"


@functools.cache
def of_trees(rule: str, siblings: str) -> np.ndarray:
    """Texts of the real loop, by a draft of two levels."""
    drafter = tree.build(WORLD.draft, (-1, -1, 0, 0), siblings=siblings)
    return of_drafts(drafter, named(rule))


def of_drafts(drafter, rule) -> np.ndarray:
    decoder = Decoder(WORLD.target, drafter, rule)
    params = sampled_mutants.weights("tables")
    loop = generate.build_loop(decoder, len(goodness.PROMPT) + 10)
    loop = jax.jit(loop, compiler_options=sampled_mutants.BRISK)
    return goodness.written(loop(params, *goodness.ask(goodness.ROWS, 0)))


CHAINS = [rule for rule in names() if rule in sampled_mutants.VERDICTS]
TREES = [(rule, named(rule).siblings[0]) for rule in names() if named(rule).siblings]


@pytest.mark.parametrize(("rule", "siblings"), TREES)
def test_texts_of_trees_follow_the_target(rule, siblings):
    laws = sampled_mutants.laws("tables")
    assert goodness.p_value(of_trees(rule, siblings), laws) > FINE


DYNAMIC = {
    "best_first": (best_first.build(WORLD.draft, 3, 2, 2), "recursive"),
    "forked": (forked.build(WORLD.draft, 4, 2), "recursive_replaced"),
    "grown": (grown.build(WORLD.draft, 3, (0.3, 0.2)), "traversal"),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_texts_of_trees_that_differ_follow_the_target(name):
    laws, (drafter, rule) = sampled_mutants.laws("tables"), DYNAMIC[name]
    assert goodness.p_value(of_drafts(drafter, named(rule)), laws) > FINE


def test_a_rule_for_other_siblings_is_caught(monkeypatch):
    """Were it not refused: drawn without replacement, judged as if with it."""
    wrong = named("recursive_replaced")._replace(siblings=("without",))
    monkeypatch.setitem(verifiers.EXACT, "wrong", wrong)
    laws = sampled_mutants.laws("tables")
    assert goodness.p_value(of_trees("wrong", "without"), laws) < NEVER


@pytest.mark.parametrize("rule", CHAINS)
def test_texts_follow_the_target_and_not_the_draft(rule):
    whole = texts(Mutant("nothing", rule), 4)
    assert len(whole) == goodness.ROWS
    assert goodness.p_value(whole, sampled_mutants.laws("tables")) > FINE
    logits = WORLD.draft_weights
    q = [goodness.markov_law(logits, setting) for setting in goodness.SETTINGS]
    assert goodness.p_value(whole, tuple(q)) < NEVER


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_is_caught_and_its_twin_is_not(mutant):
    assert p_value(mutant) < NEVER
    assert p_value(sampled_mutants.unbroken(mutant)) > FINE


@pytest.mark.parametrize("mutant", EXACT, ids=name)
def test_what_looks_wrong_and_is_exact(mutant):
    assert p_value(mutant._replace(samples=2)) > FINE
    twin = sampled_mutants.unbroken(mutant)
    same = np.array_equal(*map(sampled_mutants.texts, (mutant, twin)))
    assert same == (mutant.verifier == "gumbel" and not mutant.noise.by_iteration)


def test_only_neighbours_show_that_they_share_their_coins():
    mutant = next(m for m in MUTANTS if m.noise.whose == PAIR)
    whole, laws = texts(mutant, 1), sampled_mutants.laws("tables")
    even, odd = whole[::2], whole[1::2]
    alone = goodness.text_p_values(even, laws[0]) + goodness.text_p_values(odd, laws[1])
    assert goodness.bonferroni(alone) > FINE
    assert goodness.neighbours_p_value(even, odd, laws) < NEVER
