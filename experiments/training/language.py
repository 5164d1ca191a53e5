"""What decoders learn from: windows of documents, and the loss of the next token; and
what a target writes from their beginnings on, which its draft learns from.

Axes: B rows, T tokens, N tokens of all documents, D documents.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.training import forward, loop, pipeline
from experiments.training.drafts import written
from experiments.training.drafts.written import Lessons, Written
from experiments.training.pipeline import Data, Stage
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained
from specjax.keys import root_key
from specjax.types import Prompt


class Stream(NamedTuple):
    """Documents end to end: `tokens` [N] int32, and where each begins, `starts` [D]."""

    tokens: np.ndarray
    starts: np.ndarray


def encode(pieces, texts: list[str]) -> list[list[int]]:
    return [[zoo.START, *ids, zoo.END] for ids in pieces.encode(texts)]


def stream(documents: list[list[int]]) -> Stream:
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
    it are measured on, the same ones always. A run is of one stream: it does not go on
    with another."""
    about = {loop.TEXT: loop.digest(read)}

    def of(stage: Stage) -> Data:
        size = stage.recipe.batch, stage.recipe.length
        fixed = {
            name: [rows(other, (1, i), *size) for i in range(count)]
            for name, (other, count) in held_out.items()
        }
        return Data(lambda seed: rows(read, seed, *size), fixed, next_token_loss, about)

    return of


def next_token_loss(config: forward.Config) -> Callable:
    """Mean cross-entropy in nats a token: (params, tokens [B, T + 1]) -> scalar."""

    def loss(params, tokens):
        logits = forward.logits(config, params, tokens[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return each.mean()

    return loss


class Continued(NamedTuple):
    """What a decoder writes for its draft. greedy, sampled: texts at T = 0 and T = 1;
    read: texts that it only read; held_out: texts at either temperature. prompt, new:
    the most tokens. batch: texts that are written together. clipped: see `cut`."""

    greedy: int
    sampled: int
    read: int
    held_out: int
    prompt: int
    new: int
    batch: int
    clipped: bool = False


def pair(
    runs: Path,
    recipe: dict,
    data: pipeline.Texts,
    sides: tuple[Stream, Stream],
    export: Callable[[str, forward.Config, Any], Path],
) -> dict[str, float]:
    """A target, and its draft on what that writes; the alphas of the draft.

    sides: what beginnings are of, to learn from and held out. export: writes "target"
    or "draft", and gives the path to load it from.
    """
    drafts = pipeline.stages(recipe, "draft")
    params = pipeline.run(runs, pipeline.stages(recipe, "seed", "target"), data)
    path = export("target", pipeline.config(recipe, "large"), params)
    folder = runs / Path(drafts[0].folder).parent
    learnt = lessons(folder, checkpoints.load(path), sides, recipe)
    params = pipeline.run(runs, drafts, {**data, "lessons": written.data(learnt)})
    config = pipeline.config(recipe, "draft")
    export("draft", config, params)
    return written.accepted(config, params, learnt.held_out)


def lessons(
    runs: Path, target: Pretrained, sides: tuple[Stream, Stream], recipe: dict
) -> Lessons:
    """What a target writes and what it read, with its law; held out, what it writes, by
    temperature. Raises ValueError as `written.keep`."""
    plan, digest = Continued(**recipe["written"]), loop.digest(target.params)
    length = plan.prompt + plan.new

    def wrote(name: str, apart: bool, temperature: float) -> Written:
        seed = 2 * apart + int(temperature)
        count = plan.held_out if apart else getattr(plan, name)
        rows = cut(sides[apart], plan, -(-count // plan.batch), temperature, seed)

        def begin(index: np.ndarray) -> tuple:
            key = jax.random.fold_in(root_key(seed), index[0] // plan.batch)
            return key, Prompt(*map(jnp.asarray, next(rows))), None

        size = count, plan.batch, plan.new
        make = partial(written.write, target, begin, size, temperature, name)
        about = {"target": digest, "prompt": plan.prompt, "new": plan.new}
        about |= {"texts": count, "temperature": temperature, "seed": seed}
        return written.keep(runs / f"{name}.npz", target, make, about)

    def known() -> written.Texts:
        windows = rows(sides[0], (3,), plan.read, length - 1).astype(np.uint16)
        each = np.full(plan.read, length, np.int32), np.ones(plan.read, np.int32)
        return written.alone(windows, *each)

    more = []
    if plan.read:
        about = {"target": digest, "texts": plan.read, "length": length, "seed": 3}
        more.append(written.keep(runs / "read.npz", target, known, about))
    return written.lessons(digest, wrote, more)


def cut(
    data: Stream, plan: Continued, batches: int, temperature: float, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Documents cut before their ends: tokens [batch, prompt], zeros after, and how
    many of each [batch], a batch at a time.

    Any place before the end is as likely. Of a plan that is `clipped`, any place of a
    prompt is, and those beyond the end become it; of texts to be sampled, every other
    one is no more than the start token.
    """
    once = np.random.default_rng(seed)
    for i in range(batches):
        windows = rows(data, (seed, i), plan.batch, plan.prompt - 1)
        ends = windows == zoo.END
        most = np.where(ends.any(1), ends.argmax(1), plan.prompt)
        if plan.clipped:
            cuts = np.minimum(once.integers(1, plan.prompt + 1, plan.batch), most)
            if temperature > 0:
                cuts[::2] = 1
        else:
            cuts = np.random.default_rng((seed, i)).integers(1, most + 1)
        kept = np.where(np.arange(plan.prompt) < cuts[:, None], windows, 0)
        yield kept, cuts.astype(np.int32)
