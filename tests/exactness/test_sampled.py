"""Texts of the real loop follow the target's law, whatever decides on the drafts.

What enumeration cannot see is tested here: keys, noise, batches, steps after steps. One
program serves all rules and mutants; its drafts are ragged and its rows adapt. That
texts follow the target with every drafter is `verifiers/test_token.py`'s.
Axes: N rows, n tokens, G = gamma, V vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, keys, probs
from specjax.inputs import make_sampling
from specjax.step import Decoder, build_step
from specjax.types import Draft, Drafter, Params
from specjax.verifiers import named, names
from tests import mutation
from tests.support import goodness, sampled_mutants, sampled_texts
from tests.support.one_rule import one_of
from tests.support.sampled_mutants import EXACT, MUTANTS, Mutant
from tests.support.sampled_texts import GAMMA, SLOTS, WORLD
from tests.support.tiny_t5 import quick_jit

NEVER, FINE = mutation.NEVER, 1e-3  # the seeds are fixed


def p_value(mutant: Mutant) -> float:
    laws = sampled_texts.laws(mutant.world)
    return goodness.p_value(sampled_texts.texts(mutant), laws)


def name(mutant: Mutant) -> str:
    return f"{mutant.name}, {mutant.verifier}"


@pytest.mark.parametrize("rule", names())
def test_texts_follow_the_target_and_not_the_draft(rule):
    halves = [sampled_texts.texts(Mutant("", "", rule), seed) for seed in (2, 3)]
    texts = np.concatenate(halves)
    assert len(texts) == goodness.ROWS
    assert goodness.p_value(texts, sampled_texts.laws("tables")) > FINE
    logits = WORLD.draft_weights
    q = [goodness.markov_law(logits, setting) for setting in goodness.SETTINGS]
    assert goodness.p_value(texts, tuple(q)) < NEVER


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


@pytest.mark.parametrize("rule", ["token", "match"])
def test_a_step_draws_and_decides_by_other_uniforms(rule):
    """Of its drafter's key, at every slot, none is the verifier's. Block and rejection
    have the noise of token, and gumbel none that is uniform."""
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
        decoder = Decoder(WORLD.target, drafter, rule._replace(verify=verify))
        state = generate.prefill(decoder, params, prompt, SLOTS)
        build_step(*decoder)(params, request, state)
        return jnp.concatenate([jnp.ravel(u) for u in seen])

    drawn = uniforms(Params(WORLD.target_weights), *prompt_and_request)
    assert len(np.unique(drawn)) == drawn.size


def test_a_rule_as_an_argument_is_that_rule():
    """Bit by bit what this rule alone decides."""
    rules, rows = tuple(map(named, names())), 64
    z = jax.random.normal(jax.random.key(0), (2, rows, GAMMA + 1, 4))
    heat = make_sampling(rows, 1.0)
    p, q = (probs.standardize(logits, heat) for logits in z)
    tokens = jax.random.randint(jax.random.key(1), (rows, GAMMA), 0, 4)
    draft = Draft(tokens, jnp.full(rows, GAMMA), probs.first(q, GAMMA))
    key, start = jax.random.split(jax.random.key(2), rows), jnp.ones(rows, jnp.int32)

    def decide(rule):
        return rule.verify(p, draft, rule.noise(key, start, GAMMA, 4))

    chosen = quick_jit(lambda which: decide(one_of(rules, which)))
    alone = quick_jit(lambda: [decide(rule) for rule in rules])()
    for which, verdict in enumerate(alone):
        jax.tree.map(np.testing.assert_array_equal, chosen(which), verdict)
    kept = [tuple(verdict.num_accepted.tolist()) for verdict in alone]
    assert len(set(kept)) == len(rules)
