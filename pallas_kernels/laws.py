"""The scalars of a law that kernels read, and the weights that they compute from them.

A law is a `specjax.types.Law`, or it is deferred: raw logits that have not been read
yet, so that the kernel that verifies them reads them once. Axes: B rows, V vocabulary.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from specjax.types import FusedRule, Law


class Deferred(NamedTuple):
    """A law whose logits have not been read yet.

    logits: [B, ..., V].
    temperature: [B].
    tau, tie: [B, ...], where a truncation ends (`specjax.types.Law`), or None.
    """

    logits: Array
    temperature: Array
    tau: Array | None = None
    tie: Array | None = None


class LawRow(NamedTuple):
    """The scalars of a law, in any shape that broadcasts with its logits."""

    scale: Any
    top: Any
    tau: Any
    tie: Any
    lse: Any


class Decision(NamedTuple):
    """The decision on a draft: what a verification found.

    n: the number of accepted tokens.
    p, q: the laws of both sides at n.
    banned: the token of a deterministic draft that was rejected, -1 for none.
    chance: the acceptance probabilities.
    """

    n: Array
    p: LawRow
    q: LawRow | None
    banned: Array | None
    chance: Array | None


EXACT = FusedRule()


def is_deferred(law: Law | Deferred) -> bool:
    """Returns whether a law's logits are still to be read."""
    return isinstance(law, Deferred)


def per_row(setting: Array, logits: Array) -> Array:
    """Returns a setting [B] broadcast to the rows of logits [B, ..., V]: [B, ...]."""
    setting = setting.reshape(-1, *[1] * (logits.ndim - 2))
    return jnp.broadcast_to(setting, logits.shape[:-1])


def inverse_temperature(temperature: Array) -> Array:
    """Returns 1 / temperature, or 1 for argmax."""
    return jnp.where(temperature == 0, 1.0, 1 / temperature)


def law_row(temperature, *, top, first, lse, cut: tuple | None, vocab: int) -> LawRow:
    """Returns the scalars of a deferred law, from the statistics of its logits.

    Args:
      temperature: the temperature of each row.
      top: the largest logit.
      first: its smallest id.
      lse: log of the sum of exp(scale * (z - top)).
      cut: (tau, tie) of a truncation, or None.
      vocab: V.
    """
    greedy = temperature == 0
    tau, tie = cut if cut is not None else (-jnp.inf, vocab - 1)
    return LawRow(
        scale=inverse_temperature(temperature) + 0 * top,
        top=top,
        tau=jnp.where(greedy, top, tau),
        tie=jnp.where(greedy, first, tie),
        lse=jnp.where(greedy, 0.0, lse),
    )


def weight(z: Array, ids: Array, row: LawRow, rule: FusedRule = EXACT) -> Array:
    """Returns p(x) for logits z of `ids`: the softmax of what is kept, or a sigmoid."""
    kept = (z > row.tau) | ((z == row.tau) & (ids <= row.tie))
    if rule.sigmoid is None:
        return jnp.where(kept, jnp.exp((z - row.top) * row.scale - row.lse), 0.0)
    low, high = rule.sigmoid
    at = (z * row.scale - low) / (high - low)  # Wagner et al., Eq. 5
    return jnp.where(kept, 1 / (1 + jnp.exp(-at)), 0.0)


def is_accepted(p: Array, q: Array, u: Array, near: Any, rule: FusedRule) -> Array:
    """Returns u l q(x) < p(x), or True where lenience accepts x in an argmax row
    (`near`)."""
    passed = u * rule.lenience * q < p
    return passed if near is None else passed | near


def within_lenience(z: Array, row: LawRow, rule: FusedRule) -> Array | None:
    """Returns which ids of argmax rows A.5's rule accepts, p_raw(x) >= l max p_raw;
    None where l = 1."""
    if rule.lenience == 1:
        return None
    one_id = (row.scale == 1) & (row.tau == row.top) & (row.lse == 0)
    return one_id & (jnp.exp(z - row.top) >= rule.lenience)


def chance(p: Array, q: Array, near: Any, rule: FusedRule) -> Array:
    """Returns the probability that `u` is compared with: min(1, p(x) / (l q(x)))."""
    below = rule.lenience * jnp.where(q > 0, q, 1.0)
    ratio = jnp.minimum(1.0, p / below)
    return ratio if near is None else jnp.where(near, 1.0, ratio)


def residual_weight(p: Array, q: Array, rule: FusedRule) -> Array:
    """Returns max(0, p - q), the weights by which a token is drawn after a
    rejection."""
    return jnp.maximum(p - (rule.lenience * q if rule.scaled else q), 0.0)


def invert(
    weights: Array, places: Array, u: Array, *, size: int, axis: int | None = None
) -> Array:
    """Returns the first place with positive weight and cumulative weight > u * total.

    If rounding lets none exceed it, the last place of positive weight. By bisection,
    because kernels have no scan. axis: the axis of places 0 .. size - 1, which is kept;
    None for a vector.
    """
    reduction = dict(axis=axis, keepdims=axis is not None)
    goal = u * jnp.sum(weights, **reduction)

    def halve_interval(_, ends):
        low, high = ends
        middle = (low + high) // 2
        past = jnp.sum(jnp.where(places <= middle, weights, 0.0), **reduction) > goal
        low = jnp.where(past, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(past, middle, high)

    ends = jnp.zeros(goal.shape, jnp.int32), jnp.full(goal.shape, size - 1, jnp.int32)
    _, first = lax.fori_loop(0, (size - 1).bit_length() + 1, halve_interval, ends)
    positive = weights > 0
    ahead = jnp.where(positive & (places >= first), places, size)
    ahead = jnp.min(ahead, **reduction)
    last = jnp.max(jnp.where(positive, places, 0), **reduction)
    return jnp.where(ahead < size, ahead, last)


def to_float32(logits: Array) -> Array:
    """Returns logits in float32."""
    return logits.astype(jnp.float32)
