"""Small T5s to decode with, as a `tiny.World`."""

import functools

import jax
import numpy as np

from specjax.models import t5
from tests.support.tiny import World, add_share, draw_params, first_layer

# Three ids of 32 are padding of the vocabulary.
TARGET = t5.Config(32, 16, 24, 1, 2, num_heads=2, head_width=8, pieces=29)
SMALL = TARGET._replace(decoder_layers=1)

# These programs run for milliseconds, and compile for seconds.
QUICK = {"xla_backend_optimization_level": 0}
quick_jit = functools.partial(jax.jit, compiler_options=QUICK)


def weights(config: t5.Config, seed: int, sharp: float = 3.0):
    """Returns random weights with sharp laws, in which distances matter."""

    def draw(name: str, noise: np.ndarray) -> np.ndarray:
        if name.endswith("scale"):
            return (1 + 0.2 * noise) * (sharp if "decoder_norm" in name else 1.0)
        spread = 1.0 if "embedding" in name else len(noise) ** -0.5
        return noise * spread * (config.head_width**-0.5 if "query" in name else 1.0)

    return draw_params(t5.abstract_params(config), seed, draw)


@functools.cache
def world() -> World:
    """Returns a world of two decoder layers, the second weak. The early exit is the
    first layer; the drafter is that layer with noise on its weights, and with its own
    encoder and cache."""
    target = weights(TARGET, 14)
    decoder = dict(target["decoder"])
    last = decoder.pop("layers_1")
    for part, name in (
        ("self_attention", "out"),
        ("encoder_decoder_attention", "out"),
        ("mlp", "wo"),
    ):
        last[part][name]["kernel"] *= 0.5
    draft = add_share(target | {"decoder": decoder}, weights(SMALL, 7), 0.1)
    model, shallow = t5.build(TARGET), t5.build(SMALL)
    return World(model, shallow, shallow, first_layer, target, draft, target)
