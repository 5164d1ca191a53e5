"""Models that are tables, for which the law of a text is a few products.

The next id depends on the last two. A read from the wrong branch of a tree, or a cache
that keeps the wrong branch, therefore changes the law of texts. The cache holds the ids
that were read, slot by slot, and features are the two ids, which heads read as two
vectors that are 1 at an id, in three taps. Axes: B rows, T tokens in one call, M tokens
of a tree, V vocabulary, L slots."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.exactness.fixtures import reference, scalar_sampling
from specjax.types import Branches, Hidden, Model, Prompt


def build(vocab: int) -> Model:
    """Returns the model whose parameters are logits [V, V, V] of the next id.

    They are indexed by the id before the last and the last. The place before a text
    counts as id 0."""

    def init(params: Any, prompt: Prompt, slots: int) -> Array:
        del params
        return jnp.zeros((prompt.length.size, slots), jnp.int32)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Array,
        branches: Branches | None = None,
    ) -> tuple[Array, Array]:
        del params
        cache = jax.vmap(jax.lax.dynamic_update_slice)(cache, tokens, start[:, None])
        if branches is None:
            earlier = jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)))
            before = earlier.at[:, 0].set(ids_at(cache, start - 1))
        else:
            before = parent_ids(cache, start, tokens.shape[1], branches)
        return jnp.stack([before, tokens], axis=-1), cache

    def readout(params: Array, features: Array) -> Array:
        return params[features[..., 0], features[..., 1]]

    def keep(cache: Array, start: Array, path: Array) -> Array:
        kept = jnp.take_along_axis(cache, start[:, None] + path, axis=1)
        return jax.vmap(jax.lax.dynamic_update_slice)(cache, kept, start[:, None])

    def hidden(features: Array) -> Hidden:
        states = jax.nn.one_hot(features, vocab)
        states = states.reshape(*features.shape[:-1], 2 * vocab)
        return Hidden(states, (states, -states, states))

    shapes = jax.ShapeDtypeStruct((vocab,) * 3, jnp.float32)
    return Model(init, apply, readout, vocab, shapes, keep=keep, hidden=hidden)


def ids_at(cache: Array, slot: Array) -> Array:
    """Returns the ids in one slot of each row [B], 0 for slots before the first."""
    found = jnp.take_along_axis(cache, jnp.maximum(slot, 0)[:, None], axis=1)[:, 0]
    return jnp.where(slot < 0, 0, found)


def parent_ids(cache: Array, start: Array, count: int, branches: Branches) -> Array:
    """Returns the ids [B, T] that the tokens of a call follow in their tree."""
    depth, sees = branches
    size = depth.shape[1]
    begin = start - (size - count)
    tree = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (size,)))
    parent = sees & (depth[:, None] == depth[:, size - count :, None] - 1)
    found = jnp.sum(jnp.where(parent, tree(cache, begin)[:, None], 0), axis=-1)
    return jnp.where(parent.any(-1), found, ids_at(cache, begin - 1)[:, None])


def weights(vocab: int, seed: int, spread: float = 1.2) -> np.ndarray:
    """Returns random logits [V, V, V]."""
    return np.random.default_rng(seed).normal(scale=spread, size=(vocab,) * 3)


def text_law(
    logits: np.ndarray, prompt: Sequence[int], n: int, temperature: float
) -> np.ndarray:
    """Returns the law [V] * n of the n ids that follow a prompt of two or more.

    It is computed in float64, independently of decoding."""
    vocab, setting = len(logits), scalar_sampling(temperature)
    step = [reference(row, setting) for row in logits.reshape(-1, vocab)]
    step = np.array(step).reshape(logits.shape)
    law = step[tuple(prompt[-2:])]
    if n > 1:
        law = law[:, None] * step[prompt[-1]]
    for _ in range(n - 2):
        law = law[..., None] * step
    return law
