"""Small worlds to decode in: a target, a drafter, and the target's early exit.

`transformers` are real `gpt` models with caches, a few thousand parameters each.
`tables` are first-order Markov chains, whose exact laws fit on a page.
Axes: B rows, T tokens, V vocabulary.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from specjax.generate import Output
from specjax.models import gpt
from specjax.models.cache import KeyValues
from specjax.quantized import Dynamic, Int8, rounding
from specjax.types import BLOCK, Hidden, Model


def bound(most: int = 200) -> Iterator[None]:
    """Yields `most` times, and fails after that: the bound of a loop."""
    yield from [None] * most
    raise AssertionError(f"a loop has not ended after {most} turns")


def check_greedy(output: Output, starts, logits, *, least: int) -> None:
    """Checks that rows wrote the argmax of logits [B, L, V] of their whole texts, with
    at least `least` different ids, so that no row only repeats itself."""
    best = np.argmax(logits, axis=-1)
    for row, (start, end) in enumerate(zip(starts, output.length, strict=True)):
        text = output.tokens[row, start:end]
        np.testing.assert_array_equal(text, best[row, start - 1 : end - 1])
        assert np.unique(text).size >= least


class World(NamedTuple):
    """Three models, the weights of each, and the early exit's part of the cache."""

    target: Model
    draft: Model
    shallow: Model
    cut: Callable
    target_weights: Any
    draft_weights: Any
    shallow_weights: Any


TARGET = gpt.Config(vocab=29, dim=16, mlp_dim=32, num_layers=2, num_heads=2)
SHALLOW = TARGET._replace(num_layers=1)


def weights(config: gpt.Config, seed: int, scale: float = 12.0):
    """Returns random weights, scaled up until the laws are far from uniform and layers
    matter."""
    return jax.tree.map(lambda leaf: leaf, _weights(config, seed, scale))


@functools.cache  # a hundred small programs
def _weights(config: gpt.Config, seed: int, scale: float):
    params = nn.meta.unbox(gpt.init_params(jax.random.key(seed), config))
    return jax.tree.map(lambda leaf: scale * leaf, params)


def draw_params(shapes, seed: int, draw: Callable):
    """Returns parameters of these shapes, each of which is draw(name, normal noise)."""
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return jnp.float32(draw(name, rng.normal(size=shape.shape)))

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def first_layer(cache):
    """Returns the part of an encoder-decoder's cache that belongs to its first
    layer."""
    return cache._replace(own=cache.own[:1], read=cache.read[:1])


def add_share(tree, other, share: float):
    """Returns the sum of a tree of weights and a share of another one."""
    return jax.tree.map(lambda a, b: a + share * b, tree, other)


def quantize_params(params: Any, kind: str = "int8") -> Any:
    """Returns the same tree with its large matrices in eight bits, as "int8" or as
    "int8_dynamic"."""
    flat = flatten_dict(params, sep="/")
    for name, leaf in flat.items():
        if rounding.is_quantized(leaf.shape):
            whole = Int8(*rounding.quantize(leaf, rounding.input_axis(name)))
            flat[name] = whole if kind == "int8" else Dynamic.from_int8(whole)
    return unflatten_dict(flat, sep="/")


@jax.jit
def ruin_slots(layers, first: Array, last: Array | float = jnp.inf):
    """Returns caches with huge numbers in slots `first .. last - 1` [B] of every
    row."""

    def ruin_layer(layer: KeyValues) -> KeyValues:
        slot = jnp.arange(layer.values.shape[2])
        bad = (slot >= first[:, None]) & (slot < jnp.reshape(last, (-1, 1)))
        keys = jnp.where(bad[:, None, None], 1e30, layer.keys)
        return KeyValues(keys, jnp.where(bad[:, None, :, None], 1e30, layer.values))

    return type(layers)(map(ruin_layer, layers))


@functools.cache
def transformers() -> World:
    """Returns a target, and as the drafter the same model with noise on its weights,
    which is right two times in three."""
    target = weights(TARGET, 2)
    draft = add_share(target, weights(TARGET, 52), 0.3)
    model, shallow = gpt.build(TARGET), gpt.build(SHALLOW)
    return World(model, model, shallow, lambda cache: cache[:1], target, draft, target)


def markov(vocab: int) -> Model:
    """Returns a model whose weights are logits [V, V] of the next token given the last;
    it has no cache."""

    def init(params, prompt, slots):
        del params, prompt, slots
        return ()

    def apply(params, tokens, start, cache, branches=None):
        del start, branches  # a token's law is that of its own id
        return params[tokens], cache

    def readout(params, features):
        del params
        return features

    shapes = jax.ShapeDtypeStruct((vocab, vocab), float)
    keep = lambda cache, start, path: cache  # noqa: E731
    return Model(init, apply, readout, vocab, shapes, keep=keep, hidden=Hidden)


@functools.cache
def tables(vocab: int = 4) -> World:
    model = markov(vocab)
    p, q, r = (
        1.5 * jax.random.normal(jax.random.key(s), (vocab, vocab)) for s in (0, 1, 2)
    )
    return World(model, model, model, lambda cache: cache, p, q, jnp.asarray(r))


@functools.cache
def blocks(vocab: int = 3) -> World:
    """Returns `tables` in which every id stands for a block of ids: the blocks of a
    text are a chain of these tables, with any ids in them."""
    small, wide = tables(vocab), markov(vocab * BLOCK)

    def spread(logits: Array, seed: int) -> Array:
        inside = jax.random.normal(jax.random.key(seed), (vocab, BLOCK))
        inside = jax.nn.log_softmax(inside) + jax.nn.log_softmax(logits)[..., None]
        return inside.reshape(vocab, -1).repeat(BLOCK, axis=0)

    weights = map(spread, small[4:], range(3))
    return World(wide, wide, wide, small.cut, *weights)
