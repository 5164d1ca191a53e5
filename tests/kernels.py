"""What the tests of kernels share: backends that run on a CPU, and cases with answers.

Axes: B rows, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels import compat, fuse
from pallas_kernels.dispatch import Device
from pallas_kernels.fuse import Reference, Setting, Twins
from pallas_kernels.laws import EXACT, Rule
from pallas_kernels.plan import Tiles
from specjax import probs
from specjax.types import Draft, Sampling
from specjax.verifiers import lenient, token

H200 = Device("gpu", "NVIDIA H200", (9, 0))
V5E = Device("tpu", "TPU v5 lite")
A100 = Device("gpu", "NVIDIA A100-SXM4-80GB", (8, 0))
CPU = Device("cpu", "cpu")


class Backend(NamedTuple):
    """A device and what to ask for there; `interpret` runs it on a CPU."""

    name: str
    device: Device
    interpret: object = None


BACKENDS = (
    Backend("onepass", A100),
    Backend("mosaic_gpu", H200, compat.interpreted()),
    Backend("triton", A100, True),
    Backend("mosaic_tpu", V5E, pltpu.InterpretParams()),
)
KERNELS = BACKENDS[1:]


def reference(rule: Rule = EXACT) -> Reference:
    """Those of `specjax`, for a rule that it has too."""
    verify = token.verify
    if rule.lenience < 1:
        way = "scaled" if rule.scaled else "target_minus_draft"
        verify = lenient.build(rule.lenience, way).verify
    return Reference(probs.standardize, probs.sample, verify)


def twins(
    backend: Backend, rule: Rule = EXACT, tiles: Tiles | None = None, verify=None
) -> Twins:
    """tiles: small ones make many blocks of a small vocabulary."""
    given = reference(rule) if verify is None else reference()._replace(verify=verify)
    setting = Setting(backend.name, rule, tiles, backend.interpret)
    return fuse.build(given, backend.device, setting)


class Case(NamedTuple):
    """Logits of both sides, and everything that a verdict depends on."""

    target: jax.Array
    draft: jax.Array
    sampling: Sampling
    tokens: jax.Array
    num: jax.Array
    noise: token.Noise


def case(seed: int, sizes: tuple[int, int, int], dtype=jnp.float32, **cuts) -> Case:
    """Random rows [B, G, V]: temperatures from 0 to 2, ragged drafts drawn from q, and
    q near p, so that about as many drafts are kept as are not."""
    batch, gamma, vocab = sizes
    random = np.random.default_rng(seed)
    p = 3 * random.normal(size=(batch, gamma + 1, vocab))
    q = p[:, :gamma] + random.normal(size=(batch, gamma, vocab))
    heat = np.resize([1.0, 0.0, 0.5, 2.0, 1.0, 1.0], batch)
    settings = {name: jnp.asarray(np.resize(cut, batch)) for name, cut in cuts.items()}
    sampling = Sampling(jnp.float32(heat), **settings)
    target, draft = jnp.asarray(p, dtype), jnp.asarray(q, dtype)
    u = jnp.float32(random.uniform(size=(batch, gamma, 2)))
    tokens = jnp.zeros((batch, gamma), jnp.int32)
    if gamma:
        law = probs.standardize(draft, sampling)
        each = [probs.sample(probs.take(law, jnp.full(batch, g)), u[:, g])
                for g in range(gamma)]  # fmt: skip
        tokens = jnp.stack(each, axis=1)
    num = jnp.int32(np.resize([gamma, gamma, max(gamma - 1, 0), 0, gamma], batch))
    accept = jnp.float32(random.uniform(size=(batch, gamma)))
    sample = jnp.float32(random.uniform(size=(batch, 2)))
    return Case(target, draft, sampling, tokens, num, token.Noise(accept, sample))


def expected(one: Case, rule: Rule = EXACT, certain: bool = False):
    """The reference's verdict, jitted as it is in use."""

    def verify(one: Case):
        target, law = (
            probs.standardize(x, one.sampling) for x in (one.target, one.draft)
        )
        draft = Draft(one.tokens, one.num, None if certain else law)
        return reference(rule).verify(target, draft, one.noise, keep_residual=True)

    return jax.device_get(jax.jit(verify)(one))


def got(made: Twins, one: Case, draft_law: str = "known"):
    """A twin's verdict from the same. draft_law: "known", as a drafter leaves it,
    "deferred" or "certain"."""

    def verify(one: Case):
        law = None
        if draft_law != "certain" and one.tokens.shape[1]:
            law = made.law(one.draft, one.sampling)
            if draft_law == "known":
                law = probs.standardize(one.draft, one.sampling)
        draft = Draft(one.tokens, one.num, law)
        target = made.law(one.target, one.sampling)
        return made.verify(target, draft, one.noise, keep_residual=True)

    return jax.device_get(jax.jit(verify)(one))


def check_same(found, wanted) -> None:
    """The same tokens, and the same chances but for the rounding of a sum."""
    np.testing.assert_array_equal(found.num_accepted, wanted.num_accepted)
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    near = dict(rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.accept_prob, wanted.accept_prob, **near)
    np.testing.assert_allclose(found.residual, wanted.residual, **near)
