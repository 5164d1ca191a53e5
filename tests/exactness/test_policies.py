"""Policies leave the law as it is, and policies that look ahead are detected.

A length may depend on all that was drawn before it and on what is kept; not on a token
that it leaves out, nor on one that is drawn after it.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import policies, verifiers
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import Fixture, table
from specjax.types import Policy

WITHIN = "confidence:start=0.5,step=0.2"
NAMES = WITHIN, "cost_table:v=1:1/2:1.1/3:1.2,c=0.1", "renewal:c=0.2,slope=0.1"


def certify_policy(rule: str, policy: Policy, n: int = 3) -> certify.Certificate:
    fixture = Fixture("policy", 2, table(2, 3), table(2, 4), policy=policy)
    return certify.certify(verifiers.find(rule), fixture, 3, n, CLAIMS[rule])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_policy_is_exact(rule, name):
    certificate = certify_policy(rule, policies.find(name))
    assert certificate.broken == () and certificate.error < 2e-7


def drop_last_token(right, law, drafts, before, most, carry):
    """Leaves out the token at which a draft was stopped."""
    num, carry = right(law, drafts, before, most, carry)
    return jnp.where(num < most, num - 1, num), carry


def decide_by_next_token(right, law, drafts, before, most, carry):
    """Decides by the next token, which is then left out."""
    return right(law, *(np.roll(x, -1, axis=1) for x in (drafts, before)), most, carry)


@pytest.mark.parametrize("wrong", [drop_last_token, decide_by_next_token])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_policy_that_anticipates_is_caught(rule, wrong, monkeypatch):
    right = enumeration._build_rollout

    def break_policy(policy: Policy):
        return lambda *given: wrong(right(policy), *given)

    monkeypatch.setattr(enumeration, "_build_rollout", break_policy)
    certificate = certify_policy(rule, policies.find(WITHIN), n=2)
    assert "law" in certificate.broken and certificate.error > 1e-3
    assert certify_policy("match", policies.find(WITHIN), n=2).exact  # any draft serves


def test_the_targets_law_is_no_secret():
    """A policy may look at p itself for tokens that are kept, as a function of the
    text."""
    p = np.float32([0.7, 0.3])

    def init(batch: int, gamma: int):
        return jnp.full(batch, gamma, jnp.int32), None

    def go_on(carry, law, token, slot):
        return carry, jnp.take(p, token) > 0.5

    policy = Policy(init, lambda budget, carry, info: (budget, carry), go_on)
    assert certify_policy("token", policy).broken == ()
