"""Algorithm 1 keeps the target's law with every drafter.

The statistics run the real jitted loop on Markov chains, whose laws are known exactly:
texts of four tokens in many rows against their joint law. Each has a broken twin. The
law of one verdict is enumerated in `exactness/test_certify.py`, by hand too.
"""

import pytest

from specjax.types import Params, Verifier
from specjax.verifiers import token
from tests.support import goodness, mutants, sampled_texts
from tests.support.drafter_cases import BY_NAME
from tests.support.sampled_texts import WORLD

NEVER, FINE = 1e-6, 1e-3  # p-values of a test that must fail; the seeds are fixed

# Of each kind of draft: with laws [V], with rows of a table, without laws. An early
# exit drafts as an autoregressive one does.
SAMPLED = ("autoregressive", "random", "trigram", "copying")
# The target as its own drafter is an autoregressive one of other parameters.
ITSELF = Params(WORLD.target_weights, WORLD.target_weights)
RESIDUAL, ROW = "residual is p", "bonus of the row before"


def mutant(wrong: str) -> Verifier:
    def verify(target, draft, noise):
        verdict = mutants.verify(target, draft, noise, wrong=wrong)
        return verdict._replace(residual=None)

    return Verifier(token.noise, verify)


RULES = token.verifier, mutant(RESIDUAL), mutant(ROW)


def p_value(name: str, wrong: str = "", params: Params | None = None) -> float:
    """Of texts by Algorithm 1, or one of its mutants, whose rows take turns with two
    settings."""
    case, which = BY_NAME[name], ("", RESIDUAL, ROW).index(wrong)
    decode = sampled_texts.loop(case, RULES if name == SAMPLED[0] else RULES[:2])
    asked = goodness.ask(goodness.ROWS, seed=0)
    texts = goodness.written(decode(which, params or case.params(WORLD), *asked))
    return goodness.p_value(texts, sampled_texts.laws("tables"))


@pytest.mark.parametrize("name", SAMPLED)
def test_texts_follow_the_target_with_any_drafter(name):
    assert p_value(name) > FINE


@pytest.mark.parametrize("name", SAMPLED)
def test_the_check_notices_a_broken_verifier_with_any_drafter(name):
    assert p_value(name, RESIDUAL) < NEVER


def test_texts_follow_the_target_as_its_own_drafter():
    """It is never rejected, which hides a wrong residual, but not a wrong row."""
    assert p_value("autoregressive", params=ITSELF) > FINE
    assert p_value("autoregressive", ROW, ITSELF) < NEVER
