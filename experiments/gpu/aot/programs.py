"""The programs that verification consists of, by name, as shapes to compile.

What is known of the laws when it begins: "nothing", raw logits of both sides; "draft",
what a draft loop leaves; "both", every statistic of both.
Axes: B rows, G = gamma, V vocabulary, E features.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels import fuse
from pallas_kernels.dispatch import Device
from pallas_kernels.fuse import Fused, Options, Reference
from specjax import probs
from specjax.types import Draft, Law, Sampling
from specjax.verifiers import token

REFERENCE = Reference(probs.standardize, probs.sample, token.verify)
KNOWN = ("nothing", "draft", "both")
DEVICES = {
    "h200": Device("gpu", "NVIDIA H200", (9, 0)),
    "a100": Device("gpu", "NVIDIA A100-SXM4-80GB", (8, 0)),
    "t4": Device("gpu", "Tesla T4", (7, 5)),
    "v4": Device("tpu", "TPU v4"),
    "v5e": Device("tpu", "TPU v5 lite"),
    "v6e": Device("tpu", "TPU v6 lite"),
}
FEATURES = 256  # E, of the readout that makes the logits on a TPU


class Sizes(NamedTuple):
    """B rows, gamma drafted tokens, V ids, and the type of logits."""

    batch: int
    gamma: int
    vocab: int
    dtype: str = "float32"


class Given(NamedTuple):
    """What a verification is given besides laws' settings: [B, ...] arrays."""

    target: jax.Array
    draft: jax.Array
    tokens: jax.Array
    num: jax.Array
    sampling: Sampling
    noise: token.Noise
    laws: tuple


def fused(name: str, device: str) -> Fused:
    """name: one of `dispatch.NAMES`, or "auto"."""
    return fuse.build(REFERENCE, DEVICES[device], Options(name))


def verifying(fused: Fused, known: str) -> Callable[[Given], tuple]:
    """Given -> (n, tokens, accept_prob); `laws` holds the scalars that are known."""

    def run(inputs: Given) -> tuple:
        p, q = inputs.laws
        target = fused.law(inputs.target, inputs.sampling)
        law = fused.law(inputs.draft, inputs.sampling)
        if known == "both":
            target = Law(inputs.target, *p)
        if known != "nothing":
            law = Law(inputs.draft, *q)
        draft = Draft(inputs.tokens, inputs.num, law)
        return fused.verify(target, draft, inputs.noise)[:3]

    return run


def shapes(sizes: Sizes) -> Given:
    """Everything as ShapeDtypeStructs."""
    batch, gamma, vocab, dtype = sizes
    of, real, whole = jax.ShapeDtypeStruct, jnp.float32, jnp.int32

    def scalars(rows: int) -> tuple:
        scalar = of((batch, rows), real)
        return scalar, scalar, scalar, of((batch, rows), whole), scalar

    noise = token.Noise(of((batch, gamma), real), of((batch, 2), real))
    logits = of((batch, gamma + 1, vocab), dtype), of((batch, gamma, vocab), dtype)
    drafted = of((batch, gamma), whole), of((batch,), whole)
    sampling = Sampling(of((batch,), real))
    return Given(
        *logits, *drafted, sampling, noise, (scalars(gamma + 1), scalars(gamma))
    )


def on_gpu(name: str, device: str, known: str, *sizes) -> tuple[Callable, tuple]:
    """A verification and its arguments, for `experiments.gpu.aot.cuda`."""
    run = verifying(fused(name, device), known)
    return run, (shapes(Sizes(*sizes)),)


def on_tpu(name: str, device: str, known: str, *sizes) -> tuple[Callable, tuple]:
    """The same after the products that make the logits, which decide their layout."""
    run, (inputs,) = on_gpu(name, device, known, *sizes)
    batch, gamma, vocab, dtype = Sizes(*sizes)
    of, half = jax.ShapeDtypeStruct, jnp.bfloat16

    def product(features, kernel):
        logits = jnp.dot(features, kernel, preferred_element_type=jnp.float32)
        return logits.astype(dtype)

    def whole(features: tuple, kernel, inputs: Given) -> tuple:
        target, draft = (product(x, kernel) for x in features)
        return run(inputs._replace(target=target, draft=draft))

    rows = of((batch, gamma + 1, FEATURES), half), of((batch, gamma, FEATURES), half)
    nothing = inputs._replace(target=None, draft=None)
    return whole, (rows, of((FEATURES, vocab), half), nothing)


def drawing(name: str, device: str, *sizes) -> tuple[Callable, tuple]:
    """A draw from logits [B, V], as the draft loop does it; gamma is not used."""
    batch, _, vocab, dtype = Sizes(*sizes)
    of, real = jax.ShapeDtypeStruct, jnp.float32
    kernel = fused(name, device)

    def run(logits, temperature, u):
        token_, law = kernel.draw(logits, Sampling(temperature), u)
        return token_, law.scale, law.top, law.tau, law.tie, law.lse

    return run, (of((batch, vocab), dtype), of((batch,), real), of((batch, 2), real))
