"""The law of the sigmoid rule is that of Eqs. 5 to 7 of Wagner et al. (2024), that of
the released rule is what the authors' code draws, and neither is the target's.

Laws are those of the compiled verifier, enumerated as `specjax.exactness.certify` does.
Axes: B rows, G = gamma, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exactness import engines, rules
from specjax import probs, verifiers
from specjax.exactness import certify
from specjax.exactness.fixtures import Fixture, reference, trials
from specjax.types import Draft, Law, Sampling, Verifier
from specjax.verifiers import sigmoid, sigmoid_released, token
from tests.verifiers.test_lenient import first_law

TRIALS = {trial.fixture.name: trial for trial in trials()}
RANDOM = ("random", "ragged", "table", "certain", "disjoint", "T 0.7, top-k 2")
NOISE = token.Noise(np.float32([[0.5, 0.9]]), np.float32([[0.3, 0.6]]))
build = functools.cache(
    lambda scale, dtype="float32": sigmoid.build(-scale, scale, dtype)
)


def expected_output(
    fixture: Fixture, scale: float, released: bool = False
) -> np.ndarray:
    """Returns the law of the first token, out(x) = q(x) a(x) + (1 - sum q a) res(x),
    from Eq. 5.

    Or as in the authors' code: logits beyond the scale are cut, weights have a floor,
    and where nothing was drafted they are the logits.
    """
    heat, certain = fixture.sampling.temperature or 1.0, fixture.regime == "certain"
    drafted = Sampling(0.0) if certain else fixture.sampling
    q = reference(fixture.draft(()), drafted)

    def hat(logits, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
        kept = reference(logits, sampling) > 0
        z = np.where(kept, np.float64(logits) / heat, -np.inf)
        weight = 1 / (1 + np.exp(-(z + scale) / (2 * scale)))
        cut = np.where(z > scale, 1, np.where(z < -scale, 0, weight))
        return z, cut if released else weight

    z, p_hat = hat(fixture.target(()), fixture.sampling)
    if fixture.num is not None and fixture.num(()) == 0:
        weights = np.maximum(z, 1e-5) if released else p_hat
        return weights / weights.sum()
    q_hat = q if certain else hat(fixture.draft(()), drafted)[1]
    ratio = np.divide(p_hat, q_hat, out=np.zeros_like(q), where=q_hat > 0)
    kept, rest = q * np.minimum(1, ratio), np.maximum(p_hat - q_hat, 0)
    if released:
        rest = np.maximum(rest / (1e-6 + rest.sum()), 1e-5)
    rest = rest if rest.any() else p_hat
    return kept + (1 - kept.sum()) * rest / rest.sum()


@pytest.mark.parametrize("name", RANDOM)
def test_the_first_token_follows_the_closed_form(name):
    fixture = TRIALS[name].fixture
    law = first_law(build(10.0), fixture)
    np.testing.assert_allclose(law, expected_output(fixture, 10.0), atol=1e-12)


RELEASED = {"cut": engines.CUT, "certain": TRIALS["certain"].fixture}
WARM = TRIALS["T 0.7, top-k 2"].fixture
RELEASED |= {WARM.name: WARM, "no draft": WARM._replace(num=lambda prefix: 0)}


@pytest.mark.parametrize("scale", [1.0, 10.0])  # at +-1 some logits lie beyond it
@pytest.mark.parametrize("name", RELEASED)
def test_the_released_rule_is_the_authors_code_and_not_the_paper(name, scale):
    fixture = RELEASED[name]
    law = first_law(sigmoid_released.build(-scale, scale), fixture)
    np.testing.assert_allclose(
        law, expected_output(fixture, scale, released=True), atol=1e-12
    )
    assert np.abs(law - expected_output(fixture, scale)).max() > 1e-7


def test_the_released_rule_draws_by_logits_after_a_whole_draft():
    z_p, z_q = random_logits(3)
    verdict = one_call(sigmoid_released.build(-1e4, 1e4), (z_p, z_q), [2, 5])
    assert verdict.num_accepted.tolist() == [2]
    np.testing.assert_allclose(verdict.residual[0], np.maximum(z_p[2], 1e-5), rtol=1e-6)


@pytest.mark.parametrize("rule", [sigmoid.build, sigmoid_released.build])
def test_temperature_0_is_argmax(rule):
    """One id is kept on each side, whatever the sigmoids of the other ids are."""
    fixture = TRIALS["T 0"].fixture
    assert certify.certify(rule(-1e4, 1e4), fixture, 2, 3, dtype="float64").exact


@pytest.mark.parametrize("fixture", [engines.FOUR, engines.CUT], ids=lambda f: f.name)
def test_it_is_the_transcription_and_not_exact(fixture):
    ours, other = (
        certify.certify(rule, fixture, 2, 3, dtype="float64")
        for rule in (build(1e3), rules.build(rules.sigmoid(1e3)))
    )
    assert ours.broken == ("law",)
    assert ours.tv == pytest.approx(other.tv, abs=1e-12)
    assert ours.tokens == pytest.approx(other.tokens, abs=1e-12)
    wanted = 0.2635 if fixture is engines.FOUR else 0.5487
    assert ours.tv == pytest.approx(wanted, abs=5e-4)


@functools.cache
def draw_from_target(kind: str) -> Verifier:
    """A broken rule: the token after a whole draft, or after a rejection, comes from
    p."""
    right = build(10.0)

    def verify(target, draft, noise, keep_residual=False):
        verdict = right.verify(target, draft, noise, keep_residual=True)
        p = probs.dense(probs.take(target, verdict.num_accepted))
        whole = (verdict.num_accepted == draft.num)[:, None]
        wrong = whole if kind == "bonus" else ~whole
        weights = jnp.where(wrong, p, verdict.residual)
        extra = probs.pick(weights, noise.sample)
        tokens = token.emit(draft, verdict.num_accepted, extra)
        return verdict._replace(tokens=tokens, residual=weights)

    return Verifier(token.noise, verify)


@pytest.mark.parametrize("kind", ["bonus", "rejection"])
def test_a_rule_with_another_last_token_is_told_apart(kind):
    """The first token shows a wrong residual; without a draft, it shows a wrong
    bonus."""
    fixture = engines.CUT
    if kind == "bonus":
        fixture = fixture._replace(num=lambda prefix: 0)
    wanted = expected_output(fixture, 10.0)
    assert (
        np.abs(wanted - expected_output(fixture, 20.0)).max() > 1e-4
    )  # the scale counts
    right, wrong = (
        first_law(v, fixture) for v in (build(10.0), draw_from_target(kind))
    )
    np.testing.assert_allclose(right, wanted, atol=1e-12)
    assert np.abs(wrong - wanted).max() > 1e-2


# Half precision.


@functools.partial(jax.jit, static_argnums=0)
def program(verifier: Verifier, z_p, z_q, tokens):
    heat = Sampling(jnp.ones(1))
    target, q = probs.standardize(z_p, heat), probs.standardize(z_q, heat)
    draft = Draft(tokens, jnp.array([2]), q)
    return verifier.verify(target, draft, NOISE, keep_residual=True)


def one_call(verifier: Verifier, logits, drafted):
    """Returns a verification of one row at temperature 1, with p [3, V] and q [2,
    V]."""
    z_p, z_q = (np.asarray(z, np.float32)[None] for z in logits)
    return program(verifier, z_p, z_q, np.array([drafted], np.int32))


def random_logits(seed: int, vocab: int = 7):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, vocab)), rng.normal(size=(2, vocab))


def test_half_precision_ends_below_1e5():
    """From 1e5 on, float16 keeps no draft, and draws the token uniformly from those
    that p keeps, as documented."""
    z_p, z_q = random_logits(1)
    z_p[0, 2] = -np.inf
    verdict = one_call(build(1e5, "float16"), (z_p, z_q), [0, 1])
    assert verdict.num_accepted.tolist() == [0]
    assert verdict.accept_prob.tolist() == [[0.0, 0.0]]
    np.testing.assert_array_equal(verdict.residual[0] > 0, np.arange(7) != 2)
    assert len(set(np.asarray(verdict.residual[0]).tolist()) - {0.0}) == 1
    assert verdict.tokens[0, 0] != 2 and not jnp.isnan(verdict.residual).any()
    wide = one_call(build(1e5), (z_p, z_q), [0, 1])  # not so in float32
    assert wide.num_accepted.tolist() == [2]
    np.testing.assert_allclose(wide.accept_prob, 1, atol=1e-4)


def test_half_precision_is_coarser_where_it_has_numbers():
    z_p, z_q = random_logits(2)
    z_p[0, 3], z_q[0, 3] = -3.0, 3.0
    (fine, half), (other, coarse) = (
        [one_call(build(scale, kind), (z_p, z_q), [3, 1]).accept_prob for kind in kinds]
        for scale, kinds in ((10.0, sigmoid.DTYPES), (1e4, sigmoid.DTYPES))
    )
    np.testing.assert_allclose(half, fine, atol=2e-3)
    assert coarse[0, 0] == 1 > other[0, 0]


# The law that it reads.


@pytest.mark.parametrize("cut", [{}, {"top_k": np.array([3, 2, 3])}])
def test_the_law_that_it_reads_decides_alike(cut):
    """`sigmoid.law` reads less than `probs.standardize` does, and reads argmax rows
    completely."""
    rng = np.random.default_rng(4)
    z_p = np.float32(rng.normal(size=(3, 3, 6)))
    z_q = np.float32(rng.normal(size=(3, 2, 6)))
    noise = token.Noise(*(np.float32(rng.random((3, 2))) for _ in range(2)))

    @jax.jit
    def run(z_p, z_q, noise, sampling):
        q = probs.standardize(z_q, sampling)
        draft = Draft(jnp.argmax(z_q, -1), jnp.full(3, 2), q)
        return [
            build(10.0).verify(read(z_p, sampling), draft, noise, keep_residual=True)
            for read in (probs.standardize, sigmoid.law)
        ]

    verdicts = run(z_p, z_q, noise, Sampling(np.float32([0.7, 0.0, 1.0]), **cut))
    for leaf, other in zip(*map(jax.tree.leaves, verdicts), strict=True):
        np.testing.assert_allclose(leaf, other, atol=1e-6)


def test_an_unlikely_id_is_not_a_removed_one():
    """An id whose softmax is 0 in float32 has a sigmoid nevertheless."""
    law = probs.standardize(jnp.array([[0.0, -200.0, -jnp.inf]]), Sampling(jnp.ones(1)))
    assert isinstance(law, Law) and probs.dense(law)[0, 1] == 0
    assert sigmoid.support(law).tolist() == [[True, True, False]]
    weights = sigmoid.weights(-1e3, 1e3)(law)
    np.testing.assert_allclose(weights, [[0.62246, 0.59869, 0.0]], atol=1e-4)


def test_it_is_labelled_and_wrong_constants_are_named():
    assert build(1e4).guarantee.startswith("lossy: ")
    released = verifiers.find("sigmoid_released")
    assert "authors' code" in released.guarantee and released.rule is None  # no kernel
    for message, *constants in (
        ("alpha < 0 < beta", 1.0, 10.0),
        ("alpha < 0 < beta", -1.0, -0.5),
        ("both finite", -1.0, float("inf")),
        ("both finite", float("nan"), 1.0),
        ("dtype must be one of", -1.0, 1.0, "bfloat16"),
    ):
        with pytest.raises(ValueError, match=message):
            sigmoid.build(*constants)
