"""Backends that run on a CPU, and cases with known answers, for tests of kernels.

Axes: B rows, G = gamma, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels import compat, fuse
from pallas_kernels.dispatch import Device
from pallas_kernels.fuse import Fused, Options
from pallas_kernels.laws import EXACT, Deferred
from pallas_kernels.plan import Tiles
from specjax import probs
from specjax.types import BLOCK, Draft, FusedRule, Law, Sampling, Verifier
from specjax.verifiers import lenient, token

H200 = Device("gpu", "NVIDIA H200", (9, 0))
V5E = Device("tpu", "TPU v5 lite")
A100 = Device("gpu", "NVIDIA A100-SXM4-80GB", (8, 0))
CPU = Device("cpu", "cpu")


class Backend(NamedTuple):
    """A device and its backend of kernels; `interpret` runs the backend on a CPU."""

    name: str
    device: Device
    interpret: object = None


# The bodies of the GPU's launches are the same for Mosaic and for Triton, whose
# interpreter is many times faster; so is that of HLO than that of a TPU.
BACKENDS = (
    Backend("onepass", A100),
    Backend("mosaic_gpu", H200, compat.interpret_params()),
    Backend("triton", A100, True),
    Backend("mosaic_tpu", V5E, True),
)
FAST = BACKENDS[0], BACKENDS[2], BACKENDS[3]
RACES = (
    Backend("mosaic_tpu", V5E, pltpu.InterpretParams(detect_races=True)),
    Backend("mosaic_gpu", H200, compat.interpret_params(races=True)),
)


def races_found(backend: Backend) -> bool:
    """Returns whether the last run that looked for races found one; only a private name
    of JAX says it."""
    if "tpu" in backend.name:
        from jax._src.pallas.mosaic.interpret import interpret_pallas_call as last

        return last.races.races_found
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

    return gpu_callbacks.get_races().races_found


def reference(rule: FusedRule = EXACT) -> Callable:
    """Returns the `verify` of `specjax` for a rule."""
    if rule.lenience == 1:
        return token.verify
    way = "scaled" if rule.scaled else "target_minus_draft"
    return lenient.build(rule.lenience, way).verify


def build_fused(
    backend: Backend,
    rule: FusedRule = EXACT,
    *,
    tiles: Tiles | None = None,
    verify=None,
) -> Fused:
    """Returns a fused `verify`; small tiles divide a small vocabulary into many
    blocks."""
    options = Options(backend.name, rule, tiles, backend.interpret)
    return fuse.build(verify or reference(rule), backend.device, options)


class Case(NamedTuple):
    """Logits of both models, and everything that a verdict depends on."""

    target: jax.Array
    draft: jax.Array
    sampling: Sampling
    tokens: jax.Array
    num: jax.Array
    noise: token.Noise


@functools.cache
def random_case(
    seed: int,
    sizes: tuple[int, int, int],
    *,
    dtype=jnp.float32,
    top_k: tuple[int, ...] = (),
    top_p: tuple[float, ...] = (),
) -> Case:
    """Returns random rows [B, G, V]: temperatures from 0 to 2, ragged drafts sampled
    from q, and q near p, so that about half of the drafts are kept. Rows alternate
    between the truncations."""
    batch, gamma, vocab = sizes
    random = np.random.default_rng(seed)
    p = 3 * random.normal(size=(batch, gamma + 1, vocab))
    q = p[:, :gamma] + random.normal(size=(batch, gamma, vocab))
    heat = np.resize([1.0, 0.0, 0.5, 2.0, 1.0, 1.0], batch)
    k = jnp.int32(np.resize(top_k, batch)) if top_k else None
    mass = jnp.float32(np.resize(top_p, batch)) if top_p else None
    sampling = Sampling(jnp.float32(heat), top_k=k, top_p=mass)
    target, draft = jnp.asarray(p, dtype), jnp.asarray(q, dtype)
    u = jnp.float32(random.uniform(size=(batch, gamma, 2)))
    tokens = (
        draw_tokens(draft, sampling, u) if gamma else jnp.zeros((batch, 0), jnp.int32)
    )
    num = jnp.int32(np.resize([gamma, gamma, max(gamma - 1, 0), 0, gamma], batch))
    accept = jnp.float32(random.uniform(size=(batch, gamma)))
    sample = jnp.float32(random.uniform(size=(batch, 2)))
    return Case(target, draft, sampling, tokens, num, token.Noise(accept, sample))


@jax.jit
def draw_tokens(logits: jax.Array, sampling: Sampling, u: jax.Array) -> jax.Array:
    """Draws tokens [B, G] from logits [B, G, V] with uniforms [B, G, 2]."""
    law, rows = probs.standardize(logits, sampling), jnp.zeros(u.shape[0], jnp.int32)
    each = [probs.sample(probs.take(law, rows + g), u[:, g]) for g in range(u.shape[1])]
    return jnp.stack(each, axis=1)


@functools.partial(jax.jit, static_argnames=("rule", "certain"))
def reference_verdict(case: Case, rule: FusedRule = EXACT, certain: bool = False):
    """Returns the reference's verdict, compiled as in use."""
    target, law = reference_laws(case)
    draft = Draft(case.tokens, case.num, None if certain else law)
    return reference(rule)(target, draft, case.noise, keep_residual=True)


def reference_laws(case: Case) -> list[Law]:
    """Returns the target's law and the draft's, as the reference reads them."""
    return [probs.standardize(x, case.sampling) for x in (case.target, case.draft)]


def verdicts(fused: Fused, draft_law: str = "known"):
    """Builds a function (Case) -> the fused verdict, one program for all cases of a
    shape.

    draft_law: "known", as a drafter leaves it, "deferred" or "certain".
    """

    @jax.jit
    def verify(case: Case):
        law = None
        if draft_law != "certain" and case.tokens.shape[1]:
            law = fused.law(case.draft, case.sampling)
            if draft_law == "known":
                law = reference_laws(case)[1]
        draft = Draft(case.tokens, case.num, law)
        target = fused.law(case.target, case.sampling)
        return fused.verify(target, draft, case.noise, keep_residual=True)

    return verify


def check_same(verdict, wanted) -> None:
    """Checks that tokens are equal, and probabilities up to the rounding of a sum."""
    np.testing.assert_array_equal(verdict.num_accepted, wanted.num_accepted)
    np.testing.assert_array_equal(verdict.tokens, wanted.tokens)
    near = dict(rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(verdict.accept_prob, wanted.accept_prob, **near)
    np.testing.assert_allclose(verdict.residual, wanted.residual, **near)


def build_padded(fused: Fused, deferred: bool = False) -> Verifier:
    """Returns a verifier whose `verify` is fused, for vocabularies smaller than a
    kernel's least size: padded to BLOCK ids to which no law gives probability.

    deferred: nothing is known of the target.
    """

    def wide(law):
        if law is None:
            return law
        more = [(0, 0)] * (law.logits.ndim - 1) + [(0, BLOCK - law.logits.shape[-1])]
        return law._replace(logits=jnp.pad(law.logits, more, constant_values=-jnp.inf))

    def verify(target, draft, noise, keep_residual=False):
        if draft.law is not None and draft.law.row is not None:
            return fused.verify(target, draft, noise, keep_residual)  # no kernel
        vocab, law = target.logits.shape[-1], wide(target)
        if deferred:
            argmax = (law.scale == 1) & (law.tau == law.top) & (law.lse == 0)
            heat = jnp.where(argmax, 0.0, 1 / law.scale)[:, 0]
            law = Deferred(law.logits, heat, law.tau, law.tie)
        draft = draft._replace(law=wide(draft.law))
        verdict = fused.verify(law, draft, noise, keep_residual)
        return verdict._replace(residual=verdict.residual[:, :vocab])

    return Verifier(token.noise, verify)
