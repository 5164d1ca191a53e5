"""The target of dialogues, of Llama's kind: a small one learns, and is grown.

Two stages, see `stages`: RMSNorm, SwiGLU, rotary positions, four heads to a key.
Axes: B rows, T tokens, V vocabulary.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from sentencepiece import SentencePieceProcessor

from experiments.training import language, loop
from experiments.training.targets import code, stages
from experiments.training.texts import dialogues
from specjax.models import llama

VOCAB = 4096
SMALL = llama.Config(VOCAB, 256, 1024, 4, 4, 1, 64)
LARGE = llama.Config(VOCAB, 512, 2048, 8, 8, 2, 64)
SIZE = loop.Recipe(1500, 0, batch=8, length=256, rate=3e-3, evaluate_every=100)
GROWN = SIZE._replace(steps=300, decay=240, rate=5e-4, warmup=20)
RECIPES = {"small": SIZE, "grown": GROWN}
HELD_OUT = 4  # batches


class Text(NamedTuple):
    """Streams: what is read, and what is held out."""

    train: language.Stream
    held_out: language.Stream


def load(folder: Path, pieces: SentencePieceProcessor) -> Text:
    """The dialogues of a folder as ids. Raises ValueError as `dialogues.read`."""
    sides = (dialogues.read(folder, side).documents for side in ("train", "valid"))
    return Text(*(code.coded(pieces, documents) for documents in sides))


def train(runs: Path, text: Text, recipes: stages.Recipes) -> Any:
    """Runs both stages from nothing; returns the grown weights."""
    first = task(SMALL).init

    def batch(seed: tuple[int, ...]) -> np.ndarray:
        return language.rows(text.train, seed, SIZE.batch, SIZE.length)

    def start() -> Any:
        return first(jax.random.key(SIZE.seed))

    fixed = code.windows(text.held_out, HELD_OUT, (SIZE.batch, SIZE.length))
    growth = stages.Growth(SMALL, LARGE, start, task)
    return stages.run(runs, growth, stages.Data(batch, {"held_out": fixed}), recipes)


def task(config: llama.Config) -> loop.Task:
    """A fresh model of these sizes, to be trained on the next token."""

    def init(key: Array):
        return nn.meta.unbox(llama.init_params(key, config))

    sizes = json.loads(json.dumps(config._asdict()))  # tuples, as a file has them
    return loop.Task(sizes, init, next_token_loss(config))


def logits_of(config: llama.Config, params, tokens: Array) -> Array:
    """tokens [B, T] from slot 0 on -> logits [B, T, V] float32, without a cache."""
    model = llama.build(config)
    start = jnp.zeros(tokens.shape[0], jnp.int32)
    features, _ = model.apply(params, tokens, start, None)
    return model.readout(params, features)


def next_token_loss(config: llama.Config) -> Callable:
    """Mean cross-entropy in nats a token: (params, tokens [B, T + 1]) -> scalar."""

    def loss(params, tokens):
        logits = logits_of(config, params, tokens[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return each.mean()

    return loss
