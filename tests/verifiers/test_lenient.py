"""Lenience changes the output's law as Appendix A.5 says, and not otherwise.

Laws are those of the compiled verifier, enumerated as `specjax.exactness.certify` does.
Axes: B rows, G = gamma, V vocabulary.
"""

import functools
from collections import defaultdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import probs
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import UNKNOWN, Claim, boxes, in_turn, of_ratio
from specjax.exactness.fixtures import (
    Fixture,
    context_free,
    references,
    shared_table,
    trials,
)
from specjax.measure import lenience as bench
from specjax.types import Draft, Law, Sampling, Verifier
from specjax.verifiers import lenient, token

TRIALS = {trial.fixture.name: trial for trial in trials()}
RANDOM = TRIALS["random"].fixture
SAMPLED = ["random", "ragged", "table", "certain", "T 0.7, top-k 2"]
SAMPLED += ["T 1.3, top-p 0.8", "T 0.7, min-p 0.3", "disjoint", "p = q"]
build = functools.cache(lenient.build)


standardize = jax.jit(probs.standardize)


@functools.cache
def mended_with_p(level: float) -> Verifier:
    """Broken: draws from p itself after a rejection, which lets tokens pass p / l."""
    right = build(level)

    def verify(target, draft, noise, keep_residual=False):
        del keep_residual
        verdict = right.verify(target, draft, noise)
        weights = probs.dense(probs.take(target, verdict.num_accepted))
        extra = probs.pick(weights, noise.sample)
        slots = jnp.arange(verdict.tokens.shape[1])
        here = slots == verdict.num_accepted[:, None]
        tokens = jnp.where(here, extra[:, None], verdict.tokens)
        return verdict._replace(tokens=tokens, residual=weights)

    return Verifier(token.noise, verify)


@functools.cache
def bonus_is_lenient(level: float) -> Verifier:
    """Broken: the token after a whole draft comes from p sharpened, not from p."""
    right = build(level)

    def verify(target, draft, noise, keep_residual=False):
        sharp = standardize(target.logits, Sampling(target.scale[:, 0] * 0 + 0.5))
        rows = jax.tree.map(lambda a, b: a.at[:, -1].set(b[:, -1]), target, sharp)
        return right.verify(rows, draft, noise, keep_residual)

    return Verifier(token.noise, verify)


def claim(level: float) -> Claim:
    """Each accept uniform is compared with min(1, p(x) / (l q(x)))."""

    def limits(at):
        return of_ratio(at._replace(q=level * at.q))

    return Claim(boxes, limits, in_turn(limits))


def masses(verifier: Verifier, fixture: Fixture, gamma: int, n: int):
    """The law of the first 0 .. n tokens: a dict text -> chance for each length."""
    case = enumeration.case_of(verifier, UNKNOWN, fixture, gamma, "float32")
    law = [defaultdict(float) for _ in range(n + 1)]
    law[0][()] = 1.0
    ended = [defaultdict(float) for _ in range(n + 1)]
    for length in range(n):
        for prefix, mass in law[length].items():
            for (emitted, _), chance in enumeration.run(case, prefix, ()).law.items():
                text = prefix + emitted
                for at in range(length + 1, min(len(text), n) + 1):
                    ended[at][text[:at]] += mass * chance
                if len(text) <= n:
                    law[len(text)][text] += mass * chance
    ended[0][()] = 1.0
    return ended


def one_token(verifier, fixture, gamma):
    """P [V], the law of the first token, and p, q [V] that it came from."""
    first = masses(verifier, fixture, gamma, 1)[1]
    p, q = (law(()) for law in references(fixture))
    return np.array([first[(x,)] for x in range(fixture.vocab)]), p, q


def worst_ratio(laws, fixture, n) -> float:
    """The largest P(x | prefix) / p(x | prefix) of texts of up to n tokens."""
    p, worst = references(fixture)[0], 0.0
    for length in range(1, n + 1):
        for text, mass in laws[length].items():
            before = laws[length - 1][text[:-1]]
            if mass > 1e-7:
                worst = max(worst, mass / before / p(text[:-1])[text[-1]])
    return worst


def test_a_share_of_just_the_lenience_is_tolerated():
    logits = jnp.array([[[1.0, 0.0, -0.5]]])
    p, ids = standardize(logits, Sampling(jnp.zeros(1))), jnp.array([[1]])
    share = float(probs.at(lenient.relative(p), ids)[0, 0])
    assert lenient.tolerated(p, ids, share)
    assert not lenient.tolerated(p, ids, float(np.nextafter(np.float32(share), 1)))


# The law of sampled rows.


@pytest.mark.parametrize("name", SAMPLED)
def test_only_the_law_changes_and_the_rate_is_alpha_l(name):
    level, (fixture, gamma, _) = 0.4, TRIALS[name]
    loose = certify.certify(build(level), fixture, gamma, 2, claim(level))
    assert set(loose.broken) <= {"law"}
    assert loose.tokens == pytest.approx(loose.closed, abs=1e-5)
    strict = certify.certify(token.verifier, fixture, gamma, 2)
    assert loose.tokens > strict.tokens - 1e-6
    assert name in ("disjoint", "p = q") or "law" in loose.broken
    assert name in ("disjoint", "p = q") or loose.tokens > strict.tokens + 1e-3


@pytest.mark.parametrize("residual", lenient.RESIDUALS)
@pytest.mark.parametrize("name", SAMPLED)
def test_one_token_is_at_most_p_over_l(name, residual):
    level, fixture = 0.4, TRIALS[name].fixture
    law, p, q = one_token(build(level, residual), fixture, 2)
    np.testing.assert_allclose(law, bench.output_law(p, q, level, residual), atol=2e-6)
    assert np.all(law <= p / level + 1e-6)


@pytest.mark.parametrize("residual", lenient.RESIDUALS)
def test_every_token_of_a_text_is_at_most_p_over_l(residual):
    level = 0.4
    laws = masses(build(level, residual), RANDOM, 2, 3)
    assert [sum(law.values()) for law in laws] == pytest.approx([1.0] * 4, abs=1e-6)
    assert 1.2 < worst_ratio(laws, RANDOM, 3) <= 1 / level + 1e-5


def test_the_bound_is_attained_and_a_wrong_residual_breaks_it():
    """l = 0.5 keeps 0.2, 0.1 and 0.1, and 0.6 is spread by max(0, p - q)."""
    p, q = [0.1, 0.5, 0.4], [0.8, 0.1, 0.1]
    fixture = Fixture("", 3, context_free(p), context_free(q))
    law, *_ = one_token(build(0.5), fixture, 2)
    by_hand = np.array([0.2, 0.1, 0.1]) + 0.6 * np.array([0, 4, 3]) / 7
    np.testing.assert_allclose(law, by_hand, atol=1e-6)
    law = masses(build(0.5), fixture, 2, 2)
    assert worst_ratio(law, fixture, 1) == pytest.approx(2, abs=1e-5)
    assert worst_ratio(law, fixture, 2) <= 2 + 1e-5
    broken = masses(mended_with_p(0.5), fixture, 2, 2)
    assert worst_ratio(broken, fixture, 1) > 2.5


def test_the_token_after_a_whole_draft_is_strict():
    """p = q: all drafts are kept, and what follows them is all that could be wrong."""
    fixture = TRIALS["p = q"].fixture
    assert certify.certify(build(0.4), fixture, 2, 3, claim(0.4)).exact
    assert not certify.certify(bonus_is_lenient(0.4), fixture, 2, 3, claim(0.4)).exact


# One call, against the rule written out for one row.

B, G, V, LEVEL = 128, 3, 5, 0.3
HEAT = np.where(np.arange(B) % 2, 1.0, 0.0).astype(np.float32)  # even rows are greedy


class Call(NamedTuple):
    """Arguments of `verify`, and what they are made of: logits z [B, G + 1, V], p and q
    in float64, drafted [B, G], num [B], u [B, G]."""

    target: Law
    draft: Draft
    noise: token.Noise
    z: np.ndarray
    p: np.ndarray
    q: np.ndarray
    drafted: np.ndarray
    num: np.ndarray
    u: np.ndarray


@functools.cache
def make_call(seed: int, regime: str = "dense", cold_draft: bool = False) -> Call:
    """Random laws, with zeros and ties; the draft is hot, or greedy where p is."""
    rng = np.random.default_rng(seed)
    z, z_q = (1.5 * rng.normal(size=(B, G + i, V)).round(1) for i in (1, 0))
    z = np.where(rng.random(z.shape) < 0.2, -np.inf, z)
    z[..., 0] = np.where(np.isinf(z).all(-1), 0.0, z[..., 0])
    z, heat = np.float32(z), HEAT if cold_draft else np.ones(B, np.float32)
    target = standardize(z, Sampling(jnp.asarray(HEAT)))
    law = standardize(np.float32(z_q), Sampling(jnp.asarray(heat)))
    p, q = (np.float64(probs.dense(each)) for each in (target, law))
    if regime == "table":
        rows = shared_table(np.float32(z_q).reshape(B * G, V))
        row = jnp.arange(B * G).reshape(B, G)
        law = law._replace(logits=jax.tree.map(jnp.asarray, rows), row=row)
    drafted = np.int32([[rng.choice(V, p=x / x.sum()) for x in each] for each in q])
    if regime == "certain":
        law, q = None, np.eye(V)[drafted]
    num, u = rng.integers(0, G + 1, B, np.int32), rng.random((B, G), np.float32)
    noise = token.Noise(jnp.asarray(u), jnp.asarray(rng.random((B, 2), np.float32)))
    draft = Draft(jnp.asarray(drafted), jnp.asarray(num), law)
    return Call(target, draft, noise, z, p, q, drafted, num, u)


@functools.cache
def compiled(verifier: Verifier):
    return jax.jit(functools.partial(verifier.verify, keep_residual=True))


def decide(verifier: Verifier, call: Call):
    verdict = compiled(verifier)(call.target, call.draft, call.noise)
    return jax.tree.map(np.asarray, verdict)


def chance(call: Call, row: int, slot: int, level: float) -> float:
    """The probability that the drafted token is kept."""
    x = call.drafted[row, slot]
    p, q = call.p[row, slot, x], call.q[row, slot, x]
    if HEAT[row]:
        return min(1.0, p / (level * q))
    raw = np.exp(np.float64(call.z[row, slot]) - call.z[row, slot].max())
    return float(p == 1 or (level < 1 and raw[x] >= level))


def oracle(call: Call, row: int, level: float, residual: str):
    """n, and the law of the token after the n kept ones."""
    n = 0
    while n < call.num[row] and call.u[row, n] < chance(call, row, n, level):
        n += 1
    rest = call.p[row, n]
    if n < call.num[row]:
        share = level if residual == "scaled" else 1.0
        rest = np.maximum(rest - share * call.q[row, n], 0)
    return n, rest / rest.sum()


@pytest.mark.parametrize("cold_draft", [False, True], ids=["hot draft", "cold draft"])
@pytest.mark.parametrize("residual", lenient.RESIDUALS)
@pytest.mark.parametrize("regime", ["dense", "table", "certain"])
def test_a_call_is_what_the_rule_says(regime, residual, cold_draft):
    """Greedy and sampled rows in one batch, ragged, with ties and zeros."""
    level, greedy_kept = LEVEL, 0
    call = make_call(7, regime, cold_draft)
    verdict = decide(build(level, residual), call)
    for row in range(B):
        n, rest = oracle(call, row, level, residual)
        assert verdict.num_accepted[row] == n
        tokens, weights = verdict.tokens[row], verdict.residual[row]
        np.testing.assert_array_equal(tokens[:n], call.drafted[row, :n])
        np.testing.assert_allclose(weights / weights.sum(), rest, atol=1e-5)
        assert weights[tokens[n]] > 0 and not tokens[n + 1 :].any()
        wanted = [chance(call, row, slot, level) for slot in range(G)]
        wanted = np.where(np.arange(G) < call.num[row], wanted, 0)
        np.testing.assert_allclose(verdict.accept_prob[row], wanted, rtol=1e-5)
        greedy_kept += sum(call.p[row, i, tokens[i]] == 0 for i in range(n))
        if not HEAT[row]:
            assert n == call.num[row] or tokens[n] == call.z[row, n].argmax()
            raw = np.exp(call.z[row] - call.z[row].max(-1, keepdims=True))
            assert all(raw[i, tokens[i]] >= level for i in range(n + 1))
    assert greedy_kept > 5  # tokens that the strict verifier refuses


@pytest.mark.parametrize(
    ("regime", "residual"),
    [("dense", "target_minus_draft")]
    + [(regime, "scaled") for regime in ("dense", "table", "certain")],
)
def test_l_of_1_is_the_token_verifier(regime, residual):
    call = make_call(8, regime)
    strict, ours = decide(token.verifier, call), decide(build(1.0, residual), call)
    jax.tree.map(np.testing.assert_array_equal, ours, strict)
    other = decide(build(LEVEL, residual), call)  # the same comparison sees lenience
    assert not np.array_equal(other.accept_prob, strict.accept_prob)


def test_equal_logits_are_strict_at_l_of_1_only():
    """The second of two best tokens is not the argmax, but as probable."""
    logits = jnp.log(jnp.array([[[0.1, 0.45, 0.45], [0.2, 0.3, 0.5]]]))
    target = standardize(logits, Sampling(jnp.zeros(1)))
    draft = Draft(jnp.array([[2]]), jnp.array([1]), None)
    noise = token.Noise(jnp.array([[0.5]]), jnp.array([[0.5, 0.5]]))
    tokens = {}
    for level in (1.0, LEVEL):
        verdict = compiled(build(level))(target, draft, noise)
        tokens[level] = verdict.tokens.tolist()
    assert tokens == {1.0: [[1, 0]], LEVEL: [[2, 2]]}


@pytest.mark.parametrize(
    ("sampling", "accepted"),
    [
        (Sampling(0.0), 1),
        (Sampling(1.0, top_k=1), 1),  # the same law as temperature 0
        (Sampling(0.9, top_k=1), 0),
        (Sampling(1.0, top_k=2), 1),
        (Sampling(1.0), 1),
    ],
    ids=["T 0", "T 1, top-k 1", "T 0.9, top-k 1", "T 1, top-k 2", "T 1"],
)
def test_which_rows_count_as_argmax(sampling, accepted):
    """At u = 0.99 the second token passes if p_raw decides, or p / (l q) > 1."""
    logits = jnp.log(jnp.array([[[0.1, 0.4, 0.5], [0.2, 0.3, 0.5]]]))
    settings = jax.tree.map(lambda value: jnp.full(1, value), sampling)
    target = standardize(logits, settings)
    draft = Draft(jnp.array([[1]]), jnp.array([1]), None)
    noise = token.Noise(jnp.array([[0.99]]), jnp.array([[0.5, 0.5]]))
    verdict = compiled(build(LEVEL))(target, draft, noise)
    assert verdict.num_accepted.tolist() == [accepted]


@pytest.mark.parametrize("gamma", [0, 2])
@pytest.mark.parametrize("residual", lenient.RESIDUALS)
def test_no_draft_is_a_draw_from_the_target(gamma, residual):
    fixture = TRIALS["certain"].fixture._replace(num=lambda prefix: 0)
    assert certify.certify(build(0.4, residual), fixture, gamma, 2).exact


def test_what_is_built_has_tokens_noise_and_is_in_range():
    assert build(0.5).noise is token.noise
    for level in (0.0, -0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"lenience must be in \(0, 1\]"):
            lenient.build(level)
    with pytest.raises(ValueError, match="'target_minus_draft', 'scaled'"):
        lenient.build(0.5, "target")
