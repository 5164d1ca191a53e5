"""Fused verification returns the reference's tokens for the same uniforms, everywhere.

Each kernel runs here by an interpreter on the CPU. Token for token, no tolerance: the
seeds are fixed, and a draw that rounding decides would show.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import laws
from pallas_kernels.gpu import decision, launches
from pallas_kernels.plan import Tiles
from specjax import generate, probs
from specjax.drafters import autoregressive, rollout
from specjax.exactness import certify
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import trials
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Draft, Params, Rule, Sampling
from specjax.verifiers import sigmoid, token
from tests.support import kernel_cases, tiny
from tests.support.kernel_cases import (
    BACKENDS,
    FAST,
    KERNELS,
    case,
    check_same,
    expected,
    got,
)

SMALL = Tiles(256, 2)
TRIALS = {trial.fixture.name: trial for trial in trials()}
CUTS = dict(top_k=(3, 5, 50, 7), top_p=(0.9, 0.5, 1.0))


def named(backend) -> str:
    return backend.name


def made(backend, rule: Rule = laws.EXACT, tiles: Tiles | None = SMALL):
    return kernel_cases.fused(backend, rule, None if "tpu" in backend.name else tiles)


CASES = [
    ((5, 3, 640), "known"),
    ((3, 1, 997), "deferred"),
    ((5, 3, 640), "deferred"),
    ((5, 3, 640), "certain"),
    ((5, 0, 300), "known"),
]
# The slow interpreter of Mosaic GPU runs the same bodies as that of Triton.
EACH = [(backend, *one) for backend in FAST for one in CASES]
EACH += [(BACKENDS[1], *one) for one in CASES[:2]]


@pytest.mark.parametrize(("backend", "sizes", "law"), EACH)
def test_the_tokens_are_the_references(backend, sizes, law):
    one = case(1, sizes)
    wanted = expected(one, certain=law == "certain")
    check_same(got(made(backend), one, law), wanted)


SIZES = [
    ((1, 1, 256), jnp.bfloat16),
    ((2, 20, 257), jnp.float32),
    ((64, 5, 263), jnp.bfloat16),
    ((9, 4, 1024), jnp.float32),
    ((1, 5, 8191), jnp.bfloat16),
    ((2, 2, 32128), jnp.float32),
    ((1, 3, 50257), jnp.bfloat16),
    ((1, 2, 128256), jnp.bfloat16),
    ((1, 1, 262144), jnp.float32),
]
# One-pass XLA at each of them, and the two kernels in turn.
SIZED = [(FAST[0], *one) for one in SIZES]
SIZED += [(FAST[1 + i % 2], *one) for i, one in enumerate(SIZES)]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "sizes", "dtype"), SIZED)
def test_at_any_size(backend, sizes, dtype):
    """Odd and prime vocabularies, tiles that do not divide, gamma to 20, B to 64."""
    one = case(2, sizes, dtype)
    tiles = Tiles(1024, 4, apart=sizes[0] > 1) if sizes[2] >= 1024 else SMALL
    check_same(got(made(backend, tiles=tiles), one), expected(one))


@pytest.mark.parametrize("vocab", [1, 255])
def test_a_small_vocabulary_has_no_kernel_and_is_right(vocab):
    one = case(3, (6, 2, vocab))
    fused = kernel_cases.fused(kernel_cases.H200_AUTO)
    check_same(got(fused, one), expected(one))


@pytest.mark.parametrize("backend", FAST, ids=named)
def test_truncated_laws(backend):
    one = case(4, (5, 2, 640), **CUTS)
    check_same(got(made(backend), one, "deferred"), expected(one))


@pytest.mark.parametrize(
    ("rule", "law"), [(Rule(0.5), "certain"), (Rule(0.3, scaled=True), "known")]
)
@pytest.mark.parametrize("backend", FAST[1:], ids=named)
def test_lenience(backend, rule, law):
    one = case(5, (6, 4, 640))
    wanted = expected(one, rule, certain=law == "certain")
    check_same(got(made(backend, rule), one, law), wanted)


@pytest.mark.parametrize("cuts", [{}, {"top_k": (50,)}])
@pytest.mark.parametrize("backend", FAST[1:], ids=named)
def test_the_sigmoid(backend, cuts):
    one, scale = case(6, (6, 3, 640), **cuts), 10.0
    lossy = sigmoid.build(-scale, scale)
    fused = kernel_cases.fused(
        backend, Rule(sigmoid=(-scale, scale)), verify=lossy.verify
    )
    laws_ = [probs.standardize(x, one.sampling) for x in (one.target, one.draft)]
    draft = Draft(one.tokens, one.num, laws_[1])
    given = laws_[0], draft, one.noise
    wanted, found = (jax.jit(v)(*given) for v in (lossy.verify, fused.verify))
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_allclose(found.accept_prob, wanted.accept_prob, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS, ids=named)
def test_a_draw_and_its_law(backend):
    one = case(7, (6, 1, 997), **CUTS)
    given = one.draft[:, 0], one.sampling, one.noise.sample
    found, wanted = (jax.jit(f)(*given) for f in (made(backend).draw, probs.draw))
    np.testing.assert_array_equal(found[0], wanted[0])
    for name in ("scale", "top", "tau", "tie", "lse"):
        pair = getattr(found[1], name), getattr(wanted[1], name)
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)


def edges():
    """Rows that break a rule that is almost right, at T = 1 and T = 0."""
    one = case(8, (8, 3, 640))
    z = np.array(one.target)
    z[0, :, 5:] = -np.inf  # few ids are left, and the draft's are not among them
    z[1] = 1.0  # ties everywhere
    z[2, :, ::2] = np.nan
    z[3, :, 630:] = -np.inf  # a padded vocabulary
    z[4] *= 1e4
    same = np.concatenate([z[6:7, :3], z[7:8, :3]])
    q = np.array(one.draft)
    q[6:8] = same  # p = q
    accept = np.array(one.noise.accept)
    accept[0], accept[6:8] = 0.0, 1 - 2.0**-24
    noise = one.noise._replace(accept=jnp.asarray(accept))
    noise = noise._replace(sample=noise.sample.at[1].set(1 - 2.0**-24).at[2].set(0.0))
    heat = jnp.float32([1, 1, 1, 1, 1, 0, 1, 0])
    sampling = Sampling(heat)
    return one._replace(
        target=jnp.asarray(z), draft=jnp.asarray(q), sampling=sampling, noise=noise
    )


@pytest.mark.parametrize("backend", FAST, ids=named)
def test_edges(backend):
    one = edges()  # both sides are read alike, or p = q would not be p = q
    check_same(got(made(backend), one, "deferred"), expected(one))


def not_strict(p, q, u, near, rule):
    return u * q <= p


def without_q(p, q, rule):
    return p


def beyond_one(p, q, near, rule):
    return p / jnp.where(q > 0, q, 1.0)


CERTIFIED = [("random", True), ("random", False), ("certain", True), ("ragged", False)]
CERTIFIED += [("table", False), ("T 0", True), ("one-hot target", True)]
BROKEN = [
    ("accepted", not_strict, "support"),
    ("left", without_q, "tokens"),
    ("chance", beyond_one, "accept_prob"),
]


def on_each(cases: list, few: int) -> list:
    """Every case on the fast interpreters, `few` of them on that of a TPU."""
    both = [(backend, *one) for backend in FAST[:2] for one in cases]
    return both + [(FAST[2], *one) for one in cases[:few]]


@pytest.mark.parametrize(("backend", "name", "deferred"), on_each(CERTIFIED, 1))
def test_it_is_certified(backend, name, deferred):
    fixture, gamma, _ = TRIALS[name]
    verifier = kernel_cases.certified(kernel_cases.fused(backend), deferred)
    found = certify.certify(verifier, fixture, gamma, 2, CLAIMS["token"])
    assert found.exact and found.broken == () and found.error < 2e-7


@pytest.mark.parametrize(
    ("backend", "name", "broken", "check"), on_each(BROKEN, 1)[len(BROKEN) :]
)
def test_a_broken_kernel_is_not_certified(backend, name, broken, check, monkeypatch):
    monkeypatch.setattr(laws, name, broken)
    fixture = TRIALS["one-hot target" if check == "support" else "random"].fixture
    verifier = kernel_cases.certified(kernel_cases.fused(backend))
    found = certify.certify(verifier, fixture, 2, 2, CLAIMS["token"])
    assert check in found.broken


def test_a_part_that_is_not_read_shows(monkeypatch):
    """997 ids in parts of 256 are four of them, and the last begins at 741."""
    one = case(1, (3, 1, 997))
    check_same(got(made(FAST[1]), one, "deferred"), expected(one))
    for module in (launches, decision):
        monkeypatch.setattr(module, "part_of", lambda plan: (256, 3))
    with pytest.raises(AssertionError):
        check_same(got(made(FAST[1]), one, "deferred"), expected(one))


@pytest.mark.slow
def test_whole_texts_are_the_same():
    """Fused draws and verification in the loop, on models of 300 ids."""
    world = tiny.tables(300)
    params = Params(world.target_weights, world.draft_weights)
    prompt = make_prompt([[1, 2, 3], [4]])
    sampling = make_sampling(2, 0.9)
    request = make_request(jax.random.key(3), prompt, 9, sampling)
    plain = Decoder(world.target, autoregressive.build(world.draft, 2))
    wanted = generate.build(plain, 24)(params, prompt, request)
    for backend in FAST:
        wired = kernel_cases.wired(backend, token.verifier)
        drawn = rollout.drawn_by(wired.draw)
        drafter = autoregressive.build(world.draft, 2, drawn)
        fused = Decoder(world.target, drafter, wired.verifier)
        found = generate.build(fused, 24)(params, prompt, request)
        np.testing.assert_array_equal(found.tokens, wanted.tokens)
        assert int(wanted.counts.accepted.sum()) > 0


@pytest.mark.parametrize("backend", kernel_cases.RACES, ids=named)
def test_no_races(backend):
    one = case(9, (2, 2, 640))
    check_same(got(made(backend), one), expected(one))
    assert not kernel_cases.races_found(backend)


def test_the_backends_are_those_that_are_offered():
    from pallas_kernels import dispatch

    offered = {*dispatch.NAMES} - {dispatch.REFERENCE}
    assert {backend.name for backend in BACKENDS} == offered
    assert {backend.name for backend in KERNELS} == offered - {dispatch.ONEPASS}
