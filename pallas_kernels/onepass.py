"""Laws in one read of the logits, in plain XLA, with which every kernel is compared.

One variadic reduction finds the largest logit, its first id and the sum of exponentials
(Milakov & Gimelshein 2018, https://arxiv.org/abs/1805.02867), where `specjax.probs`
reads the logits twice. A CPU does not vectorize it, and is several times slower. Axes:
B rows, V vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import Array

from pallas_kernels.laws import (
    Deferred,
    inverse_temperature,
    law_row,
    per_row,
    to_float32,
)
from specjax import truncation
from specjax.types import Law, Sampling

PART = 1024  # ids of a partial sum


def standardize(logits: Array, sampling: Sampling) -> Law:
    """Returns `specjax.probs.standardize` of logits [B, ..., V] and settings [B]."""
    return complete(defer(logits, sampling))


def defer(logits: Array, sampling: Sampling) -> Deferred:
    """Returns the law without reading its logits, except to find a truncation."""
    temperature = sampling.temperature
    law = Deferred(logits, temperature)
    if all(setting is None for setting in sampling[1:]):
        return law
    # An argmax row ignores its settings, and 1 is the cheapest value of each.
    cuts = {
        name: None
        if cut is None
        else per_row(jnp.where(temperature == 0, 1, cut), logits)
        for name, cut in zip(sampling._fields[1:], sampling[1:], strict=True)
    }
    z, scale = to_float32(logits), per_row(inverse_temperature(temperature), logits)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    tau, tie = truncation.last_kept(z, z.max(-1), scale, **cuts)
    return law._replace(tau=tau, tie=tie)


def complete(law: Deferred) -> Law:
    """Returns the law of a deferred one, whose logits are read now."""
    cut = None if law.tau is None else (law.tau, law.tie)
    temperature = per_row(law.temperature, law.logits)
    top, first, total = read(law.logits, inverse_temperature(temperature), cut)
    vocab = law.logits.shape[-1]
    row = law_row(
        temperature, top=top, first=first, lse=jnp.log(total), cut=cut, vocab=vocab
    )
    return Law(law.logits, *row._replace(tie=_ids(row.tie, top)))


def _ids(tie, like: Array) -> Array:
    return jnp.broadcast_to(tie, like.shape).astype(jnp.int32)


def read(logits: Array, scale: Array, cut: tuple | None):
    """Returns the largest kept logit, its first id, the sum of exp(scale (z - top))."""
    z, axis = to_float32(logits), logits.ndim - 1
    ids = jax.lax.broadcasted_iota(jnp.int32, logits.shape, axis)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    if cut is not None:
        tau, tie = (end[..., None] for end in cut)
        z = jnp.where((z > tau) | ((z == tau) & (ids <= tie)), z, -jnp.inf)
    ones, each = jnp.ones_like(z), jnp.broadcast_to(scale[..., None], z.shape)
    last = logits.shape[-1] - 1
    start = jnp.float32(-jnp.inf), jnp.int32(last), jnp.float32(0), jnp.float32(0)
    # In two steps: a long sum of one running total would lose digits on a CPU.
    more = [(0, 0, 0)] * axis + [(0, -logits.shape[-1] % PART, 0)]
    shape = (*logits.shape[:-1], -1, PART)
    parts = tuple(
        jax.lax.pad(x, fill, more).reshape(shape)
        for x, fill in zip((z, ids, ones, each), start, strict=True)
    )
    for _ in range(2):
        parts = tuple(jax.lax.reduce(parts, start, _join, (parts[0].ndim - 1,)))
    return parts[:3]


def _join(part, other):
    """Merges two parts of a row: (top, first id of it, sum of exponentials, scale)."""
    (top, first, total, scale), (top_b, first_b, total_b, scale_b) = part, other
    scale = jnp.maximum(scale, scale_b)
    same, ahead = top == top_b, top > top_b
    # exp(-inf) is 0, also where a part has only -inf; if both have, they are the same.
    gap = jnp.exp(-jnp.where(same, 0.0, jnp.abs(top - top_b)) * scale)
    total = jnp.where(ahead | same, total, total * gap) + jnp.where(
        ahead, total_b * gap, total_b
    )
    first = jnp.where(
        same, jnp.minimum(first, first_b), jnp.where(ahead, first, first_b)
    )
    return jnp.maximum(top, top_b), first, total, scale
