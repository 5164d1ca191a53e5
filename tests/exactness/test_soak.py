"""The soak accepts right verifiers and names the fault of each kind of wrong one.

Which shows that what is nasty is there: NaN, equal laws, uniforms 0 and next to 1.

Axes: B rows, G = gamma, V vocabulary, K kinds.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exactness import pairs
from specjax import probs, verifiers
from specjax.exactness import drafter_draws, soak
from specjax.exactness.fixtures import reference
from specjax.types import Sampling, Verdict, Verifier
from specjax.verifiers import token
from tests.support import mutants

pytestmark = pytest.mark.slow

SEED, MIXED = 5, 1  # a chunk of bfloat16 logits and truncations
BRANCHED = next(i for i, each in enumerate(soak.VARIANTS) if each.tree)
CHAINS, *_, TREES = (i for i, each in enumerate(soak.VARIANTS) if each.own)


# Broken verifiers, beside those of `mutants`.


def lets_nan_through(target, draft, noise, keep_residual=False):
    seen = jnp.nan_to_num(target.logits, nan=0.0, neginf=-jnp.inf)
    return token.verify(target._replace(logits=seen), draft, noise, keep_residual)


def clamps_the_pick(target, draft, noise, keep_residual=False):
    """Counts the ids below u without their weights; with u next to 1 all ids count."""
    verdict = token.verify(target, draft, noise, keep_residual=True)
    total = jnp.cumsum(verdict.residual, axis=1)
    below = (total <= (noise.sample[:, :1] + 2**-24) * total[:, -1:]).sum(1)
    extra = jnp.minimum(below, total.shape[1] - 1)
    return verdict._replace(tokens=token.emit(draft, verdict.num_accepted, extra))


BROKEN = {
    "accepts at equality": (mutants.build("accepts at equality"), "support"),
    "no fallback": (mutants.build("residual without fallback"), "empty"),
    "NaN is drawn": (Verifier(token.noise, lets_nan_through), "support"),
    "clamps": (Verifier(token.noise, clamps_the_pick), "drawn"),
}


@pytest.mark.parametrize("name", verifiers.names())
def test_a_verifier_survives(name):
    tally = soak.soak(verifiers.find(name), SEED, MIXED)
    counts = zip(soak.KINDS, tally.counts.tolist(), strict=True)
    assert not [(kind, count) for kind, count in counts if count]
    assert (tally.first == -1).all()


@pytest.mark.parametrize(
    "name", [name for name in verifiers.names() if verifiers.find(name).siblings]
)
def test_a_verifier_of_trees_survives(name):
    assert not soak.soak(verifiers.find(name), SEED, BRANCHED).counts.any()


@pytest.mark.parametrize("name", ["token", "gumbel", "recursive", "kseq"])
def test_what_drafters_draw_follows_the_laws_that_they_carry(name):
    for chunk in (CHAINS, TREES):
        tally = soak.soak(verifiers.find(name), SEED, chunk)
        assert not tally.counts.any() and not tally.wrong_draws.any()
        assert tally.draws.shape[1] >= 3 and (tally.draws[1] > 100).all()


@pytest.mark.parametrize(("name", "chunk"), [("token", CHAINS), ("kseq", TREES)])
def test_draws_that_share_noise_are_told(name, chunk):
    rule = verifiers.find(name)
    again = rule._replace(guarantee="compiled anew")
    with pairs.share_slot(True):
        tally = soak.soak(again, SEED, chunk)
    assert not tally.counts.any() and tally.wrong_draws.any()
    text = dict(soak.describe(name, SEED, chunk, tally))["draws"]
    assert "nodes" in text and "agree, by" in text


def test_draws_by_another_law_are_told(monkeypatch):
    right = drafter_draws.draft

    def draft_argmax(*given):
        made = right(*given)
        best = jnp.argmax(probs.dense(made.law), axis=-1).astype(jnp.int32)
        return made._replace(tokens=best)

    monkeypatch.setattr(drafter_draws, "draft", draft_argmax)
    again = token.verifier._replace(guarantee="compiled anew")
    tally = soak.soak(again, SEED, CHAINS)
    text = dict(soak.describe("token", SEED, CHAINS, tally))["draws"]
    assert "a drafter's draws differ from its probabilities" in text


def test_rows_of_another_branch_are_told_by_their_kind():
    right = verifiers.find("recursive")

    def off_by_one(target, draft, noise, keep_residual=False):
        late = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=1), target)
        return right.verify(late, draft, noise, keep_residual)

    counts = soak.soak(right._replace(verify=off_by_one), SEED, BRANCHED).counts
    assert counts[list(soak.KINDS).index("support")] > 0


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_told_by_its_kind_and_its_row_can_be_seen_again(name):
    verifier, kind = BROKEN[name]
    tally = soak.soak(verifier, SEED, MIXED)
    index = list(soak.KINDS).index(kind)
    row = int(tally.first[index])
    assert tally.counts[index] > 0 and 0 <= row < soak.CHUNK
    seen = soak.replay(verifier, SEED, MIXED, row)
    assert kind in seen.kinds
    text = dict(soak.describe("token", SEED, MIXED, tally))[kind]
    assert f"row={row})" in text
    if name == "NaN is drawn":
        n, tokens = seen.deal.verdict.num_accepted, seen.deal.verdict.tokens
        drawn = seen.problem.logits[0].astype(float)[np.arange(n + 1), tokens[: n + 1]]
        assert np.isnan(drawn).any() and "'NaN'" in text


def deal_chunk():
    """Returns the problems of a chunk and the first draw of each, all correct."""
    problem = soak._problem(SEED, MIXED)
    run = soak._compile(token.verifier, soak.VARIANTS[MIXED])
    deal, wrong = run(problem, 0, 1)[1]
    assert not wrong.any()
    return problem, deal


def spoil_verdict(kind: str, problem, deal) -> Verdict:
    """Returns the verdict with one error, in the first row where that is possible."""
    verdict, draft = deal.verdict, deal.draft
    n, last = verdict.num_accepted, problem.inside.shape[-1] - 1
    rows = jnp.arange(n.size)
    outside = jnp.argmin(problem.inside[rows, n], axis=1)
    extra = verdict.tokens[rows, n]
    tokens, residual = verdict.tokens, verdict.residual
    changed = {
        "count": dict(num_accepted=jnp.where(n == draft.num, n + 1, n)),
        "range": dict(tokens=tokens.at[rows, n].set(last + 1)),
        "prefix": dict(tokens=tokens.at[:, 0].set(extra)),
        "zeros": dict(tokens=tokens.at[rows, n + 1].set(1)),
        "support": dict(tokens=tokens.at[rows, n].set(outside)),
        "accept_prob": dict(accept_prob=jnp.nan * verdict.accept_prob),
        "residual": dict(residual=residual.at[rows, outside].set(0.1)),
        "empty": dict(residual=0.0 * residual),
        "drawn": dict(residual=residual.at[rows, extra].set(0.0)),
    }
    return verdict._replace(**changed[kind])


check = jax.jit(soak.violations)


@pytest.mark.parametrize("kind", soak.KINDS)
def test_every_kind_is_noticed(kind):
    problem, deal = deal_chunk()
    changed = deal._replace(verdict=spoil_verdict(kind, problem, deal))
    wrong = np.asarray(check(problem, changed))
    assert wrong[list(soak.KINDS).index(kind)].any()


@pytest.mark.parametrize("chunk", [0, 1])
def test_the_support_is_that_of_the_plain_reference(chunk):
    problem = soak._problem(SEED, chunk)
    logits = np.asarray(problem.logits[0].astype(jnp.float32))
    inside, sampling = np.asarray(problem.inside), problem.sampling[0]
    for row in range(256):
        setting = Sampling(*(None if x is None else float(x[row]) for x in sampling))
        wider = setting
        if setting.top_k is not None:  # `wider` lets in what is next to a limit
            setting = wider = setting._replace(top_k=int(setting.top_k))
            top_p, min_p = setting.top_p + 2e-5, setting.min_p * (1 - 2e-5)
            wider = setting._replace(top_p=top_p, min_p=min_p)
        for z, mine in zip(logits[row], inside[row], strict=True):
            z = np.where(np.isnan(z), -np.inf, z)
            assert mine[reference(z, setting) > 1e-60].all()
            assert (reference(z, wider)[mine] > 0).all()
    greedy = np.asarray(sampling.temperature)[:256] == 0
    assert (inside[:256][greedy].sum(-1) == 1).all() and greedy.any()
    assert (inside.sum(-1) > 0).all() and not inside.all()


def test_the_command_and_what_it_refuses(capsys, monkeypatch):
    flags = ["--draws", "1", "--seed", str(SEED), "--from", str(MIXED)]
    assert soak.main([*flags, "--rule", "token"]) == 0
    out = capsys.readouterr().out
    assert "131,072 rows" in out and "--from 2" in out and "soak.replay" not in out
    broken = BROKEN["accepts at equality"][0]
    monkeypatch.setattr(soak.verifiers, "find", lambda name: broken)
    assert soak.main([*flags, "--rule", "token"]) == 1
    assert "soak.replay(verifiers.find('token'), seed=5" in capsys.readouterr().out
    with pytest.raises(ValueError, match="row must be in 0"):
        soak.replay(token.verifier, 0, 0, soak.CHUNK)
    with pytest.raises(ValueError, match="numbered from 0"):
        soak.soak(token.verifier, 0, -1)
