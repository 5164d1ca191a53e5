"""The draft of the dialogues' target: it reads what that read, then learns its law.

First the next token of real dialogues, for which no target is asked; then what the
target wrote after beginnings of them, with its law at every token (`written`), by KL
until that is flat, and last by the hybrid of KL and TVD.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from experiments.training import language, loop
from experiments.training.drafts import written
from experiments.training.drafts.written import Lessons, Written
from experiments.training.targets import code, dialogues
from experiments.training.targets.dialogues import Text
from experiments.training.targets.stages import Recipes
from specjax import generate, zoo
from specjax.checkpoints import Pretrained
from specjax.inputs import make_request, make_sampling
from specjax.models import llama
from specjax.types import Params, Prompt

DRAFT = llama.Config(dialogues.VOCAB, 64, 192, 2, 2, 1, 32)
READ = loop.Recipe(
    2000, 0, batch=12, length=192, rate=6e-3, warmup=200, weight_decay=0.0
)
RECIPES = {
    "read": READ,
    "kl": READ._replace(steps=1500, decay=500, rate=4e-3, warmup=50),
    "hybrid": READ._replace(steps=800, decay=700, rate=2e-3, warmup=20),
}
BATCH = 32  # texts that are written together
PROMPT, NEW = 128, 64  # most tokens
LENGTH = PROMPT + NEW
TEXTS, HELD_OUT = 640, 64  # at T = 0 and as many at T = 1


def train(
    runs: Path, target: Pretrained, text: Text, recipes: Recipes, texts: int = TEXTS
) -> tuple[Any, dict[str, float]]:
    """The draft's weights, and its alpha on what the target wrote after beginnings of
    held-out dialogues: `written.accepted`."""
    first = read(runs / "read", text, recipes["read"])
    lessons = learn_from(runs, target, text, texts)
    for name in ("kl", "hybrid"):
        first = distilled(runs / name, recipes[name], lessons, first)
    return first, written.accepted(logits_of(DRAFT), first, lessons.held_out)


def read(folder: Path, text: Text, recipe: loop.Recipe) -> Any:
    """The draft by the next token of the dialogues, from nothing."""
    size = recipe.batch, recipe.length
    fixed = code.windows(text.held_out, dialogues.HELD_OUT, size)

    def batch(seed: tuple[int, ...]) -> np.ndarray:
        return language.rows(text.train, seed, *size)

    return loop.train(folder, dialogues.task(DRAFT), batch, fixed, recipe)


def learn_from(runs: Path, target: Pretrained, text: Text, texts: int) -> Lessons:
    """What the target writes, with its law; held out too, by temperature."""
    logits, digest = logits_of(target.config), loop.digest(target.params)

    def law(rows: written.Texts) -> Array:
        return jax.nn.log_softmax(logits(target.params, rows))

    def wrote(name: str, count: int, data, temperature: float, seed: int) -> Written:
        make = partial(write, target, data, count, temperature, seed)
        drawn = {"texts": count, "temperature": temperature, "seed": seed}
        about = {"target": digest, "prompt": PROMPT, "new": NEW, **drawn}
        return written.keep(runs / f"{name}.npz", make, law, about)

    held_out = {
        "t0": wrote("held_out_greedy", HELD_OUT, text.held_out, 0.0, 2),
        "t1": wrote("held_out_sampled", HELD_OUT, text.held_out, 1.0, 3),
    }
    parts = [
        wrote("greedy", texts, text.train, 0.0, 0),
        wrote("sampled", texts, text.train, 1.0, 1),
    ]
    return Lessons(written.join(parts), held_out, digest)


def write(
    target: Pretrained, data: language.Stream, count: int, temperature: float, seed: int
) -> written.Texts:
    """The target's continuations of beginnings of dialogues and their summaries."""
    run = generate.autoregressive(target.model, LENGTH + 1)
    sampling, parts = make_sampling(BATCH, temperature), []
    for i in tqdm(range(-(-count // BATCH)), f"texts, T = {temperature:g}"):
        rows, begun = beginnings(data, (seed, i))
        prompt = Prompt(jnp.asarray(rows), jnp.asarray(begun))
        key = jax.random.fold_in(jax.random.key(seed), i)
        request = make_request(key, prompt, NEW, sampling, zoo.END)
        out = run(Params(target.params), prompt, request)
        tokens = np.asarray(out.tokens[:, :LENGTH], np.uint16)
        parts.append((tokens, np.asarray(out.length, np.int32), begun))
    whole = map(np.concatenate, zip(*parts, strict=True))
    return written.alone(*(part[:count] for part in whole))


def beginnings(
    data: language.Stream, seed: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [BATCH, PROMPT] of documents cut anywhere before their ends, zeros after,
    and how many of each there are [BATCH]."""
    windows = language.rows(data, seed, BATCH, PROMPT - 1)
    ends = windows == zoo.END
    most = np.where(ends.any(1), ends.argmax(1), PROMPT)
    cuts = np.random.default_rng(seed).integers(1, most + 1)
    rows = np.where(np.arange(PROMPT) < cuts[:, None], windows, 0)
    return rows, cuts.astype(np.int32)


def distilled(folder: Path, recipe: loop.Recipe, lessons: Lessons, first: Any) -> Any:
    """The draft, from `first` on, by the loss of `losses.LOSSES` that the folder is
    named after."""
    loss = written.distillation(folder.name, logits_of(DRAFT))
    task = dialogues.task(DRAFT)._replace(loss=loss)
    count = len(lessons.train.ids)

    def batch(seed: tuple[int, ...]) -> Written:
        chosen = np.random.default_rng(seed).integers(count, size=recipe.batch)
        return lessons.train.rows(chosen)

    return written.train(folder, task, first, lessons, batch, recipe)


def logits_of(config: llama.Config) -> Callable:
    """(params, texts) -> [B, L - 1, V]."""

    def logits(params, rows: written.Texts) -> Array:
        return dialogues.logits_of(config, params, rows.tokens[:, :-1])

    return logits
