"""Small decoders of Llama's kind to decode with, each a `tiny.World`.

Caches of local layers are windows of WINDOW + PORTION slots, fewer than the tests'
texts need.
"""

import functools
from collections.abc import Callable

import numpy as np

from specjax.models import llama
from specjax.models.llama import Config, Rotation, Stretch
from tests.support.tiny import World, add_share, draw_params

WINDOW, PORTION = 2, 4
STRETCHED = Rotation(100.0, stretch=Stretch(4.0, 1.0, 4.0, 40))
BIASED = dict(biased=True, out_biased=True, mlp_biased=True)
LOCAL = dict(window=WINDOW, local=(0,))
LLAMA = Config(29, 16, 24, 2, 4, 2, 6, rotation=STRETCHED, **BIASED)
QWEN3 = Config(29, 16, 24, 2, 3, 1, 8, style="qwen3", rotation=Rotation(300.0))
CAPS = dict(scale=0.4, score_cap=2.0, logit_cap=6.0)
GEMMA2 = Config(29, 16, 24, 2, 4, 2, 6, "gemma2", tied=True, **CAPS, **LOCAL)
TURNS = dict(rotation=Rotation(500.0, slower=4.0), local_rotation=Rotation(50.0))
GEMMA3 = Config(29, 16, 24, 2, 2, 2, 4, "gemma3", tied=True, **TURNS, **LOCAL)


def build(config: Config):
    return llama.build(config, PORTION)


def weights(config: Config, seed: int):
    """Returns random weights with sharp laws, in which every layer and position
    matters."""
    style = llama.STYLES[config.style]
    embedding, sharp = (0.1, 7.0) if style.scaled else (0.7, 3.0)

    def draw(name: str, noise: np.ndarray) -> np.ndarray:
        if name.endswith("scale"):
            scale = (1 + 0.2 * noise) * (sharp if name == "norm/scale" else 1.0)
            return scale - style.offset
        if name.endswith("bias"):
            return 0.3 * noise
        return noise * (embedding if name == "embedding" else len(noise) ** -0.5)

    return draw_params(llama.abstract_params(config), seed, draw)


def worlds(config: Config, seed: int) -> Callable[[], World]:
    """Builds a world whose drafter is the target with noise on its weights. seed: one
    whose greedy texts do not repeat a few tokens."""

    @functools.cache
    def world() -> World:
        target = weights(config, seed)
        draft = add_share(target, weights(config, seed + 50), 0.1)
        model, shallow = build(config), build(config._replace(num_layers=1))
        return World(
            model, model, shallow, lambda cache: cache[:1], target, draft, target
        )

    return world
