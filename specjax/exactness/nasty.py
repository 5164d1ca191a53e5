"""The most difficult inputs that a verifier may meet: extreme logits of two models, and
extreme settings.

The ids that a target can draw are derived here from its raw logits, independently of
`specjax.probs`. Axes: S = 2 sides (target, draft), B rows, G = gamma, V vocabulary, F
features."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Law, Sampling

GAMMA = 3
ROWS = 1024  # problems of a chunk

# What is nasty about a side's logits: each in a fifth of the rows, in any combination.
FEATURES = (
    "ties",  # whole numbers
    "denormal",  # about half of the ids at probabilities around 1e-38
    "holes",  # some -inf
    "huge",  # times 1e30, some +-3e38
    "padded",  # the last ids -inf
    "NaN",  # some of them
    "one-hot",  # all but one -inf
    "disjoint",  # even ids are the target's, odd ones the draft's
    "equal",  # the draft's are the target's
    "shifted",  # the same plus a constant: equal but for rounding
)
TEMPERATURES = (1.0, 1.0, 0.7, 0.0, 1e-4, 100.0)
TOP_K, TOP_P, MIN_P = (1, 2, 5), (1e-6, 0.3, 0.9, 0.9999999), (0.0, 0.05, 0.5, 1.0)


class Variant(NamedTuple):
    """The properties that are compiled separately.

    certain: drafts carry no law. tree: drafts for a rule that verifies trees are TREE.
    own: they are drawn by a drafter's own code."""

    vocab: int
    dtype: str
    certain: bool
    truncated: bool
    tree: bool = False
    own: bool = False


TREE = (-1, -1, 0)

# 300 ids are two blocks for `probs.pick`; they are slow, so few chunks have them.
SHORT = (
    Variant(37, "float32", certain=False, truncated=False),
    Variant(37, "bfloat16", certain=False, truncated=True),
    Variant(37, "float32", certain=True, truncated=True),
)
TREES = tuple(each._replace(tree=True) for each in SHORT)
DRAWN = tuple(each._replace(own=True) for each in (*SHORT[:2], *TREES[:2]))
WIDE = Variant(300, "float32", certain=False, truncated=True)
VARIANTS = (*SHORT, WIDE, *TREES, *DRAWN)


class Problem(NamedTuple):
    """B rows to draw from again and again.

    logits: [B, G + 1, V] of each side. sampling, laws: of each side, the draft's law
    [B, G]. inside: [B, G + 1, V] bool, the ids that the target can draw. cumulative:
    [B, G, V] and dice: [B, 2 G + 1] uniforms, to draw drafts by. key: [B] request keys.
    features: [B, S, F] bool."""

    logits: tuple[Array, Array]
    sampling: tuple[Sampling, Sampling]
    laws: tuple[Law, Law]
    inside: Array
    cumulative: Array
    dice: Array
    key: Array
    features: Array


def make(key: Array, chunk: Array | int, variant: Variant) -> Problem:
    """Returns B problems with any combination of features and settings."""
    key, uniform = jax.random.split(jax.random.fold_in(key, chunk))
    shape = 2, 2, GAMMA + 1, variant.vocab
    size, count, drafting = math.prod(shape), len(FEATURES), 2 * GAMMA + 1
    u = jax.random.uniform(uniform, (ROWS, size + drafting + 2 * (count + 9)))
    each, drafting, dice = jnp.split(u, (size, size + drafting), axis=1)
    each = jnp.moveaxis(each.reshape((ROWS, *shape)), 0, 2)
    dice = jnp.moveaxis(dice.reshape(ROWS, 2, -1), 0, 1)
    features, dice = dice[..., :count] < 0.2, dice[..., count:]
    logits = nasty_logits(each, features, dice[..., :2]).astype(variant.dtype)

    target, draft = (make_settings(side, variant) for side in dice[..., 2:])
    same = jnp.arange(ROWS) % 2 == 0
    draft = jax.tree.map(lambda a, b: jnp.where(same, a, b), target, draft)
    p = probs.standardize(logits[0], target)
    q = probs.standardize(logits[1, :, :GAMMA], draft)
    inside, cumulative = support(logits[0], target), jnp.cumsum(probs.dense(q), axis=-1)
    sides, key = (tuple(logits), (target, draft), (p, q)), jax.random.split(key, ROWS)
    features = jnp.moveaxis(features, 0, 1)
    return Problem(*sides, inside, cumulative, drafting, key, features)


def nasty_logits(u: Array, features: Array, dice: Array) -> Array:
    """Returns logits [S, B, G + 1, V] float32, with a finite one in each row.

    u: [2, S, B, G + 1, V] uniforms. features: [S, B, F]. dice: [S, B, 2] uniforms."""
    on = {name: features[..., i, None, None] for i, name in enumerate(FEATURES)}
    u, share = u
    vocab = u.shape[-1]
    ids, side = jnp.arange(vocab), jnp.arange(2)[:, None, None, None]
    z = 2 * jnp.log(u / (1 - u))
    z = jnp.where(on["ties"], jnp.round(z / 2), z)
    z = jnp.where(on["denormal"] & (share < 0.5), z - 75 - 40 * share, z)
    enormous = jnp.where(share > 0.8, jnp.sign(z) * 3e38, z * 1e30)
    z = jnp.where(on["huge"], enormous, z)
    z = jnp.where(on["holes"] & (share > dice[..., 0, None, None]), -jnp.inf, z)
    z = jnp.where(on["padded"] & (ids >= vocab * dice[..., 1, None, None]), -jnp.inf, z)
    hot = share == share.max(-1, keepdims=True)
    z = jnp.where(on["one-hot"] & ~hot, -jnp.inf, z)
    z = jnp.where(on["disjoint"] & (ids % 2 != side), -jnp.inf, z)
    z = jnp.where(on["NaN"] & (jnp.abs(share - 0.5) < 0.1), jnp.nan, z)
    none = ~jnp.isfinite(z).any(-1, keepdims=True)
    z = jnp.where(none & (ids == side), 0.0, z)
    equal, shifted = on["equal"][1], on["shifted"][1]
    again = z[0] + jnp.where(shifted, 1.9, 0.0)
    return z.at[1].set(jnp.where(equal | shifted, again, z[1]))


def make_settings(dice: Array, variant: Variant) -> Sampling:
    """Returns one value of each list per row; each truncation is on in half of the
    rows."""

    def choose(values: tuple, u: Array) -> Array:
        return jnp.array(values)[(u * len(values)).astype(int)]

    temperature, dice = choose(TEMPERATURES, dice[:, 0]), dice[:, 1:]
    if not variant.truncated:
        return Sampling(temperature)
    lists, neutral = (TOP_K, TOP_P, MIN_P), (variant.vocab, 1.0, 0.0)
    limits = [
        jnp.where(dice[:, i] < 0.5, none, choose(values, dice[:, 3 + i]))
        for i, (values, none) in enumerate(zip(lists, neutral, strict=True))
    ]
    return Sampling(temperature, *limits)


def support(logits: Array, sampling: Sampling) -> Array:
    """Returns which ids of `logits` [B, T, V] can be drawn at all; bool.

    It compares them with values sorted in descending order. An id below e^-150 of the
    largest cannot be drawn; one at the very limit of top_p or min_p counts as drawable.
    """
    z = logits.astype(jnp.float32)
    z = jnp.where(z >= -jnp.inf, z, -jnp.inf)  # NaN is never at least anything
    down = -jnp.sort(-z, axis=-1)
    temperature = sampling.temperature[:, None, None]
    greedy = temperature == 0

    def scale(z: Array) -> Array:
        return (z - down[..., :1]) / jnp.where(greedy, 1.0, temperature)

    vocab = z.shape[-1]
    size = jnp.where(greedy, 1, vocab)
    if sampling.top_k is not None:
        limits: Any = sampling.top_k, sampling.top_p, sampling.min_p
        top_k, top_p, min_p = (limit[:, None, None] for limit in limits)
        size = jnp.minimum(size, top_k)
        mass = jnp.where(jnp.arange(vocab) < size, jnp.exp(scale(down)), 0.0)
        before = jnp.cumsum(mass, axis=-1) - mass
        reached = before <= (top_p + 1e-5) * mass.sum(-1, keepdims=True)
        size = jnp.minimum(size, reached.sum(-1, keepdims=True))
        likely = scale(down) >= jnp.log(min_p) - 1e-5
        size = jnp.minimum(size, likely.sum(-1, keepdims=True))
    size = jnp.broadcast_to(size, (*z.shape[:-1], 1))
    last = jnp.take_along_axis(down, size - 1, axis=-1)
    room = size - (z > last).sum(-1, keepdims=True)
    kept = (z > last) | ((z == last) & (jnp.cumsum(z == last, axis=-1) <= room))
    return kept & (scale(z) >= -150)
