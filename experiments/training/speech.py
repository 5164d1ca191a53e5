"""What a Whisper learns from windows of speech, and its draft from what that writes.

The target is told, beside the text, which letter is spoken when, so that its encoder is
soon worth attending to. The draft, one decoder layer, is behind the target's own
encoder, as Distil-Whisper has it (Gandhi et al. 2023,
https://arxiv.org/abs/2311.00430): what the encoder gave is kept, and nothing of it is
learnt.
Axes: B rows, L tokens, S states of the encoder, E features.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.training import forward, loop
from experiments.training.drafts import written
from experiments.training.drafts.written import Beginning, Lessons, Written
from experiments.training.pipeline import Data, Stage
from experiments.training.voices import examples
from experiments.training.voices.examples import Rows
from specjax.checkpoints import Pretrained
from specjax.models import whisper
from specjax.models.whisper import Config
from specjax.types import Encoded, Prompt

TOLD = 0.3  # weight of the letters, beside the text
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


class Heard(NamedTuple):
    """texts: at T = 0, and as many at T = 1. held_out: at either. batch: windows that
    are written of together."""

    texts: int
    held_out: int
    batch: int


def loss(config: Config) -> Callable[[Any, Rows], Array]:
    """Mean cross-entropy in nats a token of what follows the prompt, and TOLD times
    that of the letter at each state, by the embedding that tokens share."""

    def of(params, rows: Rows) -> Array:
        states = forward.states_of(config, params, rows.frames)
        logits = forward.logits(config, params, rows.tokens[:, :-1], states)
        each = cross_entropy(logits, rows.tokens[:, 1:])
        place = jnp.arange(1, rows.tokens.shape[1])
        live = (place >= rows.begun[:, None]) & (place < rows.length[:, None])
        letters = whisper.readout(config, params, states)
        told = cross_entropy(letters, rows.spoken).mean()
        return jnp.sum(each * live) / live.sum() + TOLD * told

    return of


def data(read: Rows, held_out: Rows, size: int = 16) -> Callable[[Stage], Data]:
    """Rows that are there. size: of the batches that are measured on."""
    every = np.arange(len(held_out.tokens))
    parts = np.split(every, len(every) // size)
    fixed = {"held_out": [examples.chosen(held_out, part) for part in parts]}

    def of(stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Rows:
            rng, count = np.random.default_rng(seed), len(read.tokens)
            return examples.chosen(read, rng.integers(count, size=stage.recipe.batch))

        return Data(batch, fixed, loss, {"told": TOLD})

    return of


def lessons(
    runs: Path, target: Pretrained, train: Rows, held_out: Rows, plan: Heard
) -> Lessons:
    """What the target writes of windows, at T = 0 and at T = 1, with its law; once,
    then from `runs`. Raises ValueError for files of another target."""
    digest = loop.digest(target.params)

    def kept(name: str, rows: Rows, count: int, temperature: float) -> Written:
        part = examples.chosen(rows, np.arange(count) % len(rows.tokens))
        make = partial(write, target, part, temperature, plan.batch, name)
        about = {"target": digest, "texts": count, "temperature": temperature}
        return written.keep(runs / f"{name}.npz", target, make, about, plan.batch)

    turned = Rows(*(leaf[::-1] for leaf in train))  # so that other windows come first
    parts = [
        kept("greedy", train, plan.texts, 0.0),
        kept("sampled", turned, plan.texts, 1.0),
    ]
    fixed = {
        "t0": kept("held_out_greedy", held_out, plan.held_out, 0.0),
        "t1": kept("held_out_sampled", held_out, plan.held_out, 1.0),
    }
    return Lessons({"": (written.join(parts), 1.0, None)}, fixed, digest)


def write(
    target: Pretrained, rows: Rows, temperature: float, batch: int, label: str
) -> written.Texts:
    """The target's texts of windows, each with the prompt that it has there."""
    encode = jax.jit(partial(forward.states_of, target.config))
    count = len(rows.tokens)

    def begun() -> Iterator[Beginning]:
        for at in range(0, count, batch):
            index = np.minimum(np.arange(at, at + batch), count - 1)
            states = encode(target.params, rows.frames[index])
            length = jnp.asarray(rows.begun[index], jnp.int32)
            prompt = Prompt(
                jnp.asarray(rows.tokens[index, :2]), length, Encoded(states)
            )
            key = jax.random.fold_in(jax.random.key(0), at)
            kept = np.asarray(states), np.zeros(batch, np.int32)
            yield Beginning(key, prompt, np.full(batch, temperature), kept)

    new = rows.tokens.shape[1] - 2
    texts = written.write(target, begun(), new, f"{label}: texts")
    return jax.tree.map(lambda leaf: leaf[:count], texts)
