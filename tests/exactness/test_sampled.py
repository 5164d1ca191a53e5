"""Texts of the real loop follow the target's law, whatever decides on the drafts.

What enumeration cannot see is tested here: keys, noise, batches, steps after steps.
That Algorithm 1's texts do, with every drafter, is `verifiers/test_token.py`'s.
Axes: N rows, n tokens, G = gamma, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, keys
from specjax.step import Decoder, build_step
from specjax.types import Draft, Drafter, Params
from specjax.verifiers import named
from tests import mutation
from tests.support import goodness, sampled_mutants, sampled_texts
from tests.support.drafter_cases import BY_NAME
from tests.support.sampled_mutants import EXACT, MUTANTS, Mutant
from tests.support.sampled_texts import GAMMA, SHORT, SLOTS, WORLD

NEVER, FINE = mutation.NEVER, 1e-3  # the seeds are fixed
RULES = ("block", "rejection", "match", "gumbel")
# Laws in a table; no laws, and ragged drafts. Dense laws are in the mutants' program.
DRAFTERS = ("trigram", "copying")

each_rule = pytest.mark.parametrize("rule", RULES)


@functools.cache
def decode(drafter: str, rule: str) -> generate.Output:
    case, asked = BY_NAME[drafter], goodness.ask(goodness.ROWS, seed=1)
    run = sampled_texts.loop(case, tuple(map(named, RULES)))
    return run(RULES.index(rule), case.params(WORLD), *asked)


def p_value(mutant: Mutant) -> float:
    laws = sampled_texts.laws(mutant.world)
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
    assert goodness.p_value(texts, sampled_texts.laws("tables")) > FINE


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
    texts, laws = sampled_texts.texts(mutant), sampled_texts.laws("tables")
    even, odd = texts[::2], texts[1::2]
    alone = goodness.text_p_values(even, laws[0]) + goodness.text_p_values(odd, laws[1])
    assert goodness.bonferroni(alone) > FINE
    assert goodness.neighbours_p_value(even, odd, laws) < NEVER


@pytest.mark.parametrize("rule", ["token", *RULES[:-1]])
def test_a_step_draws_and_decides_by_other_uniforms(rule):
    """Of its drafter's key, at every slot, none is the verifier's."""
    rule, prompt_and_request = named(rule), goodness.ask(2, seed=0)

    @jax.jit
    def uniforms(params, prompt, request):
        seen = []

        def draft(key, params, request, state):
            seen.extend(keys.uniform(key, slot, (2,)) for slot in range(GAMMA + 1))
            tokens = jnp.zeros((state.length.size, GAMMA), jnp.int32)
            return Draft(tokens, state.budget, None), None

        def verify(target, draft, noise, keep_residual=False):
            seen.extend(jax.tree.leaves(noise))
            return rule.verify(target, draft, noise, keep_residual)

        drafter = Drafter(lambda *_: None, draft, GAMMA)
        parts = Decoder(WORLD.target, drafter, rule._replace(verify=verify))
        state = generate.prefill(parts, params, prompt, SLOTS)
        build_step(*parts)(params, request, state)
        return jnp.concatenate([jnp.ravel(u) for u in seen])

    found = uniforms(Params(WORLD.target_weights), *prompt_and_request)
    assert len(np.unique(found)) == found.size


def test_a_rule_as_an_argument_is_that_rule():
    """Bit by bit what the loop of this rule alone says."""
    case, asked = BY_NAME["copying"], goodness.ask(goodness.ROWS, seed=1)
    run = generate.build(case.parts(WORLD, SHORT, named("block")), SLOTS)
    alone = run(case.params(WORLD), *asked)
    jax.tree.map(np.testing.assert_array_equal, alone, decode("copying", "block"))
