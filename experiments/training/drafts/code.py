"""The draft of the code target, distilled on what the target wrote and read.

Its law at every token is kept (`written`). A draft by KL until that is flat, and from
there a while by each loss of `losses`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import trange

from experiments.training import language, loop
from experiments.training.drafts import written
from experiments.training.drafts.written import Written
from experiments.training.targets.code import Text
from specjax import generate, zoo
from specjax.checkpoints import Checkpoint
from specjax.inputs import make_request, make_sampling
from specjax.models import gpt
from specjax.types import Params, Prompt

DRAFT = gpt.Config(8192, 56, 224, 2, 2)
KL = loop.Recipe(5000, 1200, batch=12, rate=6e-3, warmup=200, weight_decay=0.0)
AFTER = KL._replace(steps=600, decay=400, rate=2e-3, warmup=20, evaluate_every=200)
BATCH = 64  # texts that are written together
PROMPT, NEW = 64, 128  # most tokens
GREEDY, SAMPLED, READ, HELD_OUT = 2048, 4096, 3072, 256  # texts
LENGTH = PROMPT + NEW


class Texts(NamedTuple):
    """train; and, held out, what the target writes by temperature."""

    train: Written
    held_out: dict[str, Written]


def read(runs: Path, target: Checkpoint, text: Text) -> Texts:
    """What the target writes and what it read, with its law."""
    runs.mkdir(parents=True, exist_ok=True)
    logits = logits_of(target.config)

    def law(rows: written.Texts) -> Array:
        return jax.nn.log_softmax(logits(target.params, rows))

    def wrote(name: str, count: int, data, temperature: float, seed: int) -> Written:
        begun = partial(write, target, data, count, temperature, seed)
        return written.keep(runs / f"{name}.npz", begun, law)

    def known() -> written.Texts:
        rows = language.rows(text.train, (3,), READ, LENGTH - 1)
        return written.alone(rows.astype(np.uint16), np.full(READ, LENGTH, np.int32))

    parts = [
        wrote("greedy", GREEDY, text.train, 0.0, 0),
        wrote("sampled", SAMPLED, text.train, 1.0, 1),
        written.keep(runs / "read.npz", known, law),
    ]
    held_out = {
        "t0": wrote("held_out_greedy", HELD_OUT, text.held_out, 0.0, 2),
        "t1": wrote("held_out_sampled", HELD_OUT, text.held_out, 1.0, 3),
    }
    return Texts(written.join(parts), held_out)


def write(
    target: Checkpoint, data: language.Stream, count: int, temperature: float, seed: int
) -> written.Texts:
    """The target's continuations of the beginnings of documents. Of those that are
    sampled every other one has no more than the start token to begin from."""
    run = generate.autoregressive(target.model, LENGTH + 1)
    sampling = make_sampling(BATCH, temperature)
    rng, rows, lengths = np.random.default_rng(seed), [], []
    for i in trange(count // BATCH, desc=f"texts, T = {temperature:g}"):
        windows = language.rows(data, (seed, i), BATCH, PROMPT - 1)
        cuts = np.minimum(rng.integers(1, PROMPT + 1, BATCH), _ends(windows))
        if temperature > 0:
            cuts[::2] = 1
        begun = np.where(np.arange(PROMPT) < cuts[:, None], windows, 0)
        prompt = Prompt(jnp.asarray(begun), jnp.asarray(cuts, jnp.int32))
        key = jax.random.fold_in(jax.random.key(seed), i)
        request = make_request(key, prompt, NEW, sampling, zoo.END)
        out = run(Params(target.params), prompt, request)
        rows.append(np.asarray(out.tokens[:, :LENGTH], np.uint16))
        lengths.append(np.asarray(out.length, np.int32))
    return written.alone(np.concatenate(rows), np.concatenate(lengths))


def _ends(rows: np.ndarray) -> np.ndarray:
    """[B]: where a document's end token is, so that there is something to continue."""
    ends = rows == zoo.END
    return np.where(ends.any(1), ends.argmax(1), rows.shape[1])


def distilled(runs: Path, texts: Texts) -> Any:
    """The draft by KL, from nothing."""
    return trained(runs / "draft", "kl", KL, texts, None)


def continued(runs: Path, texts: Texts, first: Any, name: str, seed: int) -> Any:
    """The same for a while more, by a loss of `losses.LOSSES`."""
    recipe = AFTER._replace(seed=seed)
    return trained(runs / f"{name}_{seed}", name, recipe, texts, first)


def trained(
    folder: Path, name: str, recipe: loop.Recipe, texts: Texts, first: Any
) -> Any:
    """The draft by a loss, from `first` on or from nothing."""
    task = language.task(DRAFT, written.distillation(name, logits_of(DRAFT)))
    if first is not None:
        task = task._replace(init=lambda key: jax.tree.map(jnp.copy, first))
    count = len(texts.train.ids)

    def batch(seed: tuple[int, ...]) -> Written:
        chosen = np.random.default_rng(seed).integers(count, size=recipe.batch)
        return texts.train.rows(chosen)

    held_out = {key: written.batches(part) for key, part in texts.held_out.items()}
    return loop.train(folder, task, batch, held_out, recipe)


def accepted(params: Any, texts: Texts) -> dict[str, float]:
    """alpha on the held-out texts: `written.accepted`."""
    return written.accepted(logits_of(DRAFT), params, texts.held_out)


def logits_of(config: gpt.Config) -> Callable:
    """(params, texts) -> [B, L - 1, V]."""

    def logits(params, rows: written.Texts) -> Array:
        return language.logits_of(config, params, rows.tokens[:, :-1])

    return logits
