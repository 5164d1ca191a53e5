"""Algorithm 1 keeps the target's law with every drafter.

The statistics run the real jitted loop on Markov chains, whose laws are known exactly:
texts of four tokens in many rows against their joint law. Each has a broken twin. The
law of one verdict is enumerated in `exactness/test_certify.py`, by hand too.
"""

import functools

import jax
import jax.numpy as jnp
import pytest

from specjax import generate, probs
from specjax.types import Params, Verifier
from specjax.verifiers import token
from tests.support import goodness, slow
from tests.support.drafter_cases import BY_NAME
from tests.support.sampled_mutants import BRISK, SLOTS, WORLD, laws

GAMMA = 2
NEVER, FINE = 1e-6, 1e-3  # p-values of a test that must fail; the seeds are fixed
RIGHT, RESIDUAL, ROW = range(3)  # the extra token from p; a bonus of the row before

# Of each kind of draft: with laws [V], with rows of a table, without laws. What an
# autoregressive one drafts is sampled in `exactness/test_sampled.py`.
SAMPLED = ("random", "trigram", "copying")
# The target as its own drafter is an autoregressive one of other parameters.
ITSELF = Params(WORLD.target_weights, WORLD.target_weights)


def verifier(wrong) -> Verifier:
    """Returns Algorithm 1, with an error in its extra token if `wrong`."""

    def verify(target, draft, noise):
        right = token.verify(target, draft, noise)
        n = right.num_accepted
        late = (wrong == ROW) & (n == draft.num) & (n > 0)
        anew = probs.sample(probs.take(target, n - late), noise.sample)
        here = jnp.arange(GAMMA + 1) == n[:, None]
        here &= ((wrong == RESIDUAL) | late)[:, None]
        return right._replace(tokens=jnp.where(here, anew[:, None], right.tokens))

    return Verifier(token.noise, verify)


@functools.cache
def loop(name: str):
    @functools.partial(jax.jit, compiler_options=BRISK)
    def run(wrong, params: Params, prompt, request) -> generate.Output:
        decoder = BY_NAME[name].decoder(WORLD, GAMMA, verifier(wrong))
        return generate.build_loop(decoder, SLOTS)(params, prompt, request)

    return run


def p_value(name: str, wrong: int = RIGHT, params: Params | None = None) -> float:
    """Returns the p-value of texts whose rows alternate between two settings."""
    asked = goodness.ask(goodness.ROWS, seed=0)
    output = loop(name)(wrong, params or BY_NAME[name].params(WORLD), *asked)
    return goodness.p_value(goodness.continuations(output), laws("tables"))


@pytest.mark.parametrize("name", slow.mark_slow_after(1, SAMPLED))
def test_texts_follow_the_target_with_any_drafter_and_those_of_a_broken_rule_not(name):
    assert p_value(name) > FINE
    assert p_value(name, RESIDUAL) < NEVER


@pytest.mark.slow
def test_texts_follow_the_target_as_its_own_drafter():
    """The draft is never rejected, which hides a wrong residual, but not a wrong
    row."""
    assert p_value("autoregressive", params=ITSELF) > FINE
    assert p_value("autoregressive", ROW, ITSELF) < NEVER
