"""The token verifier's exact law, and that every mutant of it is caught.

Numbers: p = (.4, .3, .2, .1) and q = (.55, .25, .15, .05) share .85; Appendix A.2 and
Section 3.1 of Leviathan et al. (2023).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import certify, certify_draws, probs, theory
from specjax.certify_fixtures import (
    Fixture,
    Trial,
    context_free,
    laws,
    references,
    table,
    trials,
)
from specjax.drafters import adaptive
from specjax.types import Draft, Policy, Sampling, Verifier
from specjax.verifiers import token
from tests import mutants

TRIALS = {trial.fixture.name: trial for trial in trials()}
P, Q = [0.4, 0.3, 0.2, 0.1], [0.55, 0.25, 0.15, 0.05]
GOLDEN = Fixture("golden", 4, context_free(P), context_free(Q))


@pytest.mark.parametrize("name", TRIALS)
def test_the_token_verifier_is_exact(name):
    found = certify.certify(token.verifier, *TRIALS[name])
    assert found.broken == () and found.exact
    assert found.error < 2e-7  # float32 does this well


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant):
    fixture, gamma, _ = TRIALS[mutant.fixture]
    found = certify.certify(mutants.build(mutant.name), fixture, gamma, 3)
    assert mutant.check in found.broken
    assert found.exact == (mutant.check == "per_call")


@pytest.mark.parametrize("fixture", ["random", "certain", "ragged"])
def test_an_unbroken_mutant_is_exact(fixture):
    fixture, gamma, _ = TRIALS[fixture]
    found = certify.certify(mutants.build(""), fixture, gamma, 3)
    assert found.exact and not found.broken


@pytest.mark.parametrize("noise", mutants.NOISES)
def test_wrong_noise_is_caught(noise):
    wrong = Verifier(noise, token.verify)
    assert certify_draws.noise_p_value(wrong, gamma=2, vocab=3) < 1e-9


def test_a_lossless_mutant_is_told_from_a_lossy_one():
    fixture = TRIALS["random"].fixture
    found = certify.certify(mutants.build("no bonus"), fixture, 2, 3)
    assert found.broken == ("per_call",)
    assert found.error < certify.TOLERANCE and found.tokens < found.closed - 0.3


def test_golden_law():
    found = certify.certify(token.verifier, GOLDEN, gamma=2, n=2)
    assert found.exact
    np.testing.assert_allclose([found.tokens, found.closed], 2.5725, atol=1e-6)


def test_golden_residual():
    laws_of = laws(GOLDEN, [(), ()])
    target, law = jax.tree.map(lambda leaf: np.asarray(leaf)[None], laws_of)
    law = jax.tree.map(lambda leaf: leaf[:, :1], law)
    draft = Draft(jnp.zeros((1, 1), int), jnp.ones(1, int), law)
    noise = token.Noise(jnp.array([[0.73]]), jnp.array([[0.0, 0.5]]))  # above .4 / .55
    verify = jax.jit(token.verify, static_argnames="keep_residual")
    verdict = verify(target, draft, noise, keep_residual=True)
    np.testing.assert_allclose(verdict.accept_prob, [[0.4 / 0.55]], rtol=1e-6)
    residual = np.asarray(verdict.residual[0])
    np.testing.assert_allclose(residual / residual.sum(), [0, *[1 / 3] * 3], atol=1e-6)
    assert verdict.num_accepted == 0 and verdict.tokens.tolist() == [[2, 0]]


@pytest.mark.parametrize("gamma", [0, 1, 2])
def test_tokens_per_call_follow_equation_1(gamma):
    """alpha = 2/3 for the pair of Appendix A.2; 10/9 drafted tokens of 2 are kept."""
    models = context_free([1 / 3, 2 / 3, 0]), context_free([2 / 3, 1 / 3, 0])
    found = certify.certify(token.verifier, Fixture("", 3, *models), gamma, n=2)
    assert found.exact
    assert found.tokens == pytest.approx(theory.expected_tokens(2 / 3, gamma), abs=1e-6)
    assert gamma < 2 or found.tokens - 1 == pytest.approx(10 / 9, abs=1e-6)


def test_an_adaptive_rule_drafts_what_its_budget_says():
    fixture, gamma, _ = TRIALS["adaptive"]
    sure = fixture._replace(target=fixture.draft)  # all accepted: the budget grows
    assert certify.certify(token.verifier, sure, gamma, 2).tokens == pytest.approx(3)
    long = sure._replace(policy=adaptive.heuristic(start=9))
    assert certify.certify(token.verifier, long, gamma, 2).tokens == pytest.approx(4)


def test_a_carry_tells_states_apart():
    """A rule with memory of its own: two tokens, then none, then two, ..."""

    def init(batch, gamma):
        return jnp.full(batch, gamma), {"turn": jnp.zeros(batch, jnp.int32)}

    def update(budget, carry, info):
        turn = 1 - carry["turn"]
        return jnp.where(turn == 1, 0, info.tokens.shape[1]), {"turn": turn}

    fixture = TRIALS["random"].fixture._replace(policy=Policy(init, update))
    assert certify.certify(token.verifier, fixture, 2, 4).broken == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 2},
        {"temperature": 1.3, "top_p": 0.8, "min_p": 0.2},
        {"temperature": 0.0},
    ],
)
@pytest.mark.parametrize("regime", ["dense", "table"])
def test_the_laws_are_those_of_float64(settings, regime):
    fixture = Fixture("", 5, table(5, 8, 0.2), table(5, 9, 0.2), Sampling(**settings))
    fixture = fixture._replace(regime=regime)
    prefixes = [(i, j) for i in range(5) for j in range(5)]
    for law, exact in zip(laws(fixture, prefixes), references(fixture), strict=True):
        expected = np.stack([exact(prefix) for prefix in prefixes])
        found = np.asarray(probs.dense(law))
        np.testing.assert_allclose(found, expected, atol=3e-7)
        assert ((found > 0) == (expected > 0)).all()


@pytest.mark.parametrize("vocab", [1, 2, 5, 256, 257, 600])
def test_the_extra_token_is_drawn_by_its_weight(vocab):
    rng = np.random.default_rng(vocab)
    weights = rng.exponential(size=vocab) ** 2 * (rng.random(vocab) < 0.7)
    weights[vocab // 2] = 0.1
    if vocab > 512:
        weights[256:512] = 0  # a whole block
    law = certify_draws.pick_law(weights)
    np.testing.assert_allclose(law, weights / weights.sum(), atol=2e-7)
    assert (law[weights == 0] == 0).all()
    assert law.sum() == pytest.approx(1, abs=1e-12)


def test_the_command_fails_where_a_claim_does(monkeypatch, capsys):
    short = [Trial(TRIALS["gamma 0"].fixture, 0, 1)]
    monkeypatch.setattr(certify, "trials", lambda: short)
    with pytest.raises(SystemExit) as ended:
        certify.main([])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.count("exact") == 5 and "LOSSY" not in shown
    table = [("token", "random", 3, 2, 4, "", "", "", "", "LOSSY law")]
    monkeypatch.setattr(certify, "lines", lambda: iter(table))
    with pytest.raises(SystemExit) as ended:
        certify.main([])
    assert ended.value.code == 1


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="n must be at least 1"):
        certify.certify(token.verifier, GOLDEN, gamma=1, n=0)
    with pytest.raises(ValueError, match="regime must be one of"):
        certify.certify(token.verifier, GOLDEN._replace(regime="sparse"), 1, 1)
