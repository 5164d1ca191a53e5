"""A tiny target and draft, their prompts, and their laws computed by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.measure.texts import Text
from specjax.prompts import Prompts
from tests.support import bare, tiny

SMALL = dict(tokens=40, gamma=2, new_tokens=12, batch=4)
PROMPTS = Prompts([[1], [1, 5, 9], [1, 20], [1, 7, 7, 8, 3]])


@functools.cache
def pair() -> tuple[Pretrained, DraftSource]:
    """Returns a small transformer, and as the draft the same with noise on its
    weights."""
    world = tiny.transformers()
    target = bare.target("target", world.target, world.target_weights)
    return target, bare.draft("draft", world.draft, world.draft_weights)


def generated_places(text: Text) -> tuple[np.ndarray, np.ndarray]:
    """Returns the row [M] and place [M] of every generated token."""
    spans = enumerate(zip(text.start, text.length, strict=True))
    places = [(row, at) for row, span in spans for at in range(*span)]
    return tuple(np.transpose(places))


@functools.cache
def scorer():
    model = tiny.transformers().target  # of both

    def logits(params, tokens):
        start = jnp.zeros(tokens.shape[0], jnp.int32)
        return model.readout(params, model.apply(params, tokens, start, None)[0])

    return jax.jit(logits)


def logits(side: Pretrained | DraftSource, text: Text) -> np.ndarray:
    """Returns the logits [M, V] from which each generated token is drawn."""
    row, at = generated_places(text)
    return np.asarray(scorer()(side.params, text.tokens), np.float64)[row, at - 1]


def relative(z: np.ndarray) -> np.ndarray:
    """Returns each probability, divided by the largest one of its row."""
    return np.exp(z - z.max(-1, keepdims=True))


def law(z: np.ndarray, temperature: float, top_k: int | None = None) -> np.ndarray:
    if temperature == 0:
        return np.eye(z.shape[-1])[z.argmax(-1)]
    least = np.sort(z, axis=-1)[..., -(top_k or z.shape[-1])]
    weights = np.where(z >= least[..., None], relative(z / temperature), 0)
    return weights / weights.sum(-1, keepdims=True)
