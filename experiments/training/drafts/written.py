"""What a target writes, and what it thought at every token of it: read once, then kept.

A draft learns from these alone; its target is not asked again.
Axes: N texts, B of them, L tokens, I tokens that an encoder reads, K kept ids.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from experiments.training import loop
from experiments.training.drafts import losses

KEPT = 64
BATCH = 16  # texts that are scored together


class Texts(NamedTuple):
    """tokens [N, L], the first `length` [N] of each a text, of which the first `begun`
    [N] were there before the target wrote; what an encoder reads of each, inputs
    [N, I], the first `read` [N] of them, I = 0 without one."""

    tokens: np.ndarray
    length: np.ndarray
    begun: np.ndarray
    inputs: np.ndarray
    read: np.ndarray

    def rows(self, index: np.ndarray) -> "Texts":
        return Texts(*(part[index].astype(np.int32) for part in self))


class Written(NamedTuple):
    """ids [N, L - 1, K] uint16, the target's likeliest after each token, best first;
    log_p [N, L - 1, K + 1] float16, as `losses.classes`."""

    texts: Texts
    ids: np.ndarray
    log_p: np.ndarray

    def rows(self, index: np.ndarray) -> "Written":
        """Those texts, as a loss reads them."""
        ids, log_p = self.ids[index], self.log_p[index]
        wide = ids.astype(np.int32), log_p.astype(np.float32)
        return Written(self.texts.rows(index), *wide)


class Lessons(NamedTuple):
    """What a draft learns from. train: all as one, or by task. held_out: by what the
    curve calls them. target: the `loop.digest` of who wrote them."""

    train: Written | Mapping[str, Written]
    held_out: Mapping[str, Written]
    target: str


def alone(tokens: np.ndarray, length: np.ndarray, begun: np.ndarray) -> Texts:
    """Texts of a decoder, which reads nothing."""
    none = np.zeros((len(tokens), 0), np.uint16)
    return Texts(tokens, length, begun, none, np.zeros(len(tokens), np.int32))


def join(parts: Sequence[Written]) -> Written:
    """Several as one; their shapes are the same but for N."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def keep(
    path: Path, texts: Callable[[], Texts], score: Callable, about: dict[str, Any]
) -> Written:
    """Texts with the target's law; once, then from `path`.

    score: Texts of B rows -> log-probabilities [B, L - 1, V] after each token but the
    last. about: JSON, the target and the settings that the texts depend on. Raises
    ValueError for a file of others.
    """
    settings = json.dumps({**about, "kept": KEPT}, sort_keys=True)
    if not path.exists():
        there = texts()
        count = -(-len(there.tokens) // BATCH)
        parts = list(tqdm(_scored(there, score), path.stem, count))
        ids, log_p = (np.concatenate(part) for part in zip(*parts, strict=True))
        arrays = there._asdict() | {"ids": ids, "log_p": log_p, "about": settings}
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        partial.replace(path)
    read = np.load(path)
    if str(read.get("about")) != settings:
        raise ValueError(
            f"{path} was written by another target or other settings: delete it"
        )
    texts = Texts(*(read[name] for name in Texts._fields))
    return Written(texts, read["ids"], read["log_p"])


def _scored(texts: Texts, score: Callable) -> Iterator[tuple]:
    @jax.jit
    def likeliest(rows: Texts) -> tuple[Array, Array]:
        log_p = score(rows)
        ids = jax.lax.top_k(log_p, KEPT)[1]
        return ids.astype(jnp.uint16), losses.classes(log_p, ids).astype(jnp.float16)

    count = len(texts.tokens)
    for at in range(0, count, BATCH):
        index = np.arange(at, at + BATCH)
        parts = likeliest(texts.rows(np.minimum(index, count - 1)))
        yield tuple(np.asarray(part)[: count - at] for part in parts)


def distillation(name: str, logits_of: Callable[[Any, Texts], Array]) -> Callable:
    """A loss of `losses.LOSSES`, mean a token: (params, Written rows) -> scalar.

    logits_of: the draft's, (params, Texts of B rows) -> [B, L - 1, V].
    """
    divergence = losses.LOSSES[name]

    def loss(params, rows: Written) -> Array:
        log_q = jax.nn.log_softmax(logits_of(params, rows.texts))
        each = divergence(rows.log_p, losses.classes(log_q, rows.ids))
        weight = live(rows.texts)
        return jnp.sum(each * weight) / weight.sum()

    return loss


def live(texts: Texts) -> Array:
    """[B, L - 1] bool: the places after which a token of the text follows."""
    return jnp.arange(1, texts.tokens.shape[1]) < texts.length[:, None]


def by_target(texts: Texts) -> Array:
    """[B, L - 1] bool: those of them after which follows what the target wrote."""
    after = jnp.arange(1, texts.tokens.shape[1])
    return live(texts) & (after >= texts.begun[:, None])


def train(
    folder: Path,
    task: loop.Task,
    first: Any,
    lessons: Lessons,
    batch: Callable[[tuple[int, ...]], Written],
    recipe: loop.Recipe,
) -> Any:
    """A draft's weights, from `first` on or, if that is None, from nothing.

    batch: of a seed, rows of the lessons. Raises ValueError as `loop.train`, also for a
    folder in which a draft learned from another target.
    """
    task = task._replace(sizes={**task.sizes, "target": lessons.target})
    if first is not None:
        task = task._replace(init=lambda key: jax.tree.map(jnp.copy, first))
    held_out = {name: batches(part) for name, part in lessons.held_out.items()}
    return loop.train(folder, task, batch, held_out, recipe)


def batches(part: Written, size: int = 32) -> list[Written]:
    """All rows, in order, as a loss reads them."""
    count = len(part.ids)
    starts = range(0, count, size)
    return [part.rows(np.arange(at, min(at + size, count))) for at in starts]


def accepted(
    logits_of: Callable, params: Any, held_out: Mapping[str, Written]
) -> dict[str, float]:
    """alpha of what the target wrote, by temperature: "t0", the share of argmaxes that
    are the target's; "t1", the mean of sum min(p, q). logits_of: as of
    `distillation`."""

    @jax.jit
    def of(params, rows: Written) -> tuple[Array, Array, Array]:
        logits, here = logits_of(params, rows.texts), by_target(rows.texts)
        same = jnp.argmax(logits, -1) == rows.ids[..., 0]
        log_q = losses.classes(jax.nn.log_softmax(logits), rows.ids)
        alpha = losses.alpha(rows.log_p, log_q)
        return (same * here).sum(), (alpha * here).sum(), here.sum()

    rates = {}
    for name, part in held_out.items():
        sums = np.sum([of(params, rows) for rows in batches(part)], axis=0)
        greedy = name.endswith("t0")
        rates[f"alpha_{name}"] = float((sums[0] if greedy else sums[1]) / sums[2])
    return rates
