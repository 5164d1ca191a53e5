"""Texts that heads draft follow the target's law, and no key is used for two draws."""

import pytest

from specjax import verifiers
from specjax.drafters.rollout import for_rule
from specjax.exactness import draft_certificate, draws, sampled_texts
from specjax.exactness.small_drafts import HEADS
from tests.support import head_mutants, slow

TREES = "tree:draft=medusa,width=2", "tree:draft=eagle,grown=0.4/0.3"
TREES += "tree:draft=eagle3,best=2,longest=3", "tree:draft=eagle3,siblings=with"
RULES = {TREES[3]: "recursive_replaced"} | dict.fromkeys(TREES[:3], "recursive")


def texts(name: str, broken=sampled_texts.no_fault) -> sampled_texts.TextReport:
    """Returns the report on 20,000 texts at temperature 1 and as many at other
    temperatures."""
    rule = verifiers.find(RULES.get(name, "token"))
    case = draft_certificate.make_case(name, [RULES.get(name, "token")])
    drafter = case.source.drafter(case.gamma, for_rule(rule))
    drafter, _ = broken(drafter, [rule], 1)
    run = sampled_texts.build(drafter, (rule,))
    return sampled_texts.certify(run, case.source.params, calls=1)


@pytest.mark.parametrize("name", [*HEADS, *TREES])
def test_no_key_serves_two_draws(name):
    case = draft_certificate.make_case(name, [RULES.get(name, "token")])
    assert draws.problems(draft_certificate.record_draws(case)) == []


@pytest.mark.parametrize(
    "name", slow.mark_slow_unless(lambda name: name == "eagle3", [*HEADS, *TREES])
)
def test_texts_follow_the_target(name):
    assert texts(name).p_value > 1e-3


def law_of_another_token(drafter, rules, fault):
    """Returns a drafter that gives each token the law of the token before it."""
    del fault
    with head_mutants.law_of_another_token() as broken:
        return broken.drafter(drafter), rules


@pytest.mark.parametrize("name", slow.mark_slow_after(1, HEADS))
def test_laws_of_other_tokens_are_seen(name):
    assert texts(name, law_of_another_token).p_value < sampled_texts.LEVEL
