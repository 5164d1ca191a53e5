"""Measurements that answer questions run on tiny pairs; laws that questions compute
agree with the verifiers."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.questions import (
    asked,
    execution,
    frontier,
    hierarchy,
    invariance,
    monitor,
    stopping,
    transform,
)
from experiments.questions.frontier import LENIENCE, SIGMOID
from experiments.questions.verdict import bootstrap, judge, sum_by_text
from specjax import probs
from specjax.exactness import audit, small_drafts
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.theory import closed_forms
from specjax.types import Draft, Sampling
from specjax.verifiers import gumbel, lenient, sigmoid, token
from tests.support.audit_samples import pair
from tests.support.settings import make

PROMPTS = Prompts([[1], [1, 2], [3], [0], [2], [0, 1], [3, 2], [2, 2]])
SIZES = dict(tokens=96, gamma=3, new_tokens=12, batch=4)


def test_a_verdict_goes_either_way_and_not_within_two_errors():
    assert judge("it gains", 0.05, error=0.01, bound=0.01).startswith(
        "survives: it gains 5.00% ±"
    )
    assert judge("it gains", 0.004, error=0.001, bound=0.01).startswith("killed")
    assert judge("it gains", 0.02, error=0.01, bound=0.01).startswith("undecided")
    # One of six is 2.3 errors away by chance more often than one alone is 2.
    told = {"error": 0.01, "bound": 0.01}
    assert judge("it gains", 0.033, **told).startswith("survives")
    assert judge("it gains", 0.033, **told, count=6).startswith("undecided")
    assert judge("it gains", 0.039, **told, count=6).startswith("survives")
    assert (
        judge("it gains", 0.0, error=None, bound=0.0) == "killed: it gains 0.00% = 0%"
    )
    assert judge("it costs", 0.05, error=0.01, bound=0.1, most=True).startswith(
        "survives"
    )
    assert judge("it costs", 0.2, error=0.01, bound=0.1, most=True).startswith("killed")
    told = {f"{x}_gain": 0.1 for x in ("head", "product", "oracle")}
    told |= {f"{x}_gain_se": 0.01 for x in ("head", "product", "oracle")}
    words = [x.partition(":")[0] for x in stopping.verdicts(told)]
    assert words == ["survives"] * 3
    worse = told | {"head_gain": -0.1, "oracle_gain": 0.7}
    words = [x.partition(":")[0] for x in stopping.verdicts(worse)]
    assert words == ["killed", "survives", "killed"]


def test_errors_are_over_texts():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(200), 5)
    each = np.stack([rng.normal(size=200)[owner], np.ones(1000)], -1)
    totals = sum_by_text(each, owner)
    value, error = bootstrap(lambda sums: sums[0] / sums[1], totals)
    assert value == pytest.approx(each[:, 0].mean())
    assert error == pytest.approx(200**-0.5, rel=0.2)  # and not 1000 ** -0.5


def test_a_head_learns_chances_and_rules_stop_after_what_they_saw():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    chance = 1 / (1 + np.exp(-(x @ [1.0, -2.0] + 0.5)))
    head = stopping.fit_logistic(x, chance)
    np.testing.assert_allclose(stopping.predict(head, x), chance, atol=0.02)
    score = np.array([[0.9, 0.2, 0.9], [0.1, 0.9, 0.9], [0.9, 0.9, 0.9]])
    assert stopping.stop_lengths(score, 0.5).tolist() == [2, 1, 3]


def test_rules_are_ordered_by_what_they_know():
    protocol = make(Protocol, task="tiny", temperature=1.0, **SIZES)
    kept = {}
    told = stopping.measure(pair(), PROMPTS, protocol, kept, c=0.1, slope=0.05)
    assert told["closed_gamma"] == 0 and told["closed_oracle"] == 1
    assert told["closed_renewal_chances"] < 1 and told["oracle_gain"] > 0
    assert told["verdict"] == stopping.verdicts(told) and len(kept) == 1
    seen = next(iter(kept.values())).seen
    assert (seen[..., 0] <= seen[..., 1] + 1e-6).all()  # q(x) is at most max q
    assert (seen[..., 2] > 0).all() and (seen[..., 2] <= np.log(4) + 1e-5).all()
    assert not seen[0, 0, 0] == seen[0, 1, 0] == seen[0, 2, 0]


def test_the_calls_of_a_draft_that_is_accelerated_are_counted():
    """The draft has its own draft of two tokens for each of its calls, so that drafting
    three tokens takes one call."""
    target, draft = pair()
    protocol = make(Protocol, task="tiny", temperature=1.0, **SIZES)
    itself = small_drafts.load("hierarchy:q,q,gammas=2", target)
    told = hierarchy.measure((target, itself), PROMPTS, protocol, {})
    assert told["alpha_lower"] == 1 and told["excess"] == pytest.approx(0)
    for name in ("calls_per_draft_token", "by_formula", "by_length"):
        assert told[name] == pytest.approx(1 / 3)
    assert told["alpha"] == pytest.approx(told["alpha_plain"], abs=0.15)
    words = "is not a hierarchy: name hierarchy:MODEL,DRAFT"
    with pytest.raises(ValueError, match=words):
        hierarchy.split_hierarchy(draft)


def test_a_race_is_dearer_than_algorithm_1():
    protocol = make(Protocol, task="tiny", temperature=1.0, **SIZES)
    told = invariance.measure(pair(), PROMPTS, protocol, {}, decoded=True)
    assert told["match"] < told["race"] < told["beta"]
    low = told["beta"] / (2 - told["beta"])
    assert low < told["race"] and told["price"] == pytest.approx(
        1 - told["race"] / told["beta"]
    )
    assert len(told["points"]) == 3 and "fewer_token" in told


@pytest.mark.parametrize("question", [frontier, transform, invariance])
def test_errors_are_over_prompts(question, monkeypatch):
    """Texts of one prompt are one unit."""
    units = []

    def see_totals(statistic, totals):
        units.append(len(totals))
        return bootstrap(statistic, totals)

    monkeypatch.setattr(question, "bootstrap", see_totals)
    monkeypatch.setattr(frontier, "TOP_K", (1, 3))  # of four ids
    protocol = make(Protocol, task="tiny", temperature=1.0, **SIZES)
    three = Prompts(PROMPTS.tokens[:3])
    told = question.measure(pair(), three, protocol, {})
    assert told["sequences"] > 3 and set(units) == {3}


def test_the_error_of_a_single_text_is_none_in_a_record():
    sizes = SIZES | {"tokens": 1, "batch": 1}
    protocol = make(Protocol, task="tiny", temperature=1.0, **sizes)
    one = Prompts([[1]])
    told = asked.measure("invariance", pair(), one, protocol, options={})
    assert told["price_se"] is None and told["sequences"] == 1
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("fault", ["none", "residual_is_p"])
def test_a_fault_is_seen_and_an_exact_run_is_not(fault):
    sizes = SIZES | {"tokens": 1500, "batch": 32}
    protocol = make(Protocol, task="tiny", temperature=1.0, **sizes)
    told = monitor.measure(pair(), PROMPTS, protocol, {}, fault=fault)
    assert told["verdict"][0].startswith("survives: of all orders an alarm ends")
    assert (told["delay"] is None) == (fault == "none")
    if fault != "none":
        assert 20 < told["delay"] <= told["delay_most"] < 1500


def test_an_order_has_each_text_once():
    """Every order ends in an alarm at the one text of twenty that holds a token which p
    excludes. Texts drawn with replacement would lack it in a third of the orders."""
    texts, each = 20, 5
    sequence = np.repeat(np.arange(texts), each)
    steps = audit.Steps(
        *(np.zeros((sequence.size, 2)) for _ in range(4)),
        log_ratio=np.zeros((sequence.size, 2, 2)),
        impossible=np.arange(sequence.size) == 7,  # the third of the second text
        sequence=sequence,
    )
    found = monitor.delays(steps, orders=200)
    assert np.isfinite(found).all() and set(found % each) == {3}
    assert set(found // each) == set(range(texts))


def test_what_is_unknown_is_refused_by_name():
    with pytest.raises(ValueError, match="no question 'x': choose one of stopping"):
        asked.build("x", *pair(), protocol=None)
    with pytest.raises(ValueError, match="no fault 'x': choose one of none"):
        monitor.measure(pair(), PROMPTS, None, {}, fault="x")


# Laws.

VOCAB, RANDOM = 40, np.random.default_rng(0)
P, Q = jnp.float32(2 * RANDOM.normal(size=(2, VOCAB)))


def make_law(z, count, slots):
    rows = jnp.broadcast_to(z, (count, slots, VOCAB))
    return probs.standardize(rows, Sampling(jnp.ones(count)))


def next_token_law(verifier):
    """Returns the law of the token after a prefix, from the verdicts on every draft."""
    draft = Draft(
        jnp.arange(VOCAB)[:, None], jnp.ones(VOCAB, jnp.int32), make_law(Q, VOCAB, 1)
    )
    noise = token.Noise(jnp.full((VOCAB, 1), jnp.inf), jnp.zeros((VOCAB, 2)))
    verdict = verifier.verify(make_law(P, VOCAB, 2), draft, noise, True)
    q, kept = probs.dense(make_law(Q, 1, 1))[0, 0], verdict.accept_prob[:, 0]
    left = verdict.residual / verdict.residual.sum(-1, keepdims=True)
    return q @ kept, q * kept + (q * (1 - kept)) @ left


def test_the_frontier_is_of_what_the_verifiers_emit_and_nothing_is_beyond_it():
    laws = make_law(P, 1, 1), make_law(Q, 1, 1)
    p = probs.dense(laws[0])
    alpha, tv, ratio = np.float64(frontier.outcomes(*laws, None)[0][0, 0]).T
    names = [f"{rule}:{x}" for rule, x in frontier.points()]
    few = LENIENCE[2::2]
    rules = {f"lenience:{x}": lenient.build(x) for x in few}
    rules |= {
        f"lenience, residual p - l q:{x}": lenient.build(x, "scaled") for x in few
    }
    rules |= {f"sigmoid:{x}": sigmoid.build(-x, x) for x in SIGMOID[:2]}
    for name, verifier in rules.items():
        at, (kept, law) = names.index(name), next_token_law(verifier)
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
    laws = make_law(P, 1, 1), make_law(Q, 1, 1)
    chance, sure = (x[0, 0] for x in transform.arm_chances(*laws, None))
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
    found = transform.choose_arms(sure, kept, np.arange(1000) % 2 == 0)
    value = {k: kept[np.arange(1000), arm].mean() for k, arm in found.items()}
    assert value["fixed"] == pytest.approx(0.6)
    assert value["switch"] == value["binned"] == pytest.approx(0.68, abs=0.002)


@pytest.fixture(scope="module")
def taxi():
    leads, reward = execution.build_world()
    return leads, *(
        execution.softmax(execution.plan(leads, reward, n) / 0.5) for n in (60, 8)
    )


def test_every_rule_of_the_taxi_keeps_its_planner_law(taxi):
    leads, p, q = taxi
    np.testing.assert_allclose(leads.sum(-1), 1)
    kept = {}
    for name, (k, verifier, drawn) in execution.RULES.items():
        kept[name], law = execution.outcome(p, q, k, verifier=verifier, drawn=drawn)
        np.testing.assert_allclose(law, p, atol=2e-6, err_msg=name)
    ours, drawn, likeliest = [*kept.values()][:3]
    np.testing.assert_allclose(ours, np.minimum(p, q).sum(1), atol=2e-6)
    np.testing.assert_allclose(drawn, (p * q).sum(1), atol=2e-6)
    best = np.take_along_axis(p, q.argmax(1)[:, None], 1)[:, 0]
    np.testing.assert_allclose(likeliest, best, atol=2e-6)


def test_calls_of_a_chain_are_eq_1_where_every_place_is_alike(taxi):
    """Where p equals q, every guess is kept."""
    leads, p, _ = taxi
    each = np.tile([[0.5, 0.5], [0.9, 0.1]], (1, 1))
    p_same, q_same = np.repeat(each[:1], 2, 0), np.repeat(each[1:], 2, 0)
    small = np.full((2, 2, 2), 0.5)
    many = execution.actions_per_call(p_same, q_same, small, gamma=3)
    assert many == pytest.approx(float(closed_forms.expected_tokens(0.6, 3)))
    assert execution.actions_per_call(p, p, leads, gamma=2) == pytest.approx(3)
