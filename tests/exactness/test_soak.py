"""The soak in short: right verifiers pass, each kind of wrong one is told by its kind.

Axes: B rows, G = gamma, V vocabulary, K kinds.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import verifiers
from specjax.exactness import soak
from specjax.exactness.fixtures import reference
from specjax.types import Sampling, Verdict, Verifier
from specjax.verifiers import token
from tests.support import mutants

pytestmark = pytest.mark.slow

SEED, MIXED = 5, 1  # a chunk of bfloat16 logits and truncations


# Broken verifiers, beside those of `mutants`.


def lets_nan_through(target, draft, noise, keep_residual=False):
    seen = jnp.nan_to_num(target.logits, nan=0.0, neginf=-jnp.inf)
    return token.verify(target._replace(logits=seen), draft, noise, keep_residual)


def clamps_the_pick(target, draft, noise, keep_residual=False):
    """Counts what lies below u without looking at weights; next to 1 that is all."""
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
    tally = soak.soak(verifiers.named(name), SEED, MIXED)
    counts = zip(soak.KINDS, tally.counts.tolist(), strict=True)
    assert not [(kind, count) for kind, count in counts if count]
    assert (tally.first == -1).all()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_told_by_its_kind(name):
    verifier, kind = BROKEN[name]
    tally = soak.soak(verifier, SEED, MIXED)
    index = list(soak.KINDS).index(kind)
    assert tally.counts[index] > 0 and 0 <= tally.first[index] < soak.CHUNK


def test_the_row_that_is_reported_can_be_seen_again():
    verifier, kind = BROKEN["NaN is drawn"]
    tally = soak.soak(verifier, SEED, MIXED)
    row = int(tally.first[list(soak.KINDS).index(kind)])
    seen = soak.replay(verifier, SEED, MIXED, row)
    n, tokens = seen.deal.verdict.num_accepted, seen.deal.verdict.tokens
    drawn = seen.problem.logits[0].astype(float)[np.arange(n + 1), tokens[: n + 1]]
    assert kind in seen.kinds and "NaN" in seen.features[0]
    assert np.isnan(drawn).any()
    text = dict(soak.describe("token", SEED, MIXED, tally))[kind]
    assert f"row={row})" in text and "'NaN'" in text


def dealt():
    """A chunk's problems and the first draw of each, none of them wrong."""
    problem = soak._problem(SEED, MIXED)
    run = soak._compiled(token.verifier, soak.VARIANTS[MIXED])
    deal, wrong = run(problem, 0, 1)[1]
    assert not wrong.any()
    return problem, deal


def spoiled(kind: str, problem, deal) -> Verdict:
    """The verdict with one thing wrong, in the first row where it can be."""
    verdict, draft = deal.verdict, deal.draft
    n, last = verdict.num_accepted, problem.inside.shape[-1] - 1
    rows = jnp.arange(n.size)
    outside = jnp.argmin(problem.inside[rows, n], axis=1)
    extra = verdict.tokens[rows, n]
    return {
        "count": verdict._replace(num_accepted=jnp.where(n == draft.num, n + 1, n)),
        "range": verdict._replace(tokens=verdict.tokens.at[rows, n].set(last + 1)),
        "prefix": verdict._replace(tokens=verdict.tokens.at[:, 0].set(extra)),
        "zeros": verdict._replace(tokens=verdict.tokens.at[rows, n + 1].set(1)),
        "support": verdict._replace(tokens=verdict.tokens.at[rows, n].set(outside)),
        "accept_prob": verdict._replace(accept_prob=jnp.nan * verdict.accept_prob),
        "residual": verdict._replace(
            residual=verdict.residual.at[rows, outside].set(0.1)
        ),
        "empty": verdict._replace(residual=0.0 * verdict.residual),
        "drawn": verdict._replace(residual=verdict.residual.at[rows, extra].set(0.0)),
    }[kind]


check = jax.jit(soak.violations)


@pytest.mark.parametrize("kind", soak.KINDS)
def test_every_kind_is_noticed(kind):
    problem, deal = dealt()
    changed = deal._replace(verdict=spoiled(kind, problem, deal))
    wrong = np.asarray(check(problem, changed))
    assert wrong[list(soak.KINDS).index(kind)].any()


@pytest.mark.parametrize("chunk", [0, 1])
def test_the_support_is_that_of_the_plain_reference(chunk):
    problem = soak._problem(SEED, chunk)
    logits = np.asarray(problem.logits[0].astype(jnp.float32))
    inside, sampling = np.asarray(problem.inside), problem.sampling[0]
    rows = range(256)
    for row in rows:
        setting = jax.tree.map(lambda leaf, row=row: float(leaf[row]), sampling)
        setting, wider = limits(setting, 0.0), limits(setting, 2e-5)
        for z, mine in zip(logits[row], inside[row], strict=True):
            z = np.where(np.isnan(z), -np.inf, z)
            assert mine[reference(z, setting) > 1e-60].all()
            assert (reference(z, wider)[mine] > 0).all()
    greedy = np.asarray(sampling.temperature)[rows] == 0
    assert (inside[rows][greedy].sum(-1) == 1).all() and greedy.any()
    assert (inside.sum(-1) > 0).all() and not inside.all()


def limits(setting: Sampling, slack: float) -> Sampling:
    """As plain numbers; `slack` lets in what is next to a limit."""
    if setting.top_k is None:
        return setting
    top_p, min_p = setting.top_p + slack, setting.min_p * (1 - slack)
    return Sampling(setting.temperature, int(setting.top_k), top_p, min_p)


def test_what_is_nasty_is_there():
    problem, deal = dealt()
    assert np.asarray(problem.features).any((0, 1)).all()
    target = np.asarray(problem.logits[0].astype(jnp.float32))
    assert np.isnan(target).any() and (target == -np.inf).any()
    assert (np.abs(target[np.isfinite(target)]) > 1e38).any()
    u = np.asarray(deal.noise.accept)
    assert (u == 0).any() and (u == soak.NEXT_TO_ONE).any() and (u < 1).all()
    assert set(np.asarray(deal.draft.num).tolist()) == {0, 1, 2, 3}
    draft = np.asarray(problem.logits[1].astype(jnp.float32))
    equal, shifted = np.asarray(problem.features)[:, 1, -2:].T
    equal = equal & ~shifted
    assert equal.any() and np.array_equal(target[equal], draft[equal], equal_nan=True)


def test_the_command(capsys, monkeypatch):
    flags = ["--draws", "1", "--seed", str(SEED), "--from", str(MIXED)]
    assert soak.main([*flags, "--rule", "token"]) == 0
    out = capsys.readouterr().out
    assert "131,072 rows" in out and "--from 2" in out and "soak.replay" not in out
    broken = BROKEN["accepts at equality"][0]
    monkeypatch.setattr(soak.verifiers, "named", lambda name: broken)
    assert soak.main([*flags, "--rule", "token"]) == 1
    assert "soak.replay(verifiers.named('token'), seed=5" in capsys.readouterr().out


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match="row must be in 0"):
        soak.replay(token.verifier, 0, 0, soak.CHUNK)
    with pytest.raises(ValueError, match="numbered from 0"):
        soak.soak(token.verifier, 0, -1)
