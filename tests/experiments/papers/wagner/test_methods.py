"""The rules that Wagner et al. (2024) compare, against their laws."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exactness import engines
from experiments.papers.wagner import baseline, distances, methods
from specjax import probs
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import CLAIMS, UNKNOWN
from specjax.exactness.fixtures import trials
from specjax.types import Draft, Law, Sampling, Verifier
from specjax.verifiers import token

pytestmark = pytest.mark.slow

TRIALS = {trial.fixture.name: trial for trial in trials()}


NAMES = ["random", "ragged table", "certain", "T 0", "T 0.7, top-k 2", "disjoint"]


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_has_the_targets_law(name):
    fixture, gamma, _ = TRIALS[name]
    of = fixture, gamma, 2, CLAIMS["token"], "float64"
    certificate = certify.certify(baseline.verifier, *of)
    assert certificate.exact, certificate.broken


def test_where_p_and_q_agree_a_rejected_draft_leaves_p():
    """By a uniform that rejects all the same, as rounding can."""
    law = probs.standardize(jnp.zeros((1, 2, 3)), Sampling(jnp.ones(1)))
    draft = Draft(jnp.array([[1]]), jnp.array([1]), probs.first(law, 1))
    noise = token.Noise(jnp.ones((1, 1)), jnp.full((1, 2), 0.5))
    verdict = baseline.verify(law, draft, noise, keep_residual=True)
    assert verdict.num_accepted[0] == 0 and verdict.residual.any()


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


def test_the_largest_of_a_row():
    rng = np.random.default_rng(0)
    z = np.float32(rng.normal(size=(6, 40)).round(1))
    z[0, :38], z[1, 5] = -np.inf, np.inf
    for count in (1, 7, 40):
        wanted = z >= np.sort(z, axis=-1)[:, -count][:, None]
        np.testing.assert_array_equal(methods.largest(jnp.asarray(z), count), wanted)
