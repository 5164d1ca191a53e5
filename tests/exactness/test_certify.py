"""Every verifier has the exact law, and each of its mutants is caught.

Numbers: p = (.4, .3, .2, .1) and q = (.55, .25, .15, .05) share .85; Appendix A.2 and
Section 3.1 of Leviathan et al. (2023); the example of Sun et al. (2024).
"""

import functools
import itertools

import pytest

from specjax import policies, probs, verifiers
from specjax.exactness import certify, draws
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import (
    Fixture,
    Trial,
    context_free,
    fits,
    references,
    tree_trials,
)
from specjax.types import Verifier
from specjax.verifiers import gumbel, token, traversal
from tests import mutation
from tests.support import mutants

TRIALS = {
    name: trial
    for name, trial in mutants.trials().items()
    if not trial.fixture.drawn and trial.fixture.parent is None
}
RANDOM = TRIALS["random"].fixture
P, Q = [0.4, 0.3, 0.2, 0.1], [0.55, 0.25, 0.15, 0.05]
GOLDEN = Fixture("golden", 4, context_free(P), context_free(Q))
# Of two ids; a third that neither law has makes it the shape of other trials.
LAWS = context_free([1 / 3, 2 / 3, 0]), context_free([2 / 3, 1 / 3, 0])
BINARY = Fixture("binary", 3, *LAWS)
TOKEN = CLAIMS["token"]

# Of a rule for trees chains are verified by another, which is put to all of them.
TREES = [rule for rule, claim in CLAIMS.items() if claim.chains]
CHAINS = [rule for rule in CLAIMS if rule not in TREES]
each_rule = pytest.mark.parametrize("rule", CHAINS)
BRANCHING = {trial.fixture.name: trial for trial in tree_trials()}


def certify_rule(rule: str, *trial, **dtype: str) -> certify.Certificate:
    return certify.certify(verifiers.find(rule), *trial, **dtype)


@functools.cache
def certify_trial(rule: str, name: str) -> certify.Certificate:
    """Certifies three tokens, so that a second step follows every prefix of the first;
    with a policy, whose state is kept longer, more."""
    fixture, gamma, n = TRIALS[name]
    n = n if fixture.policy else min(n, 3)
    return certify_rule(rule, fixture, gamma, n, CLAIMS[rule])


@pytest.mark.parametrize("name", TRIALS)
@each_rule
def test_it_is_exact(rule, name):
    certificate = certify_trial(rule, name)
    assert certificate.broken == () and certificate.exact
    assert certificate.error < 2e-7  # float32 does this well


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (rule, name)
        for rule in ("match", *TREES)
        for name, trial in BRANCHING.items()
        if fits(verifiers.find(rule), trial.fixture)
    ],
)
def test_it_is_exact_on_trees(rule, name):
    certificate = certify_rule(rule, *BRANCHING[name], CLAIMS[rule])
    assert certificate.broken == () and certificate.error < 2e-7


@pytest.mark.parametrize(
    ("rule", "like"), [("recursive", "token"), ("traversal", "block")]
)
def test_a_tree_that_is_a_chain_is_verified_as_one(rule, like):
    """The code for trees gives the verdicts of the rule for chains."""
    fixture, gamma, _ = TRIALS["ragged"]
    chain = fixture._replace(parent=(-1, 0))
    tree = certify_rule(rule, chain, gamma, 3, CLAIMS[rule])
    assert tree.exact and tree.tokens == pytest.approx(
        certify_trial(like, "ragged").tokens
    )
    assert certify_rule(rule, fixture, gamma, 3, CLAIMS[rule]).exact  # without parents


def keep_likelier_drawn(q) -> dict:
    """Returns a law that is not exact: of a second child of the root and a child of the
    first child, the more likely one is kept after both were drawn."""
    found, root = {}, q(())
    for x, y in itertools.permutations(range(root.size), 2):
        below = q((x,))
        for z in range(root.size):
            chance = root[x] * root[y] / (1 - root[x]) * below[z] if root[x] < 1 else 0
            deep = below[z] * root[x] > root[y]
            tree = ((-1, 0), (x, z)) if deep else ((-1, -1), (x, y))
            found[tree] = found.get(tree, 0.0) + chance
    return found


def test_a_number_that_a_rule_solves_for_is_exact_in_float64():
    case = BRANCHING["tree, replaced"]._replace(n=2)
    certificate = certify_rule("kseq", *case, CLAIMS["kseq"], dtype="float64")
    assert certificate.broken == () and certificate.error < 1e-14


@pytest.mark.parametrize("rule", ["recursive", "traversal"])
def test_nodes_chosen_among_drawn_ones_are_caught(rule):
    """Its exact counterpart, "tree, growing", chooses a place before it draws the token
    there."""
    fixture = BRANCHING["tree, growing"].fixture._replace(parent=keep_likelier_drawn)
    wrong = certify_rule(rule, fixture, 2, 2, CLAIMS[rule])
    assert "law" in wrong.broken and wrong.error > 1e-3


def test_traversal_is_exact_with_replacement_too():
    fixture, gamma, n = BRANCHING["tree, replaced"]
    claim = CLAIMS["traversal"]
    whole = certify.certify(
        traversal.build(with_replacement=True), fixture, gamma, n, claim
    )
    assert whole.broken == ()
    wrong = certify.certify(traversal.verifier, fixture, gamma, n, claim)
    assert "law" in wrong.broken  # siblings that were drawn otherwise


@pytest.mark.parametrize("name", TRIALS)
def test_rules_are_ordered_by_what_they_keep(name):
    """No rule for one draft keeps more than block verification (Sun et al. 2024), and
    Algorithm 1 never keeps less than rejection sampling (Appendix A.2) or a match."""
    tokens = {rule: certify_trial(rule, name).tokens for rule in CHAINS}
    assert tokens["block"] >= tokens["token"] - 1e-5
    assert tokens["token"] >= max(tokens["rejection"], tokens["match"]) - 1e-5


@pytest.mark.parametrize("name", ["ragged certain", "T 1.3, top-p 0.8"])
@each_rule
def test_it_is_exact_in_float64(rule, name):
    certificate = certify_rule(rule, *TRIALS[name], CLAIMS[rule], dtype="float64")
    assert certificate.broken == () and certificate.error < 1e-15


def test_a_sampled_draft_may_hide_its_law():
    """No law is given to the rule, and any token that was drawn before the uniforms is
    valid."""
    hidden = RANDOM._replace(regime="certain", drawn=references(RANDOM)[1])
    assert certify.certify(token.verifier, hidden, 2, 4).exact


def title(mutant: mutants.Mutant) -> str:
    return f"{mutant.rule}: {mutant.name}"


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=title)
def test_a_mutant_is_caught_and_unbroken_is_exact(mutant):
    """Both are tested on the same fixture, so that the certificate catches exactly what
    is broken."""
    certificate = mutants.certify_mutant(mutant.name, mutant.rule, mutant.fixture)
    assert mutant.check in certificate.broken
    assert certificate.exact == (mutant.check == "per_call")  # lossless, but slow
    if not mutants.trials()[mutant.fixture].fixture.drawn:
        assert mutants.certify_mutant("", mutant.rule, mutant.fixture).broken == ()


def test_the_page_of_mutants_is_that_of_these_tests():
    """This runs after the tests above, which compute its numbers."""
    assert set(CLAIMS) == set(verifiers.names())
    assert mutation.PATH.read_text("utf-8") == mutation.page()


def test_float64_sees_what_float32_rounds_away():
    """Rounding q to bfloat16 gives an error of 1e-3; float32 itself, read as float64,
    one of 1e-8."""
    exact = certify.certify(token.verifier, RANDOM, 2, 2, TOKEN, dtype="float64")

    def verify_rounded(target, draft, noise, keep_residual=False):
        law = draft.law._replace(lse=draft.law.lse.astype("float32").astype("float64"))
        return token.verify(target, draft._replace(law=law), noise, keep_residual)

    worse = Verifier(token.noise, verify_rounded)
    certificate = certify.certify(worse, RANDOM, 2, 2, TOKEN, dtype="float64")
    assert exact.exact and certificate.broken == ("law",)
    assert 1e-10 < certificate.error < 1e-7


@pytest.mark.parametrize("noise", mutants.NOISES)
def test_wrong_noise_is_caught(noise):
    wrong = Verifier(noise, token.verify)
    assert certify.noise_p_value(wrong, 2, 3) < mutation.NEVER


@each_rule
def test_the_noise_is_independent(rule):
    verifier, uniform = verifiers.find(rule), CLAIMS[rule].uniform
    assert certify.noise_p_value(verifier, 2, 3, uniform) > 1e-3
    if rule == "gumbel":  # uniforms do not pass for Gumbel variables
        wrong = Verifier(lambda *sizes: 3 * gumbel.noise(*sizes), gumbel.verify)
        assert certify.noise_p_value(wrong, 2, 3, uniform) < 1e-9


def test_a_race_by_another_law_is_noticed(monkeypatch):
    """A line of the command says that the right race follows the law."""
    right = probs.race
    monkeypatch.setattr(probs, "race", lambda law, g: right(law, 0.9 * g))
    assert certify.race_p_value(5, draws=2**16) < 1e-9


@pytest.mark.parametrize(
    ("rule", "fixture", "gamma", "accepted"),
    [
        ("token", GOLDEN, 2, 0.85 + 0.85**2),
        ("token", BINARY, 0, 0),
        ("token", BINARY, 1, 2 / 3),
        ("token", BINARY, 2, 10 / 9),
        ("block", BINARY, 2, 11 / 9),
        ("rejection", BINARY, 2, 3 / 4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_tokens_per_call_by_hand(rule, fixture, gamma, accepted):
    """Equation 1; Sun et al. (2024) have 11/9 of two tokens by block and 10/9 by token
    verification; A.2 has 1/2 + 1/4 by rejection sampling."""
    certificate = certify_rule(rule, fixture, gamma, 2, CLAIMS[rule])
    assert certificate.exact
    assert certificate.tokens == pytest.approx(1 + accepted, abs=1e-6)


def test_an_adaptive_rule_drafts_what_its_budget_says():
    fixture, gamma, _ = TRIALS["adaptive"]
    sure = fixture._replace(target=fixture.draft)  # all accepted: the budget grows
    long = sure._replace(policy=policies.heuristic(start=9))
    for it, tokens in (sure, 3), (long, 4):
        assert certify_rule("token", it, gamma, 2).tokens == pytest.approx(tokens)


def exit_code(*rules: str) -> int:
    with pytest.raises(SystemExit) as ended:
        certify.main(["--rule", *rules])
    return ended.value.code


@pytest.fixture
def short_table(monkeypatch, tmp_path):
    """The command, on one fixture, with rules of one's own to be found."""
    every = draws.decoders
    monkeypatch.setattr(
        certify, "trials", lambda policy: [Trial(TRIALS["gamma 0"].fixture, 0, 1)]
    )
    monkeypatch.setattr(draws, "decoders", lambda rule: [next(every(rule))])
    (tmp_path / "my_rules.py").write_text(
        "from specjax.verifiers import match, token\n"
        "mine, other = token.verifier, match.verifier\n"
        "bad = mine._replace(verify=lambda *args, keep_residual: 3)\n"
        "worse = mine._replace(verify=lambda *args, keep_residual: args[9])\n"
        "def other_token(*args, keep_residual):\n"
        "    it = token.verify(*args, keep_residual=keep_residual)\n"
        "    return it._replace(tokens=(it.tokens + 1) % args[0].logits.shape[-1])\n"
        "strange = mine._replace(verify=other_token)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("short_table")
def test_the_command_fails_where_a_claim_does(monkeypatch, capsys):
    monkeypatch.setattr(draws, "check_shapes", lambda nodes: (1, 0))  # `test_draws.py`
    assert exit_code("token", "gumbel", "my_rules:mine") == 0
    printed = capsys.readouterr().out
    assert "\n14 checks, all exact\n" in printed and "LOSSY" not in printed
    assert printed.count("my_rules:mine") == 3  # its law, its noise and its draws

    def double_tokens(at):
        return 2 * TOKEN.tokens(at)

    monkeypatch.setattr(certify, "race_p_value", lambda vocab: 1.0)  # seconds
    monkeypatch.setattr(draws, "check_rule", lambda verifier: (1, []))
    monkeypatch.setitem(CLAIMS, "token", TOKEN._replace(tokens=double_tokens))
    assert exit_code("token") == 1
    assert "exact per_call" in capsys.readouterr().out
    monkeypatch.setattr(draws, "check_rule", lambda verifier: (1, ["a key twice"]))
    assert exit_code("my_rules:strange") == 1
    printed = capsys.readouterr().out
    assert "void" in printed and "LOSSY" in printed  # no number of a law beside it
    assert "LOSSY draws\n" in printed
    assert f"  tokens: {certify.CHECKS['tokens']}\n" in printed


@pytest.mark.usefixtures("short_table")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "draws noise of another shape"),
        ("bad", "must return a specjax.types.Verdict"),
        ("worse", "fails: IndexError: tuple index out of range"),
        ("absent", "my_rules has no absent"),
    ],
)
def test_a_rule_of_ones_own_is_refused_in_one_line(name, message, capsys):
    assert exit_code(f"my_rules:{name}") == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_bad_arguments_are_named():
    def assert_refused(message, rule=token.verifier, of=GOLDEN, gamma=1, n=1, **rest):
        with pytest.raises(ValueError, match=message):
            certify.certify(rule, of, gamma, n, **rest)

    assert_refused("n must be at least 1", n=0)
    assert_refused("regime must be one of", of=GOLDEN._replace(regime="sparse"))
    assert_refused("dtype must be one of", dtype="bfloat16")
    silent = Verifier(token.noise, lambda *of, keep_residual: token.verify(*of))
    assert_refused(r"the verifier: verify must .* its residual", silent, claim=TOKEN)
