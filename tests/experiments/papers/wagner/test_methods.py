"""The rules that Wagner et al. (2024) compare, against their laws, and broken twins."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exactness import engines
from experiments.papers.wagner import baseline, distances, methods
from specjax import probs
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import CLAIMS, UNKNOWN
from specjax.exactness.fixtures import trials
from specjax.types import Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import sigmoid, token

pytestmark = pytest.mark.slow

TRIALS = {trial.fixture.name: trial for trial in trials()}


def twin(kind: str) -> Verifier:
    """Broken: keeps at r <= ratio, or has nothing to draw where p and q agree."""

    def verify(target, draft, noise, keep_residual=False):
        right = baseline.verify(target, draft, noise, keep_residual=True)
        n, weights = right.num_accepted, right.residual
        if kind == "<=":
            live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
            kept = (noise.accept <= right.accept_prob) & live
            n = jnp.sum(jnp.cumprod(kept, axis=1), axis=1, dtype=jnp.int32)
            p = probs.dense(probs.take(target, n))
            left = jnp.maximum(p - token.rejected_law(draft, n, p.shape[-1]), 0)
            weights = jnp.where(left.any(-1, keepdims=True), left, p)
        else:
            p, q = (baseline.softmax(probs.take(law, n)) for law in (target, draft.law))
            weights = jnp.maximum(p - q, 0)
        tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
        residual = weights if keep_residual else None
        return Verdict(n, tokens, right.accept_prob, residual=residual)

    return Verifier(token.noise, verify)


NAMES = ["random", "ragged table", "certain", "T 0", "T 0.7, top-k 2", "disjoint"]


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_has_the_targets_law(name):
    fixture, gamma, _ = TRIALS[name]
    of = fixture, gamma, 2, CLAIMS["token"], "float64"
    certificate = certify.certify(baseline.verifier, *of)
    assert certificate.exact, certificate.broken


def test_twins_of_the_baseline_are_rejected():
    fixture = TRIALS["random"].fixture
    certificate = certify.certify(twin("<="), fixture, 2, 2, dtype="float64")
    assert "support" in certificate.broken
    # p = q, and a uniform that rejects all the same, as rounding can.
    law = probs.standardize(jnp.zeros((1, 2, 3)), Sampling(jnp.ones(1)))
    draft = Draft(jnp.array([[1]]), jnp.array([1]), probs.first(law, 1))
    noise = token.Noise(jnp.ones((1, 1)), jnp.full((1, 2), 0.5))
    for rule, weighs in ((twin("empty"), False), (baseline.verifier, True)):
        verdict = rule.verify(law, draft, noise, keep_residual=True)
        assert verdict.num_accepted[0] == 0
        assert bool(verdict.residual.any()) == weighs


def laws_of(fixture) -> tuple[Law, Law]:
    heat = Sampling(jnp.ones(1))
    logits = (jnp.asarray(side(())[None]) for side in (fixture.target, fixture.draft))
    return tuple(probs.standardize(z, heat) for z in logits)


def first_law(verifier: Verifier, fixture) -> np.ndarray:
    case = enumeration.case_of(verifier, UNKNOWN, fixture, 1, "float32")
    law, _ = certify.text_law(case, 1)
    return np.array([law[(i,)] for i in range(fixture.vocab)])


EVERY = [methods.baseline(), methods.exact(), methods.always()]
EVERY += [methods.by_sigmoid(scale) for scale in (1e1, 1e4)]
EVERY += [methods.by_sigmoid(scale, "float16") for scale in (1e1, 1e5)]


@pytest.mark.parametrize("fixture", [engines.FOUR, engines.CUT], ids=lambda f: f.name)
@pytest.mark.parametrize("method", EVERY, ids=lambda m: m.name)
def test_the_closed_law_is_the_enumerated_one(method, fixture):
    closed = distances.compared(method, *laws_of(fixture))
    law = first_law(method.verifier, fixture)
    np.testing.assert_allclose(closed.out[0], law, atol=2e-6)
    none = fixture._replace(num=lambda prefix: 0)
    bonus = first_law(method.verifier, none)
    np.testing.assert_allclose(closed.bonus[0], bonus, atol=2e-6)


def test_a_wrong_residual_is_another_law():
    p_law, q_law = laws_of(engines.CUT)
    p_hat, q_hat = map(sigmoid.weights(-10.0, 10.0), (p_law, q_law))
    q = probs.dense(q_law)
    law = first_law(methods.by_sigmoid(1e1).verifier, engines.CUT)
    support = sigmoid.support(p_law)
    out, _, kept = distances.mixed(q, p_hat, q_hat, support)
    np.testing.assert_allclose(out[0], law, atol=2e-6)
    ratio = jnp.minimum(1, p_hat / jnp.maximum(q_hat, 1e-9))
    drawn = q * jnp.where(q_hat > 0, ratio, 0)
    wrong = drawn + (1 - kept)[:, None] * distances.norm(p_hat, support)
    assert np.abs(wrong[0] - law).max() > 1e-2


def test_the_largest_of_a_row():
    rng = np.random.default_rng(0)
    z = np.float32(rng.normal(size=(6, 40)).round(1))
    z[0, :38], z[1, 5] = -np.inf, np.inf
    for count in (1, 7, 40):
        wanted = z >= np.sort(z, axis=-1)[:, -count][:, None]
        np.testing.assert_array_equal(methods.largest(jnp.asarray(z), count), wanted)
