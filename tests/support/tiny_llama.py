"""Small decoders of Llama's kind to decode with, each a `tiny.World`.

Caches of local layers are rings of WINDOW + PORTION slots, fewer than the tests' texts
need.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import llama
from specjax.models.llama import Config, Rotation, Stretch
from tests.support.tiny import World, mixed

WINDOW, PORTION = 2, 4
STRETCHED = Rotation(100.0, stretch=Stretch(4.0, 1.0, 4.0, 40))
BIASED = dict(biased=True, out_biased=True, mlp_biased=True)
LOCAL = dict(window=WINDOW, local=(0,))
LLAMA = Config(29, 16, 24, 2, 4, 2, 6, rotation=STRETCHED, **BIASED)
QWEN3 = Config(29, 16, 24, 2, 3, 1, 8, style="qwen3", rotation=Rotation(300.0))
GEMMA2 = Config(
    29,
    16,
    24,
    2,
    4,
    2,
    6,
    style="gemma2",
    tied=True,
    scale=0.4,
    score_cap=2.0,
    logit_cap=6.0,
    **LOCAL,
)
GEMMA3 = Config(
    29,
    16,
    24,
    2,
    2,
    2,
    4,
    style="gemma3",
    tied=True,
    rotation=Rotation(500.0, slower=4.0),
    local_rotation=Rotation(50.0),
    **LOCAL,
)


def build(config: Config):
    return llama.build(config, PORTION)


def weights(config: Config, seed: int):
    """Random weights, of which laws are sharp and every layer and position matters."""
    rng = np.random.default_rng(seed)
    style = llama.STYLES[config.style]

    def draw(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        noise = rng.normal(size=leaf.shape)
        if name.endswith("scale"):
            scale = (1 + 0.2 * noise) * (3.0 if name == "norm/scale" else 1.0)
            return jnp.float32(scale - style.offset)
        if name.endswith("bias"):
            return jnp.float32(0.3 * noise)
        embedding = 0.25 if style.scaled else 0.7
        spread = embedding if name == "embedding" else leaf.shape[0] ** -0.5
        return jnp.float32(spread * noise)

    return jax.tree_util.tree_map_with_path(draw, llama.abstract_params(config))


def first_layer(cache):
    return cache[:1]


def worlds(config: Config) -> Callable[[], World]:
    """The drafter is the target with noise on its weights."""

    @functools.cache
    def world() -> World:
        target = weights(config, 3)
        draft = mixed(target, weights(config, 5), 0.1)
        model, shallow = build(config), build(config._replace(num_layers=1))
        return World(model, model, shallow, first_layer, target, draft, target)

    return world
