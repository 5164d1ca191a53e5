"""Laws that the questions compute, against the verifiers that they are about."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.questions import execution, frontier, invariance, transform
from experiments.questions.frontier import LENIENCE, SIGMOID
from specjax import probs
from specjax.theory import closed_forms
from specjax.types import Draft, Sampling
from specjax.verifiers import gumbel, lenient, sigmoid, token

VOCAB, RANDOM = 40, np.random.default_rng(0)
P, Q = jnp.float32(2 * RANDOM.normal(size=(2, VOCAB)))


def law_of(z, count, slots):
    rows = jnp.broadcast_to(z, (count, slots, VOCAB))
    return probs.standardize(rows, Sampling(jnp.ones(count)))


def emitted(verifier):
    """The law of the token after a prefix, by what the verifier says of every draft."""
    draft = Draft(
        jnp.arange(VOCAB)[:, None], jnp.ones(VOCAB, jnp.int32), law_of(Q, VOCAB, 1)
    )
    noise = token.Noise(jnp.full((VOCAB, 1), jnp.inf), jnp.zeros((VOCAB, 2)))
    verdict = verifier.verify(law_of(P, VOCAB, 2), draft, noise, True)
    q, kept = probs.dense(law_of(Q, 1, 1))[0, 0], verdict.accept_prob[:, 0]
    left = verdict.residual / verdict.residual.sum(-1, keepdims=True)
    return q @ kept, q * kept + (q * (1 - kept)) @ left


def test_the_frontier_is_of_what_the_verifiers_emit_and_nothing_is_beyond_it():
    laws = law_of(P, 1, 1), law_of(Q, 1, 1)
    p = probs.dense(laws[0])
    alpha, tv, ratio = np.float64(frontier.outcomes(*laws, None)[0][0, 0]).T
    names = [f"{rule}:{x}" for rule, x in frontier.points()]
    few = LENIENCE[::2]
    rules = {f"lenience:{x}": lenient.build(x) for x in few}
    rules |= {
        f"lenience, residual p - l q:{x}": lenient.build(x, "scaled") for x in few
    }
    rules |= {f"sigmoid:{x}": sigmoid.build(-x, x) for x in SIGMOID[:2]}
    for name, verifier in rules.items():
        at, (kept, law) = names.index(name), emitted(verifier)
        assert alpha[at] == pytest.approx(float(kept), abs=1e-5), name
        assert tv[at] == pytest.approx(float(abs(law - p).sum() / 2), abs=1e-5), name
    beta, count = alpha[0], len(LENIENCE)
    np.testing.assert_allclose(tv[:count], alpha[:count] - beta, atol=1e-5)
    assert (ratio[:count] < 1 / np.array(LENIENCE) + 1e-4).all()
    assert (alpha < beta + tv + 1e-5).all()


def test_a_race_agrees_as_often_as_the_sum_over_all_pairs_says():
    p, q = np.random.default_rng(1).dirichlet(np.full(30, 0.3), (2, 50))
    p[:, :5], q[:, 3:9] = 0, 0
    p, q = (jnp.float32(x / x.sum(-1, keepdims=True)) for x in (p, q))
    ours = invariance.agreement(p, q)
    np.testing.assert_allclose(ours, gumbel.acceptance(p, q), atol=1e-5)


def test_arms_are_transforms_of_q_and_a_switch_finds_where_the_argmax_is_better():
    laws = law_of(P, 1, 1), law_of(Q, 1, 1)
    chance, sure = (x[0, 0] for x in transform.arms(*laws, None))
    p, q = (probs.dense(law)[0, 0] for law in laws)
    own = transform.ARMS.index("T_q = 1, all")
    assert chance[own] == pytest.approx(float(jnp.minimum(p, q).sum()), abs=1e-5)
    cut = probs.standardize(
        Q[None] * 1.0, Sampling(jnp.full(1, 0.5), jnp.full(1, 5), None)
    )
    at = transform.ARMS.index("T_q = 0.5, top-k 5")
    kept = jnp.minimum(p, probs.dense(cut)[0]).sum()
    assert chance[at] == pytest.approx(float(kept), abs=1e-5)
    assert chance[-1] == p[Q.argmax()] and sure == pytest.approx(float(q.max()))
    sure = np.linspace(0, 1, 1000)
    kept = np.stack([np.full(1000, 0.6), np.full(1000, 0.2), sure], 1)
    found = transform.chosen_by(sure, kept, np.arange(1000) % 2 == 0)
    value = {k: kept[np.arange(1000), arm].mean() for k, arm in found.items()}
    assert value["fixed"] == pytest.approx(0.6)
    assert value["switch"] == value["binned"] == pytest.approx(0.68, abs=0.002)


@pytest.fixture(scope="module")
def taxi():
    leads, reward = execution.world()
    return leads, *(
        execution.softmax(execution.plan(leads, reward, n) / 0.5) for n in (60, 8)
    )


def test_every_rule_of_the_taxi_keeps_its_planner_law(taxi):
    leads, p, q = taxi
    np.testing.assert_allclose(leads.sum(-1), 1)
    kept = {}
    for name, (k, verifier, drawn) in execution.RULES.items():
        kept[name], law = execution.outcome(p, q, k, verifier, drawn)
        np.testing.assert_allclose(law, p, atol=2e-6, err_msg=name)
    ours, drawn, likeliest = [*kept.values()][:3]
    np.testing.assert_allclose(ours, np.minimum(p, q).sum(1), atol=2e-6)
    np.testing.assert_allclose(drawn, (p * q).sum(1), atol=2e-6)
    best = np.take_along_axis(p, q.argmax(1)[:, None], 1)[:, 0]
    np.testing.assert_allclose(likeliest, best, atol=2e-6)


def test_calls_of_a_chain_are_eq_1_where_every_place_is_alike(taxi):
    """And where p is q all that was guessed is kept."""
    leads, p, _ = taxi
    each = np.tile([[0.5, 0.5], [0.9, 0.1]], (1, 1))
    same = np.repeat(each[:1], 2, 0), np.repeat(each[1:], 2, 0)
    small = np.full((2, 2, 2), 0.5)
    many = execution.per_call(*same, small, 3)
    assert many == pytest.approx(float(closed_forms.expected_tokens(0.6, 3)))
    assert execution.per_call(p, p, leads, 2) == pytest.approx(3)
