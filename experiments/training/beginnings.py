"""Beginnings of documents, which a target goes on with, and what it makes of them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.training import language, loop
from experiments.training.drafts import written
from experiments.training.drafts.written import Beginning, Lessons, Written
from specjax import zoo
from specjax.checkpoints import Pretrained
from specjax.types import Prompt


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


def lessons(
    runs: Path,
    target: Pretrained,
    train: language.Stream,
    held_out: language.Stream,
    plan: Continued,
) -> Lessons:
    """What a target writes and what it read, with its law; held out, what it writes, by
    temperature. Raises ValueError as `written.keep`."""
    digest, length = loop.digest(target.params), plan.prompt + plan.new

    def wrote(name: str, count: int, data, temperature: float, seed: int) -> Written:
        make = partial(write, target, data, plan, count, temperature, seed)
        about = {"target": digest, "prompt": plan.prompt, "new": plan.new}
        about |= {"texts": count, "temperature": temperature, "seed": seed}
        return written.keep(runs / f"{name}.npz", target, make, about)

    def known() -> written.Texts:
        rows = language.rows(train, (3,), plan.read, length - 1).astype(np.uint16)
        each = np.full(plan.read, length, np.int32), np.ones(plan.read, np.int32)
        return written.alone(rows, *each)

    parts = [
        wrote("greedy", plan.greedy, train, 0.0, 0),
        wrote("sampled", plan.sampled, train, 1.0, 1),
    ]
    if plan.read:
        about = {"target": digest, "texts": plan.read, "length": length, "seed": 3}
        parts.append(written.keep(runs / "read.npz", target, known, about))
    fixed = {
        "t0": wrote("held_out_greedy", plan.held_out, held_out, 0.0, 2),
        "t1": wrote("held_out_sampled", plan.held_out, held_out, 1.0, 3),
    }
    return Lessons({"": (written.join(parts), 1.0, None)}, fixed, digest)


def write(
    target: Pretrained,
    data: language.Stream,
    plan: Continued,
    count: int,
    temperature: float,
    seed: int,
) -> written.Texts:
    """The target's continuations of `count` beginnings of documents."""
    batches = cut(data, plan, -(-count // plan.batch), temperature, seed)

    def begun() -> Iterator[Beginning]:
        for i, (rows, length) in enumerate(batches):
            key = jax.random.fold_in(jax.random.key(seed), i)
            prompt = Prompt(jnp.asarray(rows), jnp.asarray(length))
            yield Beginning(key, prompt, np.full(plan.batch, temperature))

    texts = written.write(target, begun(), plan.new, f"texts, T = {temperature:g}")
    return jax.tree.map(lambda leaf: leaf[:count], texts)


def cut(
    data: language.Stream, plan: Continued, batches: int, temperature: float, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Documents cut before their ends: tokens [batch, prompt], zeros after, and how
    many of each [batch], a batch at a time.

    Any place before the end is as likely. Of a plan that is `clipped`, any place of a
    prompt is, and those beyond the end become it; of texts to be sampled, every other
    one is no more than the start token.
    """
    once = np.random.default_rng(seed)
    for i in range(batches):
        windows = language.rows(data, (seed, i), plan.batch, plan.prompt - 1)
        ends = windows == zoo.END
        most = np.where(ends.any(1), ends.argmax(1), plan.prompt)
        if plan.clipped:
            cuts = np.minimum(once.integers(1, plan.prompt + 1, plan.batch), most)
        else:
            cuts = np.random.default_rng((seed, i)).integers(1, most + 1)
        if plan.clipped and temperature > 0:
            cuts[::2] = 1
        rows = np.where(np.arange(plan.prompt) < cuts[:, None], windows, 0)
        yield rows, cuts.astype(np.int32)
