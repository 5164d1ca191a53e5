"""The draft of the speech target, distilled on what that wrote of windows it heard.

One decoder layer behind the target's own encoder, as Distil-Whisper has it (Gandhi et
al. 2023, https://arxiv.org/abs/2311.00430): what the encoder gave is kept, and nothing
of it is learnt.
Axes: N texts, B of them, L tokens, S states of the encoder, E features, K kept ids.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from experiments.training import loop
from experiments.training.drafts import losses, written
from experiments.training.drafts.written import Lessons, Texts, Written
from experiments.training.targets import speech as targets
from experiments.training.voices import examples, sentences
from experiments.training.voices.examples import Rows
from specjax import generate
from specjax.inputs import make_request, make_sampling
from specjax.models import whisper
from specjax.types import Encoded, Params, Prompt

KL = loop.Recipe(
    600,
    400,
    batch=16,
    rate=2e-3,
    warmup=30,
    weight_decay=0.0,
    checkpoint_every=100,
    evaluate_every=100,
)
BATCH, TEXTS, HELD_OUT = 32, 512, 64


class Heard(NamedTuple):
    """As `Written`, whose `texts.inputs` become states [N, S, E], kept in float16."""

    texts: Texts
    ids: np.ndarray
    log_p: np.ndarray
    states: np.ndarray

    def rows(self, index: np.ndarray) -> Written:
        """Those texts, as a loss reads them."""
        rows = Written(self.texts, self.ids, self.log_p).rows(index)
        states = self.states[index].astype(np.float32)
        return rows._replace(texts=rows.texts._replace(inputs=states))


def read(
    runs: Path, config: whisper.Config, params: Any, train: Rows, held_out: Rows
) -> Lessons:
    """What the target writes of windows, at T = 0 and at T = 1, with its law; once,
    then from `runs`. Raises ValueError for files of another target."""
    runs.mkdir(parents=True, exist_ok=True)
    digest = loop.digest(params)

    def kept(name: str, data: Rows, count: int, temperature: float) -> Heard:
        path = runs / f"{name}.npz"
        about = f"{digest} {count} {temperature}"
        if not path.exists():
            part = examples.chosen(data, np.arange(count) % len(data.tokens))
            heard = write(config, params, part, temperature, path.stem)
            partial_file = path.with_suffix(".partial")
            with partial_file.open("wb") as file:
                np.savez(file, *heard.texts, *heard[1:], about=about)
            partial_file.replace(path)
        there = np.load(path)
        if str(there["about"]) != about:
            raise ValueError(f"{path} was written by another target: delete it")
        leaves = [there[f"arr_{i}"] for i in range(8)]
        return Heard(Texts(*leaves[:5]), *leaves[5:])

    greedy = kept("greedy", train, TEXTS, 0.0)
    sampled = kept("sampled", _turned(train), TEXTS, 1.0)
    fixed = {
        "t0": kept("held_out_greedy", held_out, HELD_OUT, 0.0),
        "t1": kept("held_out_sampled", held_out, HELD_OUT, 1.0),
    }
    return Lessons(written.join([greedy, sampled]), fixed, digest)


def _turned(rows: Rows) -> Rows:
    """From the last one on, so that other windows come first."""
    return Rows(*(leaf[::-1] for leaf in rows))


def write(
    config: whisper.Config, params: Any, data: Rows, temperature: float, name: str = ""
) -> Heard:
    """The target's texts of windows, each with the prompt that it has there."""
    most = data.tokens.shape[1]
    run = generate.autoregressive(whisper.build(config), most + 1)
    encode = jax.jit(partial(targets.states_of, config))
    score = jax.jit(partial(_likeliest, config))
    parts = []
    for at in tqdm(range(0, len(data.tokens), BATCH), f"{name}: texts"):
        index = np.minimum(np.arange(at, at + BATCH), len(data.tokens) - 1)
        part = Rows(*(leaf[index] for leaf in data))
        states = encode(params, part.frames)
        begun = jnp.asarray(part.begun, jnp.int32)
        prompt = Prompt(jnp.asarray(part.tokens[:, :2]), begun, Encoded(states))
        key = jax.random.fold_in(jax.random.key(0), at)
        sampling = make_sampling(BATCH, temperature)
        request = make_request(key, prompt, most - 2, sampling, sentences.END)
        out = run(Params(params), prompt, request)
        tokens = out.tokens[:, :most]
        ids, log_p = score(params, states, tokens)
        none = jnp.zeros((BATCH, 0), jnp.uint16), jnp.zeros(BATCH, jnp.int32)
        texts = Texts(tokens.astype(jnp.uint16), out.length, begun, *none)
        heard = Heard(texts, ids, log_p, states.astype(jnp.float16))
        parts.append(jax.tree.map(np.asarray, heard))
    whole = written.join(parts)
    return jax.tree.map(lambda leaf: leaf[: len(data.tokens)], whole)


def _likeliest(
    config: whisper.Config, params: Any, states: Array, tokens: Array
) -> tuple[Array, Array]:
    logits = targets.logits_of(config, params, states, tokens[:, :-1])
    log_p = jax.nn.log_softmax(logits)
    ids = jax.lax.top_k(log_p, written.KEPT)[1]
    classes = losses.classes(log_p, ids).astype(jnp.float16)
    return ids.astype(jnp.uint16), classes


def trained(
    folder: Path,
    config: whisper.Config,
    first: Any,
    lessons: Lessons,
    recipe: loop.Recipe = KL,
    name: str = "kl",
) -> Any:
    """The draft by a loss of `losses.LOSSES`; first: its weights, with the target's
    encoder, which stays as it is."""
    loss = written.distillation(name, logits_of(config))
    task = loop.Task({**config._asdict(), "loss": name}, lambda key: first, loss)
    count = len(lessons.train.ids)

    def batch(seed: tuple[int, ...]) -> Written:
        chosen = np.random.default_rng(seed).integers(count, size=recipe.batch)
        return lessons.train.rows(chosen)

    return written.train(folder, task, first, lessons, batch, recipe)


def logits_of(config: whisper.Config) -> Callable:
    """(params, texts) -> [B, L - 1, V]."""

    def logits(params, rows: Texts) -> Array:
        return targets.logits_of(config, params, rows.inputs, rows.tokens[:, :-1])

    return logits
