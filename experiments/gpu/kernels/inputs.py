"""Sets of inputs of a verification, for a shape and a chosen acceptance.

Axes: B rows, G = gamma, V vocabulary, S sets.
"""

from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.gpu.kernels import oracle
from specjax import probs
from specjax.keys import root_key
from specjax.types import Law, Sampling

CACHE = 60_000_000  # bytes, no less than the second-level cache of today's GPUs
SPREAD = 2.0  # of the target's logits, which are normal


class Shape(NamedTuple):
    """The shape of a verification.

    Attributes:
        dtype: the dtype of the logits.
    """

    batch: int
    gamma: int
    vocab: int
    dtype: str = "float32"

    @property
    def itemsize(self) -> int:
        return jnp.dtype(self.dtype).itemsize

    def row_bytes(self, rows: int) -> int:
        """Returns the bytes of the logits of `rows` rows of every text."""
        return self.batch * rows * self.vocab * self.itemsize


class Inputs(NamedTuple):
    """The inputs of a verification.

    Attributes:
        target: [B, G + 1, V], logits.
        draft: [B, G, V], logits.
        tokens: [B, G], drawn from q.
        num: [B], how many of the tokens are real.
        accept: [B, G], uniforms.
        sample: [B, 2], uniforms.
        p, q: the laws without the logits, as a model and a drafter carry them.
    """

    target: Array
    draft: Array
    temperature: Array
    tokens: Array
    num: Array
    accept: Array
    sample: Array
    p: Law
    q: Law


def noise_for_acceptance(acceptance: float) -> float:
    """Returns the deviation s of z_q - z_p at which drafts are kept with this
    probability.

    Under q of many ids log(p / q) is normal with mean -s^2 / 2 and deviation s, so that
    the mean of min(1, p / q) is 2 Phi(-s / 2).
    """
    return -2 * NormalDist().inv_cdf(acceptance / 2)


@partial(jax.jit, static_argnums=1)
def make(key: Array, shape: Shape, noise: Array) -> Inputs:
    batch, gamma, vocab, dtype = shape
    keys = jax.random.split(key, 5)
    z = SPREAD * jax.random.normal(keys[0], (batch, gamma + 1, vocab))
    near = z[:, :gamma] + noise * jax.random.normal(keys[1], (batch, gamma, vocab))
    return make_inputs(
        z.astype(dtype), near.astype(dtype), temperature=jnp.ones(batch), keys=keys[2:]
    )


@jax.jit
def make_inputs(
    target: Array, draft: Array, *, temperature: Array, keys: Array
) -> Inputs:
    """Returns inputs whose tokens are drawn from the draft's logits, and uniforms, by
    three keys.
    """
    batch, gamma, _ = draft.shape
    p, q = (probs.standardize(z, Sampling(temperature)) for z in (target, draft))
    u = jax.random.uniform(keys[0], (gamma, batch, 2))
    each = [probs.sample(probs.take(q, jnp.full(batch, g)), u[g]) for g in range(gamma)]
    return Inputs(
        target,
        draft,
        temperature,
        jnp.stack(each, 1),
        jnp.full(batch, gamma, jnp.int32),
        jax.random.uniform(keys[1], (batch, gamma)),
        jax.random.uniform(keys[2], (batch, 2)),
        *(law._replace(logits=None) for law in (p, q)),
    )


def shapes(shape: Shape) -> Inputs:
    return jax.eval_shape(lambda key: make(key, shape, 1.0), root_key(0))


def make_sets(
    shape: Shape, acceptance: float, *, count: int, seed: int = 0
) -> list[Inputs]:
    keys = jax.random.split(root_key(seed), count)
    noise = jnp.float32(noise_for_acceptance(acceptance))
    return [jax.block_until_ready(make(key, shape, noise)) for key in keys]


def count_cold_sets(shape: Shape, cache: int, least: int) -> int:
    """Returns how many sets of inputs together exceed twice the cache, so that none is
    read from the cache.
    """
    return max(least, 2 * cache // shape.row_bytes(2 * shape.gamma + 1) + 1)


def answer(batch: Inputs, sigmoid: tuple | None = None) -> oracle.Answer:
    host = jax.device_get(batch._replace(p=None, q=None))
    p, q = (
        oracle.weights(z, host.temperature, sigmoid) for z in (host.target, host.draft)
    )
    return oracle.answer(p, q, host.tokens, np.float64(host.accept))
