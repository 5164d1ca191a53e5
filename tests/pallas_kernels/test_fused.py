"""Fused verification returns the reference's tokens for the same uniforms, at any size.

Each kernel runs here by an interpreter on the CPU. Token for token, no tolerance: the
seeds are fixed, and a draw that rounding decides would show.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import laws
from pallas_kernels.gpu import decision, launches
from pallas_kernels.plan import Tiles
from specjax import probs
from specjax.exactness import certify
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import trials
from specjax.types import Draft, FusedRule
from specjax.verifiers import sigmoid, token
from tests.support import kernel_cases, slow
from tests.support.kernel_cases import (
    FAST,
    check_same,
    random_case,
    reference_verdict,
    verdicts,
)

(ONEPASS, TRITON, TPU), MOSAIC = FAST, kernel_cases.BACKENDS[1]
SMALL = Tiles(256, 2)
TRIALS = {trial.fixture.name: trial for trial in trials()}
CUTS = dict(top_k=(3, 5, 50, 7), top_p=(0.9, 0.5, 1.0))


def backend_name(backend) -> str:
    return backend.name


def build_fused(backend, rule: FusedRule = laws.EXACT, tiles: Tiles | None = SMALL):
    return kernel_cases.build_fused(
        backend, rule, tiles=None if "tpu" in backend.name else tiles
    )


SCALED = FusedRule(0.3, scaled=True)
# Mosaic's interpreter is slow and runs the bodies of Triton.
RUNS = [(backend, (5, 3, 640), "certain", laws.EXACT) for backend in FAST]
RUNS += [(backend, (5, 3, 640), "known", laws.EXACT) for backend in (ONEPASS, TRITON)]
RUNS += [(TRITON, (3, 1, 997), "deferred", laws.EXACT)]
RUNS += [(TRITON, (5, 3, 640), "known", SCALED)]
LATER_RUNS = [(backend, (5, 0, 300), "known", laws.EXACT) for backend in FAST]
LATER_RUNS += [(MOSAIC, (3, 1, 997), "deferred", laws.EXACT)]
LATER_RUNS += [(TRITON, (5, 3, 640), "certain", FusedRule(0.5))]
LATER_RUNS += [(TPU, (5, 3, 640), "known", SCALED)]


@pytest.mark.parametrize(
    ("backend", "sizes", "law", "rule"),
    slow.mark_slow_after(len(RUNS), RUNS + LATER_RUNS),
)
def test_the_tokens_are_the_references(backend, sizes, law, rule):
    case = random_case(1, sizes)
    wanted = reference_verdict(case, rule, certain=law == "certain")
    check_same(verdicts(build_fused(backend, rule), law)(case), wanted)


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
SIZED = [(ONEPASS, *sizes) for sizes in SIZES]
SIZED += [(FAST[1 + i % 2], *sizes) for i, sizes in enumerate(SIZES)]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "sizes", "dtype"), SIZED)
def test_at_any_size(backend, sizes, dtype):
    """The sizes are odd and prime vocabularies, tiles that do not divide them, gamma to
    20, and B to 64."""
    case = random_case(2, sizes, dtype=dtype)
    tiles = Tiles(1024, 4, apart=sizes[0] > 1) if sizes[2] >= 1024 else SMALL
    check_same(
        verdicts(build_fused(backend, tiles=tiles))(case), reference_verdict(case)
    )


def test_a_vocabulary_of_one_has_no_kernel_and_is_right():
    case = random_case(3, (6, 2, 1))
    fused = kernel_cases.build_fused(kernel_cases.Backend("auto", kernel_cases.H200))
    check_same(verdicts(fused)(case), reference_verdict(case))


@pytest.mark.parametrize("backend", FAST[1:], ids=backend_name)
def test_the_sigmoid(backend):
    case, scale = random_case(6, (5, 3, 640), top_k=(50,)), 10.0
    lossy, rule = sigmoid.build(-scale, scale), FusedRule(sigmoid=(-scale, scale))
    fused = kernel_cases.build_fused(backend, rule, verify=lossy.verify)
    target, law = jax.jit(kernel_cases.reference_laws)(case)
    arguments = target, Draft(case.tokens, case.num, law), case.noise
    wanted, verdict = (jax.jit(v)(*arguments) for v in (lossy.verify, fused.verify))
    np.testing.assert_array_equal(verdict.tokens, wanted.tokens)
    np.testing.assert_allclose(verdict.accept_prob, wanted.accept_prob, rtol=1e-5)


@pytest.mark.parametrize("backend", kernel_cases.BACKENDS, ids=backend_name)
def test_a_draw_and_its_law(backend):
    case = random_case(7, (6, 1, 997), **CUTS)
    arguments = case.draft[:, 0], case.sampling, case.noise.sample
    draws = build_fused(backend).draw, probs.draw
    (ids, law), (wanted, right) = (jax.jit(draw)(*arguments) for draw in draws)
    np.testing.assert_array_equal(ids, wanted)
    for name in ("scale", "top", "tau", "tie", "lse"):
        pair = getattr(law, name), getattr(right, name)
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)


def edges():
    """Returns rows on which almost right rules fail, at T = 1 and T = 0."""
    case = random_case(8, (8, 3, 640))
    z, q = np.array(case.target), np.array(case.draft)
    z[0, :, 5:] = -np.inf  # few ids are left, and the draft's are not among them
    z[1] = 1.0  # ties everywhere
    z[2, :, ::2] = np.nan
    z[3, :, 630:] = -np.inf  # a padded vocabulary
    z[4] *= 1e4
    q[6:8] = z[6:8, :3]  # p = q
    accept, sample = (np.array(uniforms) for uniforms in case.noise)
    accept[0], accept[6:8] = 0.0, 1 - 2.0**-24
    sample[1], sample[2] = 1 - 2.0**-24, 0.0
    heat = jnp.float32([1, 1, 1, 1, 1, 0, 1, 0])
    return case._replace(
        target=jnp.asarray(z),
        draft=jnp.asarray(q),
        sampling=case.sampling._replace(temperature=heat),
        noise=token.Noise(jnp.asarray(accept), jnp.asarray(sample)),
    )


TWO = {"edges": edges, "cut": lambda: random_case(4, (5, 1, 640), **CUTS)}


@pytest.mark.parametrize("case", TWO)
@pytest.mark.parametrize("backend", slow.mark_slow_after(2, FAST), ids=backend_name)
def test_deferred_drafts_at_edges_and_truncated(backend, case):
    """Both laws are read in the same way; otherwise equal p and q would differ."""
    case = TWO[case]()
    check_same(
        verdicts(build_fused(backend), "deferred")(case), reference_verdict(case)
    )


def not_strict(p, q, u, near, rule):
    return u * q <= p


def without_q(p, q, rule):
    return p


def ratio_without_bound(p, q, near, rule):
    return p / jnp.where(q > 0, q, 1.0)


CERTIFIED = [("random", True), ("certain", True), ("ragged", False)]
CERTIFIED += [("table", False), ("one-hot target", True)]
# Temperatures of 0 are among those of the cases above, too.
LATER = ("random", False), ("T 0", True)
BROKEN = [
    ("is_accepted", not_strict, "support"),
    ("residual_weight", without_q, "tokens"),
    ("chance", ratio_without_bound, "accept_prob"),
]
EACH = [(TRITON, *case) for case in CERTIFIED]
EACH += [(ONEPASS, *CERTIFIED[0])]
EACH += [(TPU, *CERTIFIED[0]), *((TRITON, *case) for case in LATER)]


@functools.cache
def build_verifier(backend, deferred: bool):
    """Returns the same verifier for several fixtures, so that they share its
    programs."""
    return kernel_cases.build_padded(kernel_cases.build_fused(backend), deferred)


@pytest.mark.parametrize(
    ("backend", "name", "deferred"), slow.mark_slow_after(len(CERTIFIED) + 1, EACH)
)
def test_it_is_certified(backend, name, deferred):
    fixture, gamma, _ = TRIALS[name]
    verifier = build_verifier(backend, deferred)
    result = certify.certify(verifier, fixture, gamma, 2, CLAIMS["token"])
    assert result.exact and result.broken == () and result.error < 2e-7


@pytest.mark.parametrize(("name", "broken", "check"), BROKEN)
def test_a_broken_kernel_is_not_certified(name, broken, check, monkeypatch):
    monkeypatch.setattr(laws, name, broken)
    fixture = TRIALS["one-hot target" if check == "support" else "random"].fixture
    verifier = kernel_cases.build_padded(kernel_cases.build_fused(TRITON))
    result = certify.certify(verifier, fixture, 2, 2, CLAIMS["token"])
    assert check in result.broken


def test_a_part_that_is_not_read_shows(monkeypatch):
    """997 ids are four parts of 256, of which the last begins at 741."""
    case = random_case(1, (3, 1, 997))
    for module in (launches, decision):
        monkeypatch.setattr(module, "part_size", lambda plan: (256, 3))
    with pytest.raises(AssertionError):
        check_same(
            verdicts(build_fused(TRITON), "deferred")(case), reference_verdict(case)
        )


@pytest.mark.parametrize("backend", kernel_cases.RACES, ids=backend_name)
def test_no_races(backend):
    case = random_case(9, (2, 2, 640))
    check_same(verdicts(build_fused(backend))(case), reference_verdict(case))
    assert not kernel_cases.races_found(backend)
