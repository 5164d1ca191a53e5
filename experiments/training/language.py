"""The training data of decoders: windows of documents with the loss of the next token,
and the texts that a target writes for its draft.

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

from experiments.training import pipeline
from experiments.training.drafts import lessons as learning
from experiments.training.drafts.lessons import Lessons
from experiments.training.pipeline import Data, Stage
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained
from specjax.keys import root_key
from specjax.training import forward, loop, written
from specjax.training.written import Written
from specjax.types import Prompt


class Stream(NamedTuple):
    """Documents end to end: `tokens` [N] int32, and the place where each begins,
    `starts` [D]."""

    tokens: np.ndarray
    starts: np.ndarray


def encode(pieces, texts: list[str]) -> list[list[int]]:
    return [[zoo.START, *ids, zoo.END] for ids in pieces.encode(texts)]


def stream(documents: list[list[int]]) -> Stream:
    lengths = np.array([len(document) for document in documents])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return Stream(np.concatenate(documents).astype(np.int32), starts)


def rows(data: Stream, *, seed: tuple[int, ...], batch: int, length: int) -> np.ndarray:
    """Returns windows of ids, [batch, length + 1], each of which begins where a
    document does."""
    starts = np.random.default_rng(seed).choice(data.starts, batch)
    index = starts[:, None] + np.arange(length + 1)
    return data.tokens[index % data.tokens.size]


def data(
    read: Stream, held_out: Mapping[str, tuple[Stream, int]]
) -> Callable[[Stage], Data]:
    """Returns a function from a stage to windows of its size.

    A run belongs to one stream: it cannot continue with another.

    Args:
        held_out: by name, a stream and the number of its batches that are evaluated,
            always the same ones.
    """
    about = {loop.TEXT: loop.digest(read)}

    def stage_data(stage: Stage) -> Data:
        size = {"batch": stage.recipe.batch, "length": stage.recipe.length}
        fixed = {
            name: [rows(other, seed=(1, i), **size) for i in range(count)]
            for name, (other, count) in held_out.items()
        }
        return Data(
            lambda seed: rows(read, seed=seed, **size), fixed, next_token_loss, about
        )

    return stage_data


def next_token_loss(config: forward.Config) -> Callable:
    """Returns the mean cross-entropy in nats per token: (params, tokens [B, T + 1]) ->
    scalar.
    """

    def loss(params, tokens):
        logits = forward.logits(config, params, tokens[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return each.mean()

    return loss


class ContinuedTexts(NamedTuple):
    """The settings of the texts that a decoder writes for its draft.

    Attributes:
        greedy, sampled: the number of texts at T = 0 and T = 1.
        read: the number of texts that it only reads.
        held_out: the number of texts at either temperature.
        prompt, new: the most tokens.
        batch: texts that are written together.
        clipped: see `cut_documents`.
    """

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
    *,
    data: pipeline.Texts,
    sides: tuple[Stream, Stream],
    export: Callable[[str, forward.Config, Any], Path],
) -> dict[str, float]:
    """Trains a target, and then its draft on the target's texts; returns the draft's
    values of alpha.

    Args:
        sides: two streams that prompts are cut from, for training and for measuring.
        export: writes "target" or "draft", and returns the path to load it from.
    """
    drafts = pipeline.stages(recipe, "draft")
    params = pipeline.run(runs, pipeline.stages(recipe, "seed", "target"), data)
    path = export("target", pipeline.config(recipe, "large"), params)
    folder = runs / Path(drafts[0].folder).parent
    learnt = lessons(folder, checkpoints.load(path), sides=sides, recipe=recipe)
    params = pipeline.run(runs, drafts, {**data, "lessons": learning.data(learnt)})
    config = pipeline.config(recipe, "draft")
    export("draft", config, params)
    return written.acceptance(config, params, learnt.held_out)


def lessons(
    runs: Path, target: Pretrained, *, sides: tuple[Stream, Stream], recipe: dict
) -> Lessons:
    """Returns the texts that a target wrote and those that it read, with its law; held
    out are texts that it wrote, by temperature.

    Raises:
        ValueError: as `written.keep`.
    """
    plan, digest = ContinuedTexts(**recipe["written"]), loop.digest(target.params)
    length = plan.prompt + plan.new

    def write_texts(name: str, apart: bool, temperature: float) -> Written:
        seed = 2 * apart + int(temperature)
        count = plan.held_out if apart else getattr(plan, name)
        rows = cut_documents(
            sides[apart],
            plan,
            batches=-(-count // plan.batch),
            temperature=temperature,
            seed=seed,
        )

        def begin(index: np.ndarray) -> tuple:
            key = jax.random.fold_in(root_key(seed), index[0] // plan.batch)
            return key, Prompt(*map(jnp.asarray, next(rows))), None

        size = count, plan.batch, plan.new
        make = partial(
            written.write, target, begin, size=size, temperature=temperature, label=name
        )
        about = {"target": digest, "prompt": plan.prompt, "new": plan.new}
        about |= {"texts": count, "temperature": temperature, "seed": seed}
        return written.keep(runs / f"{name}.npz", target, texts=make, about=about)

    def read_texts() -> written.Texts:
        windows = rows(sides[0], seed=(3,), batch=plan.read, length=length - 1).astype(
            np.uint16
        )
        lengths = np.full(plan.read, length, np.int32)
        return written.without_inputs(windows, lengths, np.ones(plan.read, np.int32))

    more = []
    if plan.read:
        about = {"target": digest, "texts": plan.read, "length": length, "seed": 3}
        more.append(
            written.keep(runs / "read.npz", target, texts=read_texts, about=about)
        )
    return learning.lessons(digest, write_texts, more)


def cut_documents(
    data: Stream, plan: ContinuedTexts, *, batches: int, temperature: float, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches of beginnings of documents: tokens [batch, prompt], with zeros
    after them, and their number [batch].

    Every cut before the end is equally likely. If a plan is `clipped`, every length up
    to a prompt's is, and lengths beyond the end become the end. Of texts to be sampled,
    every other one is the start token alone.
    """
    once = np.random.default_rng(seed)
    for i in range(batches):
        windows = rows(data, seed=(seed, i), batch=plan.batch, length=plan.prompt - 1)
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
