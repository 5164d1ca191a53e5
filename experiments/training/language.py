"""What decoders learn from: windows of documents, and the loss of the next token.

Axes: B rows, T tokens, N tokens of all documents, D documents.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import optax

from experiments.training import forward
from experiments.training.pipeline import Data, Stage
from specjax import zoo

HELD_OUT = 12  # batches


class Stream(NamedTuple):
    """Documents end to end: `tokens` [N] int32, and where each begins, `starts` [D]."""

    tokens: np.ndarray
    starts: np.ndarray


def encode(pieces, texts: list[str]) -> list[list[int]]:
    """Each text between the start and the end id."""
    return [[zoo.START, *ids, zoo.END] for ids in pieces.encode(texts)]


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


def data(
    read: Stream, held_out: Mapping[str, tuple[Stream, int]]
) -> Callable[[Stage], Data]:
    """Windows of a stage's size. held_out: by name, a stream and how many batches of
    it are measured on, the same ones always."""

    def of(stage: Stage) -> Data:
        size = stage.recipe.batch, stage.recipe.length
        fixed = {
            name: [rows(other, (1, i), *size) for i in range(count)]
            for name, (other, count) in held_out.items()
        }
        return Data(lambda seed: rows(read, seed, *size), fixed, next_token_loss)

    return of


def next_token_loss(config: forward.Config) -> Callable:
    """Mean cross-entropy in nats a token: (params, tokens [B, T + 1]) -> scalar."""

    def loss(params, tokens):
        logits = forward.logits(config, params, tokens[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return each.mean()

    return loss
