"""Statistics of every token of a run, beside their means under the target.

What `specjax audit` adds up: h(x) - E_p h for five h, its variances, and likelihood
ratios. p is the target, q the drafter. Axes: B rows, T tokens, V vocabulary, M
generated tokens in all, S = 5 statistics, 2 for a draft without a law.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.measure import scoring
from specjax.measure.texts import Text
from specjax.sides import Side
from specjax.types import Law

# Surprisal in nats; 1{x = argmax p}; log q/p within +-5; min(q/p, 50); 1{x = argmax q}.
NAMES = ("surprisal", "argmax", "log_ratio", "ratio", "draft_argmax")
# How far E's alternatives lean to either side: so little that a / p is nearly linear in
# h, or it would be noise of its own. With the lambdas, from a quarter of h's own scale
# down to what millions of tokens show.
TILTS = (0.1, 0.5, 0.2, 0.02, 0.5)
SMALLEST = float(np.finfo(np.float32).tiny)  # what is below is 0 on some hardware


Pair = tuple[Side, Side]  # target, draft


class Steps(NamedTuple):
    """At each generated token x: deviation h(x) - E_p h, its mean square under p, its
    mean `pull` and mean `square` under q, [M, S]; log_ratio [M, S, 2], log a(x) / p(x)
    for a = p tilted by h to either side; impossible [M], p(x) = 0, where the others
    mean nothing; the sequence [M] that it belongs to."""

    deviation: np.ndarray
    variance: np.ndarray
    pull: np.ndarray
    square: np.ndarray
    log_ratio: np.ndarray
    impossible: np.ndarray
    sequence: np.ndarray


def score(
    pair: Pair, text: Text, temperature: float, **truncation: float | None
) -> Steps:
    """Scores every generated token of `text` in one pass of each model. truncation:
    top_k, top_p and min_p of both laws (`texts.truncation`). Of a draft without a law
    nothing is read: p has two statistics of its own."""
    target, draft = pair
    if draft.law is None:
        draft = draft._replace(law=lambda params, prompt, sampling: None)
    law = (target, draft), text, temperature, each
    steps = Steps(*scoring.positions(*law, **truncation))
    if not all(np.isfinite(leaf).all() for leaf in steps[:5]):
        raise ValueError(
            f"{target.name} or {draft.name} gives probabilities that are not numbers:"
            " check its weights"
        )
    return steps


def each(p_law: Law, q_law: Law | None, written: Array) -> tuple[Array, ...]:
    """All of `Steps` but the sequence, as [B, T, ...], for `written` [B, T]."""
    p = probs.dense(p_law)
    q = jnp.zeros_like(p) if q_law is None else probs.dense(q_law)
    tested = NAMES[:2] if q_law is None else NAMES
    # Row by row, so that what is summed over V stays in the processor's own memory.
    return jax.lax.map(lambda row: of_row(*row, tested), (p, q, written))


def of_row(p: Array, q: Array, written: Array, tested: tuple) -> tuple[Array, ...]:
    """`each` of a row: p, q [T, V], of which q is 0 if it is not tested."""
    inside = p >= SMALLEST
    p, q = jnp.where(inside, p, 0.0), jnp.where(inside, q, 0.0)
    p = p / p.sum(-1, keepdims=True)
    log_p = jnp.log(jnp.where(inside, p, 1.0))
    dense = {
        "surprisal": -log_p,
        "log_ratio": jnp.clip(jnp.log(q) - log_p, -5.0, 5.0),
        "ratio": jnp.minimum(q / jnp.where(inside, p, 1.0), 50.0),
    }
    statistics = []
    for name, tilt in zip(tested, TILTS, strict=False):
        if name in dense:
            statistics.append(of(dense[name], tilt, p, q, written))
        else:
            law = p if name == "argmax" else q
            statistics.append(of_largest(law, tilt, p, q, written))
    fields = (jnp.stack(leaf, axis=1) for leaf in zip(*statistics, strict=True))
    return *fields, ~at(inside, written)


def of(h: Array, tilt: float, p: Array, q: Array, written: Array) -> tuple[Array, ...]:
    """The first five of `Steps` for h [T, V], which is read where p > 0."""
    h = jnp.where(p > 0, h - jnp.sum(p * h, axis=-1, keepdims=True), 0.0)
    x = at(h, written)
    # a = p exp(s h) / E_p exp(s h)
    ratios = [s * x - jnp.log(jnp.sum(p * jnp.exp(s * h), -1)) for s in (tilt, -tilt)]
    means = jnp.sum(p * h * h, -1), jnp.sum(q * h, -1), jnp.sum(q * h * h, -1)
    return x, *means, jnp.stack(ratios, axis=-1)


def of_largest(
    law: Array, tilt: float, p: Array, q: Array, written: Array
) -> tuple[Array, ...]:
    """As `of` for h = 1{x = argmax law}, whose deviation takes two values."""
    vocab, top = law.shape[-1], law.max(-1, keepdims=True)
    # The first of the largest, by reductions that vectorize everywhere.
    largest = jnp.min(jnp.where(law == top, jnp.arange(vocab), vocab - 1), axis=-1)
    share, q_largest = at(p, largest), at(q, largest)
    q_others = q.sum(-1) - q_largest
    x = (written == largest) - share
    ratios = []
    for s in (tilt, -tilt):
        mean = share * jnp.exp(s * (1 - share)) + (1 - share) * jnp.exp(-s * share)
        ratios.append(s * x - jnp.log(mean))
    pull = q_largest * (1 - share) - q_others * share
    square = q_largest * (1 - share) ** 2 + q_others * share**2
    return x, share * (1 - share), pull, square, jnp.stack(ratios, axis=-1)


def at(values: Array, ids: Array) -> Array:
    return jnp.take_along_axis(values, ids[..., None], axis=-1)[..., 0]
