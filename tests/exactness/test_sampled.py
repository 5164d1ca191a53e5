"""Texts of the real loop follow the target's law with every rule and draft.

What enumeration cannot see is tested here: keys, noise, batches, steps after steps. One
program serves all rules and mutants; its drafts are ragged and its rows adapt. That
texts follow the target with every drafter is `verifiers/test_token.py`'s.
Axes: N rows, n tokens, G = gamma, V vocabulary.
"""

import functools

import jax
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import tree
from specjax.exactness.goodness import bonferroni, neighbours_p_value, text_p_values
from specjax.step import Decoder
from specjax.types import Drafter, Verifier
from specjax.verifiers import find, names
from tests import mutation
from tests.support import goodness, sampled_mutants
from tests.support.sampled_mutants import EXACT, MUTANTS, PAIR, WORLD, Mutant

NEVER, FINE = mutation.NEVER, 1e-3  # the seeds are fixed
LAWS = sampled_mutants.laws("tables")


def texts(mutant: Mutant, samples: int) -> np.ndarray:
    each = [sampled_mutants.texts(mutant, seed) for seed in range(samples)]
    return np.concatenate(each)


@functools.cache
def p_value(mutant: Mutant) -> float:
    laws = sampled_mutants.laws(mutant.world)
    return goodness.p_value(texts(mutant, mutant.samples), laws)


def name(mutant: Mutant) -> str:
    return f"{mutant.verifier}: {mutant.wrong}"


def tree_p_value(drafter: Drafter, rule: Verifier) -> float:
    """Returns the p-value of texts of the real loop with a tree."""
    decoder = Decoder(WORLD.target, drafter, rule)
    loop = generate.build_loop(decoder, len(goodness.PROMPT) + 10)
    loop = jax.jit(loop, compiler_options=sampled_mutants.BRISK)
    asked = sampled_mutants.weights("tables"), *goodness.ask(goodness.ROWS, 0)
    return goodness.p_value(goodness.continuations(loop(*asked)), LAWS)


CHAINS = [rule for rule in names() if rule in sampled_mutants.VERDICTS]
DISTINCT = tree.build(WORLD.draft, (-1, -1, 0, 0))


def test_a_rule_for_other_siblings_is_caught():
    """If the rule were not refused: the nodes are drawn without replacement, and
    verified as if with it."""
    wrong = find("recursive_replaced")._replace(siblings=("without",))
    assert tree_p_value(DISTINCT, wrong) < NEVER


@pytest.mark.parametrize("rule", CHAINS)
def test_texts_follow_the_target_and_not_the_draft(rule):
    whole = texts(Mutant("nothing", rule), 4)
    assert len(whole) == goodness.ROWS
    assert goodness.p_value(whole, LAWS) > FINE
    logits = WORLD.draft_weights
    q = [goodness.markov_law(logits, setting) for setting in goodness.SETTINGS]
    assert goodness.p_value(whole, tuple(q)) < NEVER


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_is_caught_and_its_twin_is_not(mutant):
    assert p_value(mutant) < NEVER
    assert p_value(sampled_mutants.correct_counterpart(mutant)) > FINE


@pytest.mark.parametrize("mutant", EXACT, ids=name)
def test_what_looks_wrong_and_is_exact(mutant):
    assert p_value(mutant._replace(samples=2)) > FINE
    twin = sampled_mutants.correct_counterpart(mutant)
    same = np.array_equal(*map(sampled_mutants.texts, (mutant, twin)))
    assert same == (mutant.verifier == "gumbel" and not mutant.noise.by_iteration)


def test_only_neighbours_show_that_they_share_their_coins():
    mutant = next(m for m in MUTANTS if m.noise.whose == PAIR)
    rows = texts(mutant, 1)[::2], texts(mutant, 1)[1::2]
    each = [*map(text_p_values, rows, LAWS)]
    assert bonferroni(each[0] + each[1]) > FINE
    assert neighbours_p_value(*rows, LAWS) < NEVER
