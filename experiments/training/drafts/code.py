"""The draft of the code target, distilled on what the target wrote and read.

Its law at every token is kept (`written`). A draft by KL until that is flat, from there
a while by each loss of `losses`, and for longer by the one that ships.
"""

from collections.abc import Callable, Iterator
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
from experiments.training.targets.code import Text
from specjax import generate, zoo
from specjax.checkpoints import Pretrained
from specjax.inputs import make_request, make_sampling
from specjax.models import gpt
from specjax.types import Params, Prompt

DRAFT = gpt.Config(8192, 56, 224, 2, 2)
KL = loop.Recipe(5000, 1200, batch=12, rate=6e-3, warmup=200, weight_decay=0.0)
AFTER = KL._replace(steps=600, decay=400, rate=2e-3, warmup=20, evaluate_every=200)
# From the start the rate falls to nothing.
LONGER = KL._replace(steps=4000, decay=3800, rate=2e-3)
BATCH = 64  # texts that are written together
PROMPT, NEW = 64, 128  # most tokens
GREEDY, SAMPLED, READ, HELD_OUT = 2048, 4096, 3072, 256  # texts
LENGTH = PROMPT + NEW


def read(runs: Path, target: Pretrained, text: Text) -> Lessons:
    """What the target writes and what it read, with its law; held out, what it writes,
    by temperature."""
    runs.mkdir(parents=True, exist_ok=True)
    logits, digest = logits_of(target.config), loop.digest(target.params)

    def law(rows: written.Texts) -> Array:
        return jax.nn.log_softmax(logits(target.params, rows))

    def kept(name: str, make: Callable[[], written.Texts], **settings) -> Written:
        about = {"target": digest, **settings}
        return written.keep(runs / f"{name}.npz", make, law, about)

    def wrote(name: str, count: int, data, temperature: float, seed: int) -> Written:
        make = partial(write, target, data, count, temperature, seed)
        drawn = {"texts": count, "temperature": temperature, "seed": seed}
        return kept(name, make, prompt=PROMPT, new=NEW, **drawn)

    def known() -> written.Texts:
        rows = language.rows(text.train, (3,), READ, LENGTH - 1)
        length, begun = np.full(READ, LENGTH, np.int32), np.ones(READ, np.int32)
        return written.alone(rows.astype(np.uint16), length, begun)

    parts = [
        wrote("greedy", GREEDY, text.train, 0.0, 0),
        wrote("sampled", SAMPLED, text.train, 1.0, 1),
        kept("read", known, texts=READ, length=LENGTH, seed=3),
    ]
    held_out = {
        "t0": wrote("held_out_greedy", HELD_OUT, text.held_out, 0.0, 2),
        "t1": wrote("held_out_sampled", HELD_OUT, text.held_out, 1.0, 3),
    }
    return Lessons(written.join(parts), held_out, digest)


def write(
    target: Pretrained, data: language.Stream, count: int, temperature: float, seed: int
) -> written.Texts:
    """The target's continuations of the beginnings of documents."""
    run = generate.autoregressive(target.model, LENGTH + 1)
    sampling, parts = make_sampling(BATCH, temperature), []
    prompts = list(beginnings(data, count, temperature, seed))
    for i, (rows, begun) in enumerate(tqdm(prompts, f"texts, T = {temperature:g}")):
        prompt = Prompt(jnp.asarray(rows), jnp.asarray(begun))
        key = jax.random.fold_in(jax.random.key(seed), i)
        request = make_request(key, prompt, NEW, sampling, zoo.END)
        out = run(Params(target.params), prompt, request)
        tokens = np.asarray(out.tokens[:, :LENGTH], np.uint16)
        parts.append((tokens, np.asarray(out.length, np.int32), begun))
    return written.alone(*map(np.concatenate, zip(*parts, strict=True)))


def beginnings(
    data: language.Stream, count: int, temperature: float, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Beginnings of documents, tokens [BATCH, PROMPT] and how many of each [BATCH], a
    batch at a time. Of those to be sampled from, every other one is no more than the
    start token."""
    rng = np.random.default_rng(seed)
    for i in range(count // BATCH):
        windows = language.rows(data, (seed, i), BATCH, PROMPT - 1)
        cuts = np.minimum(rng.integers(1, PROMPT + 1, BATCH), _ends(windows))
        if temperature > 0:
            cuts[::2] = 1
        rows = np.where(np.arange(PROMPT) < cuts[:, None], windows, 0)
        yield rows, cuts.astype(np.int32)


def _ends(rows: np.ndarray) -> np.ndarray:
    """[B]: where a document's end token is, so that there is something to continue."""
    ends = rows == zoo.END
    return np.where(ends.any(1), ends.argmax(1), rows.shape[1])


def distilled(runs: Path, texts: Lessons) -> Any:
    """The draft by KL, from nothing."""
    return trained(runs / "draft", "kl", KL, texts, None)


def continued(runs: Path, texts: Lessons, first: Any, name: str, seed: int) -> Any:
    """The same for a while more, by a loss of `losses.LOSSES`."""
    return trained(runs / f"{name}_{seed}", name, after(seed), texts, first)


def after(seed: int) -> loop.Recipe:
    """How it goes on, in the order of a seed."""
    return AFTER._replace(seed=seed)


def longer(runs: Path, texts: Lessons, first: Any, name: str, seed: int) -> Any:
    """What `continued` gave, for longer, by the same loss."""
    return trained(runs / f"{name}_{seed}_longer", name, LONGER, texts, first)


def trained(
    folder: Path, name: str, recipe: loop.Recipe, texts: Lessons, first: Any
) -> Any:
    """The draft by a loss, as `written.train`."""
    task = language.task(DRAFT, written.distillation(name, logits_of(DRAFT)))
    count = len(texts.train.ids)

    def batch(seed: tuple[int, ...]) -> Written:
        chosen = np.random.default_rng(seed).integers(count, size=recipe.batch)
        return texts.train.rows(chosen)

    return written.train(folder, task, first, texts, batch, recipe)


def accepted(params: Any, texts: Lessons) -> dict[str, float]:
    """alpha on the held-out texts: `written.accepted`."""
    return written.accepted(logits_of(DRAFT), params, texts.held_out)


def logits_of(config: gpt.Config) -> Callable:
    """(params, texts) -> [B, L - 1, V]."""

    def logits(params, rows: written.Texts) -> Array:
        return language.logits_of(config, params, rows.tokens[:, :-1])

    return logits
