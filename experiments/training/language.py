"""What decoder-only models learn from: windows of documents, and their losses.

Axes: B rows, T tokens, V vocabulary, N tokens of all documents, D documents.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.training import loop
from experiments.training.loop import Recipe, Task
from specjax.models import gpt

HELD_OUT = 12  # batches


class Stream(NamedTuple):
    """Documents end to end: `tokens` [N] int32, and where each begins, `starts` [D]."""

    tokens: np.ndarray
    starts: np.ndarray


def stream(documents: list[list[int]]) -> Stream:
    """Joins token lists, each of which begins with the start token."""
    lengths = np.array([len(document) for document in documents])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return Stream(np.concatenate(documents).astype(np.int32), starts)


def rows(data: Stream, seed: tuple[int, ...], batch: int, length: int) -> np.ndarray:
    """[batch, length + 1] windows that begin where a document does."""
    starts = np.random.default_rng(seed).choice(data.starts, batch)
    index = starts[:, None] + np.arange(length + 1)
    return data.tokens[index % data.tokens.size]


def train(
    folder: Path, task: Task, data: Stream, held_out: Stream, recipe: Recipe
) -> Any:
    """Trains on windows of `data`; measures on the same windows of `held_out` always.

    Returns the parameters. Raises ValueError as `experiments.training.loop.train`.
    """
    size = recipe.batch, recipe.length
    fixed = [rows(held_out, (1, i), *size) for i in range(HELD_OUT)]
    return loop.train(folder, task, lambda seed: rows(data, seed, *size), fixed, recipe)


def task(config: gpt.Config, loss: Callable) -> Task:
    """A fresh model of these sizes, to be trained on this loss."""

    def init(key: Array):
        return nn.meta.unbox(gpt.init_params(key, config))

    return Task(config._asdict(), init, loss)


def logits_of(config: gpt.Config, params, tokens: Array) -> Array:
    """tokens [B, T] from slot 0 on -> logits [B, T, V] float32, without a cache."""
    model = gpt.build(config)
    start = jnp.zeros(tokens.shape[0], jnp.int32)
    features, _ = model.apply(params, tokens, start, None)
    return model.readout(params, features)


def next_token_loss(config: gpt.Config) -> Callable:
    """Mean cross-entropy in nats a token: (params, tokens [B, T + 1]) -> scalar."""

    def loss(params, tokens):
        logits = logits_of(config, params, tokens[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return each.mean()

    return loss
