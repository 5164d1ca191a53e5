"""Lenience changes the output's law as Appendix A.5 says, and in no other way.

Laws are those of the compiled verifier, enumerated as `specjax.exactness.certify` does.
Axes: B rows, G = gamma, V vocabulary.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import probs
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import (
    CLAIMS,
    UNKNOWN,
    Claim,
    accept_ratio,
    tokens_in_turn,
    uniform_cells,
)
from specjax.exactness.fixtures import (
    Fixture,
    context_free,
    reference,
    references,
    trials,
)
from specjax.theory import closed_forms
from specjax.types import Draft, Sampling, Verifier
from specjax.verifiers import lenient, token

TRIALS = {trial.fixture.name: trial for trial in trials()}
RANDOM = TRIALS["random"].fixture
SAMPLED = ["random", "ragged", "table", "certain", "T 0.7, top-k 2"]
SAMPLED += ["T 1.3, top-p 0.8", "T 0.7, min-p 0.3", "disjoint", "p = q"]
build = functools.cache(lenient.build)
standardize = jax.jit(probs.standardize)


@functools.cache
def mended_with_p(level: float) -> Verifier:
    """A broken rule: it draws from p itself after a rejection, so that tokens may
    exceed p / l."""

    def verify(target, draft, noise, keep_residual=False):
        verdict = build(level).verify(target, draft, noise)
        n = verdict.num_accepted
        weights = probs.dense(probs.take(target, n))
        tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
        return verdict._replace(tokens=tokens, residual=weights)

    return Verifier(token.noise, verify)


@functools.cache
def bonus_is_lenient(level: float) -> Verifier:
    """A broken rule: the token after a whole draft comes from a sharpened p."""

    def verify(target, draft, noise, keep_residual=False):
        sharp = standardize(target.logits, Sampling(target.scale[:, 0] * 0 + 0.5))
        rows = jax.tree.map(lambda a, b: a.at[:, -1].set(b[:, -1]), target, sharp)
        return build(level).verify(rows, draft, noise, keep_residual)

    return Verifier(token.noise, verify)


def claim(level: float) -> Claim:
    """Returns a claim: each uniform is compared with min(1, p(x) / (l q(x)))."""

    def limits(at):
        return accept_ratio(at._replace(q=level * at.q))

    return Claim(uniform_cells, limits, tokens_in_turn(limits))


def texts(verifier: Verifier, fixture: Fixture, n: int) -> list[dict]:
    """Returns the laws of the first 0 .. n tokens: for each length a dict text ->
    probability."""
    case = enumeration.make_case(verifier, UNKNOWN, fixture, 2, "float32")
    return [{(): 1.0}, *(certify.text_law(case, i + 1)[0] for i in range(n))]


def first_law(verifier: Verifier, fixture: Fixture, dtype="float64") -> np.ndarray:
    """Returns the law [V] of the first token."""
    case = enumeration.make_case(verifier, UNKNOWN, fixture, 2, dtype)
    with jax.enable_x64(dtype == "float64"):
        law, _ = certify.text_law(case, 1)
    return np.array([law[(i,)] for i in range(fixture.vocab)])


def one_token(verifier, fixture):
    """Returns P [V], the law of the first token, and the p and q [V] from which it
    came."""
    p, q = (law(()) for law in references(fixture))
    return first_law(verifier, fixture, "float32"), p, q


def worst_ratio(laws, fixture) -> float:
    """Returns the largest P(x | prefix) / p(x | prefix)."""
    p, worst = references(fixture)[0], 0.0
    for before, law in itertools.pairwise(laws):
        for text, mass in law.items():
            if mass > 1e-7:
                worst = max(worst, mass / before[text[:-1]] / p(text[:-1])[text[-1]])
    return worst


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
    """The law is min(p / l, q) + (1 - beta_l) r for the residual r; its distance from p
    is beta_l - beta_1, and no other residual is nearer."""
    level, fixture = 0.4, TRIALS[name].fixture
    law, p, q = one_token(build(level, residual), fixture)
    kept = np.minimum(p / level, q)
    rest = np.maximum(p - (level if residual == "scaled" else 1) * q, 0)
    rest = rest / rest.sum() if rest.any() else p
    wanted = kept + (1 - kept.sum()) * rest
    np.testing.assert_allclose(law, wanted, atol=2e-6)
    assert np.all(law <= p / level + 1e-6)
    least = kept.sum() - closed_forms.acceptance(p, q)
    apart = closed_forms.divergence(wanted, p)
    assert apart >= least - 1e-9
    assert residual == "scaled" or apart == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("residual", lenient.RESIDUALS)
def test_every_token_of_a_text_is_at_most_p_over_l(residual):
    laws = texts(build(0.4, residual), RANDOM, 3)
    assert [sum(law.values()) for law in laws] == pytest.approx([1.0] * 4, abs=1e-6)
    assert 1.2 < worst_ratio(laws, RANDOM) <= 1 / 0.4 + 1e-5


def test_the_bound_is_attained_and_a_wrong_residual_breaks_it():
    """l = 0.5 keeps 0.2, 0.1 and 0.1, and the other 0.6 is divided in proportion to
    max(0, p - q)."""
    p, q = [0.1, 0.5, 0.4], [0.8, 0.1, 0.1]
    fixture = Fixture("", 3, context_free(p), context_free(q))
    law, *_ = one_token(build(0.5), fixture)
    by_hand = np.array([0.2, 0.1, 0.1]) + 0.6 * np.array([0, 4, 3]) / 7
    np.testing.assert_allclose(law, by_hand, atol=1e-6)
    laws = texts(build(0.5), fixture, 2)
    assert worst_ratio(laws[:2], fixture) == pytest.approx(2, abs=1e-5)
    assert worst_ratio(laws, fixture) <= 2 + 1e-5
    assert worst_ratio(texts(mended_with_p(0.5), fixture, 1), fixture) > 2.5


def test_the_token_after_a_whole_draft_is_strict():
    """With p = q all drafts are kept, so that only the token after them can be
    wrong."""
    fixture = TRIALS["p = q"].fixture
    assert certify.certify(build(0.4), fixture, 2, 3, claim(0.4)).exact
    assert not certify.certify(bonus_is_lenient(0.4), fixture, 2, 3, claim(0.4)).exact


# Argmax rows.

COLD = TRIALS["T 0"].fixture
LEVEL = 0.3


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("residual", lenient.RESIDUALS)
def test_an_argmax_row_keeps_what_is_nearly_as_likely(residual, hot):
    """The draft is the argmax of its own law, or was drawn from it and counts as
    certain."""
    q = reference(COLD.draft(()), Sampling(float(hot)))
    fixture = COLD._replace(regime="certain", drawn=lambda prefix: q) if hot else COLD
    first = first_law(build(LEVEL, residual), fixture, "float32")
    raw = np.exp(np.float64(COLD.target(())) - COLD.target(()).max())
    kept = np.where(raw >= LEVEL, q, 0)
    wanted = kept + (1 - kept.sum()) * (raw == 1)
    np.testing.assert_allclose(first, wanted, atol=1e-6)
    assert not hot or np.count_nonzero(wanted) > 1  # what the strict verifier refuses


@pytest.mark.parametrize("residual", lenient.RESIDUALS)
@pytest.mark.parametrize("name", ["random", "certain", "T 1.3, top-p 0.8", "T 0"])
def test_l_of_1_is_the_token_verifier(name, residual):
    fixture, gamma, _ = TRIALS[name]
    rule = build(1.0, residual)
    assert certify.certify(rule, fixture, gamma, 2, CLAIMS["token"]).broken == ()


def one_row(level: float, laws, sampling: Sampling, drafted: int, u: float):
    """Returns the verdict on one certain token."""
    settings = jax.tree.map(lambda value: jnp.full(1, value), sampling)
    target = standardize(jnp.log(jnp.array([laws])), settings)
    draft = Draft(jnp.array([[drafted]]), jnp.array([1]), None)
    noise = token.Noise(jnp.array([[u]]), jnp.array([[0.5, 0.5]]))
    return build(level).verify(target, draft, noise)


def test_equal_logits_are_strict_at_l_of_1_only():
    """The second of two best tokens is as probable as the argmax; a share of exactly
    the lenience is allowed."""
    laws = [[0.1, 0.45, 0.45], [0.2, 0.3, 0.5]]
    strict, loose = (one_row(at, laws, Sampling(0.0), 2, 0.5) for at in (1.0, LEVEL))
    assert (strict.tokens.tolist(), loose.tokens.tolist()) == ([[1, 0]], [[2, 2]])
    p = standardize(jnp.array([[[1.0, 0.0, -0.5]]]), Sampling(jnp.zeros(1)))
    ids = jnp.array([[1]])
    share = float(probs.at(lenient.relative_weights(p), ids)[0, 0])
    assert lenient.within_lenience(p, ids, share)
    assert not lenient.within_lenience(
        p, ids, float(np.nextafter(np.float32(share), 1))
    )


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
    """At u = 0.99 the second token passes if p_raw decides, or if p / (l q) > 1."""
    laws = [[0.1, 0.4, 0.5], [0.2, 0.3, 0.5]]
    verdict = one_row(LEVEL, laws, sampling, 1, 0.99)
    assert verdict.num_accepted.tolist() == [accepted]


@pytest.mark.parametrize("gamma", [0, 2])
def test_no_draft_is_a_draw_from_the_target(gamma):
    fixture = TRIALS["certain"].fixture._replace(num=lambda prefix: 0)
    assert certify.certify(build(0.4), fixture, gamma, 2).exact


def test_what_is_built_has_tokens_noise_and_is_in_range():
    assert build(0.5).noise is token.noise
    for level in (0.0, -0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"lenience must be in \(0, 1\]"):
            lenient.build(level)
    with pytest.raises(ValueError, match="'target_minus_draft', 'scaled'"):
        lenient.build(0.5, "target")
