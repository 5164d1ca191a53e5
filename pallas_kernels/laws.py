"""What kernels read of a law, and how they weigh a token by it.

A law is a `specjax.types.Law`, or it is deferred: raw logits of which nothing has been
read yet, for the kernel that verifies them to read once.
Axes: B rows, V vocabulary.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from specjax.types import FusedRule, Law


class Deferred(NamedTuple):
    """A law before its logits are read: logits [B, ..., V], temperature [B]. tau, tie:
    [B, ...] where a truncation ends (`specjax.types.Law`), or None."""

    logits: Array
    temperature: Array
    tau: Array | None = None
    tie: Array | None = None


class LawRow(NamedTuple):
    """The scalars of a law, in whatever shape they meet its logits."""

    scale: Any
    top: Any
    tau: Any
    tie: Any
    lse: Any


class Decision(NamedTuple):
    """What a verification decides: n, the law at n of both sides, and the chances.
    banned: the id that a certain draft was sure of, -1 for none."""

    n: Array
    p: LawRow
    q: LawRow | None
    banned: Array | None
    chance: Array | None


EXACT = FusedRule()


def is_deferred(law: Law | Deferred) -> bool:
    return isinstance(law, Deferred)


def per_row(setting: Array, logits: Array) -> Array:
    """A setting a batch row [B] for each row of logits [B, ..., V]: [B, ...]."""
    setting = setting.reshape(-1, *[1] * (logits.ndim - 2))
    return jnp.broadcast_to(setting, logits.shape[:-1])


def inverse_temperature(temperature: Array) -> Array:
    """1 / temperature, and 1 for argmax."""
    return jnp.where(temperature == 0, 1.0, 1 / temperature)


def law_row(temperature, *, top, first, lse, cut: tuple | None, vocab: int) -> LawRow:
    """The row of a deferred law from what was read of its logits. top: the largest
    logit. first: its smallest id. lse: log of the sum of exp(scale * (z - top)). cut:
    (tau, tie) of a truncation."""
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
    """p(x) for logits z of `ids`: softmax of what the law keeps, or the sigmoid."""
    kept = (z > row.tau) | ((z == row.tau) & (ids <= row.tie))
    if rule.sigmoid is None:
        return jnp.where(kept, jnp.exp((z - row.top) * row.scale - row.lse), 0.0)
    low, high = rule.sigmoid
    at = (z * row.scale - low) / (high - low)  # Wagner et al., Eq. 5
    return jnp.where(kept, 1 / (1 + jnp.exp(-at)), 0.0)


def is_accepted(p: Array, q: Array, u: Array, near: Any, rule: FusedRule) -> Array:
    """u l q(x) < p(x), or x is near the argmax of an argmax row; bool."""
    passed = u * rule.lenience * q < p
    return passed if near is None else passed | near


def within_lenience(z: Array, row: LawRow, rule: FusedRule) -> Array | None:
    """A.5's argmax rows: p_raw(x) >= l max p_raw. None where l = 1: strict."""
    if rule.lenience == 1:
        return None
    one_id = (row.scale == 1) & (row.tau == row.top) & (row.lse == 0)
    return one_id & (jnp.exp(z - row.top) >= rule.lenience)


def chance(p: Array, q: Array, near: Any, rule: FusedRule) -> Array:
    """What `u` is compared with: min(1, p(x) / (l q(x)))."""
    below = rule.lenience * jnp.where(q > 0, q, 1.0)
    ratio = jnp.minimum(1.0, p / below)
    return ratio if near is None else jnp.where(near, 1.0, ratio)


def residual_weight(p: Array, q: Array, rule: FusedRule) -> Array:
    """max(0, p - q), from which the token after a rejection is drawn."""
    return jnp.maximum(p - (rule.lenience * q if rule.scaled else q), 0.0)


def invert(
    weights: Array, places: Array, u: Array, size: int, axis: int | None = None
) -> Array:
    """The first place of positive weight whose cumulative weight exceeds u * total, the
    last positive one if rounding lets none; by bisection, as there is no scan. axis:
    the one of places, 0 .. size - 1, which is kept; None of a vector."""
    reduction = dict(axis=axis, keepdims=axis is not None)
    goal = u * jnp.sum(weights, **reduction)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) // 2
        past = jnp.sum(jnp.where(places <= middle, weights, 0.0), **reduction) > goal
        low = jnp.where(past, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(past, middle, high)

    ends = jnp.zeros(goal.shape, jnp.int32), jnp.full(goal.shape, size - 1, jnp.int32)
    _, first = lax.fori_loop(0, (size - 1).bit_length() + 1, halve, ends)
    positive = weights > 0
    ahead = jnp.where(positive & (places >= first), places, size)
    ahead = jnp.min(ahead, **reduction)
    last = jnp.max(jnp.where(positive, places, 0), **reduction)
    return jnp.where(ahead < size, ahead, last)


def to_float32(logits: Array) -> Array:
    return logits.astype(jnp.float32)
