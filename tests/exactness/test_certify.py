"""The exact law of every verifier, and that every mutant of them is caught.

Numbers: p = (.4, .3, .2, .1) and q = (.55, .25, .15, .05) share .85; Appendix A.2 and
Section 3.1 of Leviathan et al. (2023); the example of Sun et al. (2024).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import policies, probs, verifiers
from specjax.exactness import certify
from specjax.exactness import noise as certify_draws
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import (
    Fixture,
    Trial,
    context_free,
    laws,
    references,
    table,
    trials,
)
from specjax.theory import closed_forms
from specjax.types import Draft, Policy, Sampling, Verifier
from specjax.verifiers import gumbel, token
from tests import mutation
from tests.support import mutants, mutants_joint

TRIALS = {trial.fixture.name: trial for trial in trials()}
P, Q = [0.4, 0.3, 0.2, 0.1], [0.55, 0.25, 0.15, 0.05]
GOLDEN = Fixture("golden", 4, context_free(P), context_free(Q))


TOKEN = CLAIMS["token"]
BINARY = context_free([1 / 3, 2 / 3]), context_free([2 / 3, 1 / 3])


@pytest.mark.parametrize("name", TRIALS)
@pytest.mark.parametrize("rule", CLAIMS)
def test_it_is_exact(rule, name):
    verifier, claim = verifiers.named(rule), CLAIMS[rule]
    found = certify.certify(verifier, *TRIALS[name], claim)
    assert found.broken == () and found.exact
    assert found.error < 2e-7  # float32 does this well


@pytest.mark.parametrize("name", ["random", "ragged certain", "T 1.3, top-p 0.8"])
@pytest.mark.parametrize("rule", CLAIMS)
def test_it_is_exact_in_float64(rule, name):
    verifier, claim = verifiers.named(rule), CLAIMS[rule]
    found = certify.certify(verifier, *TRIALS[name], claim, "float64")
    assert found.broken == () and found.error < 1e-15


def test_every_verifier_is_certified():
    assert set(CLAIMS) == set(verifiers.names())


@pytest.mark.parametrize("mutant", mutation.MUTANTS, ids=mutation.title)
def test_a_mutant_is_caught(mutant):
    found = mutation.certified(mutant)
    assert mutant.check in found.broken
    assert found.exact == (mutant.check == "per_call")


def test_the_page_of_mutants_is_that_of_these_tests():
    """After the tests above, which worked the numbers out. Each is on the page once."""
    assert mutation.PATH.read_text("utf-8") == mutation.page()
    assert len(mutation.MUTANTS) + len(mutants.NOISES) >= 40


@pytest.mark.parametrize("fixture", ["random", "certain", "ragged"])
@pytest.mark.parametrize("rule", CLAIMS)
def test_an_unbroken_mutant_is_exact(rule, fixture):
    fixture, gamma, _ = TRIALS[fixture]
    right = mutants.build("") if rule == "token" else mutants_joint.build(rule, "")
    found = certify.certify(right, fixture, gamma, 3, CLAIMS[rule])
    assert found.exact and not found.broken


def test_float64_sees_what_float32_rounds_away():
    """q in bfloat16 and back is 1e-3 off; float32 itself, read as float64, is 1e-8."""
    fixture, gamma = mutants.fixtures()["random"]
    exact = certify.certify(token.verifier, fixture, gamma, 2, TOKEN, "float64")

    def rounded(target, draft, noise, keep_residual=False):
        law = draft.law._replace(lse=draft.law.lse.astype("float32").astype("float64"))
        return token.verify(target, draft._replace(law=law), noise, keep_residual)

    worse = Verifier(token.noise, rounded)
    found = certify.certify(worse, fixture, gamma, 2, TOKEN, "float64")
    assert exact.exact and found.broken == ("law",) and 1e-10 < found.error < 1e-7


@pytest.mark.parametrize("noise", mutants.NOISES)
def test_wrong_noise_is_caught(noise):
    assert mutation.noise_p_value(noise) < mutation.NEVER


@pytest.mark.parametrize("rule", CLAIMS)
def test_the_noise_is_independent(rule):
    verifier, uniform = verifiers.named(rule), CLAIMS[rule].uniform
    assert certify_draws.noise_p_value(verifier, 2, 3, uniform) > 1e-3


def test_uniforms_do_not_pass_for_gumbel_variables():
    wrong = Verifier(lambda *sizes: 3 * gumbel.noise(*sizes), gumbel.verify)
    uniform = CLAIMS["gumbel"].uniform
    assert certify_draws.noise_p_value(wrong, 2, 3, uniform) < 1e-9


def test_the_race_is_won_by_the_law(monkeypatch):
    assert certify_draws.race_p_value(5, draws=2**16) > 1e-3
    flat = probs.race
    monkeypatch.setattr(probs, "race", lambda law, g: flat(law, 0.9 * g))
    assert certify_draws.race_p_value(5, draws=2**16) < 1e-9


def test_a_lossless_mutant_is_told_from_a_lossy_one():
    fixture = TRIALS["random"].fixture
    found = certify.certify(mutants.build("no bonus"), fixture, 2, 3, TOKEN)
    assert found.broken == ("per_call",)
    assert found.error < 1e-7 and found.tokens < found.closed - 0.3


def test_golden_law():
    found = certify.certify(token.verifier, GOLDEN, 2, 2, TOKEN)
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
    found = certify.certify(token.verifier, Fixture("", 2, *BINARY), gamma, 2, TOKEN)
    assert found.exact
    assert found.tokens == pytest.approx(
        closed_forms.expected_tokens(2 / 3, gamma), abs=1e-6
    )
    assert gamma < 2 or found.tokens - 1 == pytest.approx(10 / 9, abs=1e-6)


@pytest.mark.parametrize(
    ("rule", "accepted"), [("block", 11 / 9), ("rejection", 3 / 4)]
)
def test_tokens_per_call_of_the_binary_example(rule, accepted):
    """Sun et al. (2024): 11/9 of two tokens by block, 10/9 by token verification; A.2
    has 1/2 + 1/4 by rejection sampling."""
    verifier, claim = verifiers.named(rule), CLAIMS[rule]
    found = certify.certify(verifier, Fixture("", 2, *BINARY), 2, 3, claim)
    assert found.exact
    assert found.tokens - 1 == pytest.approx(accepted, abs=1e-6)


def test_coupled_draws_agree_as_often_as_the_formula_says():
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.2, 0.1, 0.4, 0.3])
    noise = jax.random.gumbel(jax.random.key(0), (2**16, 4))
    with np.errstate(divide="ignore"):
        agree = np.argmax(np.log(p) + noise, 1) == np.argmax(np.log(q) + noise, 1)
    expected = float(gumbel.acceptance(jnp.array(p), jnp.array(q)))
    assert agree.mean() == pytest.approx(expected, abs=4 * 0.5 / 2**8)
    beta = float(closed_forms.acceptance(p, q))
    assert beta / (2 - beta) <= expected <= beta
    assert abs(expected - (p * q).sum()) > 0.05  # more than independent draws


def test_an_adaptive_rule_drafts_what_its_budget_says():
    fixture, gamma, _ = TRIALS["adaptive"]
    verifier = token.verifier
    sure = fixture._replace(target=fixture.draft)  # all accepted: the budget grows
    assert certify.certify(verifier, sure, gamma, 2).tokens == pytest.approx(3)
    long = sure._replace(policy=policies.heuristic(start=9))
    assert certify.certify(verifier, long, gamma, 2).tokens == pytest.approx(4)


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
        certify.main(["--rule", "token", "gumbel"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.count("exact") == 8 and "LOSSY" not in shown

    def twice(at):
        return 2 * TOKEN.tokens(at)

    monkeypatch.setitem(CLAIMS, "token", TOKEN._replace(tokens=twice))
    with pytest.raises(SystemExit) as ended:
        certify.main(["--rule", "token"])
    assert ended.value.code == 1
    assert "exact per_call" in capsys.readouterr().out


def test_a_rule_of_ones_own_is_enumerated_or_refused_in_one_line(
    monkeypatch, tmp_path, capsys
):
    (tmp_path / "my_rules.py").write_text(
        "from specjax.verifiers import match, token\n"
        "mine, other = token.verifier, match.verifier\n"
        "bad = mine._replace(verify=lambda *given, keep_residual: 3)\n"
        "worse = mine._replace(verify=lambda *given, keep_residual: given[9])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    short = [Trial(TRIALS["gamma 0"].fixture, 0, 1)]
    monkeypatch.setattr(certify, "trials", lambda: short)
    with pytest.raises(SystemExit) as ended:
        certify.main(["--rule", "my_rules:mine"])
    assert ended.value.code == 0 and "my_rules:mine" in capsys.readouterr().out
    for name, said in (
        ("other", "has a noise of its own"),
        ("bad", "must return a specjax.types.Verdict"),
        ("worse", "fails: IndexError: tuple index out of range"),
        ("absent", "my_rules has no absent"),
    ):
        with pytest.raises(SystemExit) as ended:
            certify.main(["--rule", f"my_rules:{name}"])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err.splitlines()[-1]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="n must be at least 1"):
        certify.certify(token.verifier, GOLDEN, gamma=1, n=0)
    with pytest.raises(ValueError, match="regime must be one of"):
        certify.certify(token.verifier, GOLDEN._replace(regime="sparse"), 1, 1)
    with pytest.raises(ValueError, match="dtype must be one of"):
        certify.certify(token.verifier, GOLDEN, 1, 1, dtype="bfloat16")
    with pytest.raises(ValueError, match="no rule 'tokens': choose one of block"):
        verifiers.named("tokens")
