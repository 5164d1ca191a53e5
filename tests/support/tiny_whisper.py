"""A small Whisper to decode with, as a `tiny.World`, and small sets of tokens."""

import functools

import jax.numpy as jnp
import numpy as np

from specjax.models import whisper
from specjax.speech.tokens import Tokens
from specjax.types import Features
from tests.support.tiny import World, add_share, draw_params, first_layer

TARGET = whisper.Config(31, 16, 24, 1, 2, num_heads=2, bands=5, frames=14, positions=40)
SMALL = TARGET._replace(decoder_layers=1)


def sounds(rows: int) -> Features:
    """Returns noise, different in each row."""
    shape = rows, TARGET.frames, TARGET.bands
    frames = np.random.default_rng(8).standard_normal(shape)
    return Features(jnp.float32(frames))


def weights(config: whisper.Config, seed: int):
    """Returns random weights with sharp laws, in which every position matters."""

    def draw(name: str, noise: np.ndarray) -> np.ndarray:
        if name.endswith("scale"):
            return (1 + 0.2 * noise) * (1.5 if name == "decoder/norm/scale" else 1.0)
        if name.endswith("bias"):
            return 0.2 * noise
        spread = 0.7 if name.endswith("embedding") else noise.shape[-2] ** -0.5
        return (4.0 if name == "decoder/positions" else spread) * noise

    return draw_params(whisper.abstract_params(config), seed, draw)


@functools.cache
def world() -> World:
    """Returns a world whose early exit is the first decoder layer; the drafter is that
    layer with noise on its weights, and with the target's encoder."""
    target = weights(TARGET, 3)
    decoder = dict(target["decoder"])
    del decoder["layers_1"]
    draft = add_share(target | {"decoder": decoder}, weights(SMALL, 7), 0.1)
    draft |= {"encoder": target["encoder"]}
    model, shallow = whisper.build(TARGET), whisper.build(SMALL)
    return World(model, shallow, shallow, first_layer, target, draft, target)


# Whisper's special tokens at the end of 20 others, and 31 timestamps: 61 ids.
TEXT, VOCAB = 20, 61
LANGUAGES = ("en", "de")
NAMES = ("endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe")
NAMES += ("startoflm", "startofprev", "nospeech", "notimestamps")
IDS = {f"<|{name}|>": TEXT + i for i, name in enumerate(NAMES)}
SPOKEN = dict(tasks={"transcribe": 25, "translate": 24}, languages={"en": 22, "de": 23})
PLACES = dict(previous=27, no_speech=28, no_timestamps=29, first_time=30)
TOKENS = Tokens(end=20, start=21, **PLACES, **SPOKEN)
PROMPT = [21, 22, 25]
EARLIER = [27, 3, 31, 4]  # what was said before, with a time in it
