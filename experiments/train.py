"""Trains a small language model, resumably: the makers of the bundled pair.

A run is a folder: `checkpoint.msgpack` (weights, optimiser, step; replaced atomically),
`curve.jsonl` (one line an evaluation). Killed at any moment, the same call goes on from
the last checkpoint and ends with the same weights as a run that was never killed,
because the batch of a step depends on the seed and the step alone.
Axes: B rows, T tokens, V vocabulary.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization
from jax import Array
from tqdm import tqdm

from specjax.models import gpt


class Stream(NamedTuple):
    """Documents end to end: `tokens` [N] int32, and where each begins, `starts` [D]."""

    tokens: np.ndarray
    starts: np.ndarray


class Recipe(NamedTuple):
    """How to train. Rates are AdamW's; the last `decay` steps fall linearly to zero."""

    steps: int
    decay: int
    batch: int = 8
    length: int = 256
    rate: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.1
    seed: int = 0
    checkpoint_every: int = 100
    evaluate_every: int = 250


class TrainState(NamedTuple):
    params: Any
    optimizer: Any
    step: int


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


def learning_rate(recipe: Recipe) -> optax.Schedule:
    """Warm-up, a plateau, then a linear fall to zero over the last `decay` steps."""
    fall = recipe.steps - recipe.decay
    up = optax.linear_schedule(0.0, recipe.rate, recipe.warmup)
    flat = optax.constant_schedule(recipe.rate)
    down = optax.linear_schedule(recipe.rate, 0.0, recipe.decay)
    return optax.join_schedules([up, flat, down], [recipe.warmup, fall])


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    adam = optax.adamw(
        learning_rate(recipe), b1=0.9, b2=0.95, weight_decay=recipe.weight_decay
    )
    return optax.chain(optax.clip_by_global_norm(1.0), adam)


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


def distillation_loss(config: gpt.Config, teacher: gpt.Config, weights) -> Callable:
    """Forward KL from a target to its draft, in nats a token (science of drafts: the
    text should be the target's own, see Zhou et al. 2023, DistillSpec)."""

    def loss(params, tokens):
        p = jax.nn.softmax(logits_of(teacher, weights, tokens[:, :-1]))
        log_q = jax.nn.log_softmax(logits_of(config, params, tokens[:, :-1]))
        log_p = jnp.log(jnp.maximum(p, 1e-30))
        return jnp.mean(jnp.sum(p * (log_p - log_q), axis=-1))

    return loss


def train(
    folder: Path,
    config: gpt.Config,
    loss: Callable,
    data: Stream,
    held_out: Stream,
    recipe: Recipe,
) -> Any:
    """Trains to `recipe.steps`, or goes on from where the folder stands.

    Returns the parameters. `loss` is also the held-out measure. Raises ValueError if
    the folder holds a run of another recipe.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_same(folder / "recipe.json", config, recipe)
    rule = optimizer(recipe)
    params = nn.meta.unbox(gpt.init_params(jax.random.key(recipe.seed), config))
    state = TrainState(params, rule.init(params), 0)
    checkpoint, curve = folder / "checkpoint.msgpack", folder / "curve.jsonl"
    if checkpoint.exists():
        state = serialization.from_bytes(state, checkpoint.read_bytes())
        state = state._replace(step=int(state.step))
    trim(curve, state.step)

    step_fn, held_out_loss = build_step(loss, rule), evaluator(loss, held_out, recipe)
    begun, losses = time.monotonic(), []
    bar = tqdm(range(state.step, recipe.steps), initial=state.step, total=recipe.steps)
    for step in bar:
        tokens = rows(data, (recipe.seed, step), recipe.batch, recipe.length)
        params, moments, value = step_fn(state.params, state.optimizer, tokens)
        state = TrainState(params, moments, step + 1)
        losses.append(float(value))
        bar.set_description(f"{folder.name} loss {np.mean(losses[-50:]):.3f}")
        if state.step % recipe.evaluate_every == 0 or state.step == recipe.steps:
            point = {
                "step": state.step,
                "tokens": state.step * recipe.batch * recipe.length,
                "loss": round(float(np.mean(losses[-recipe.evaluate_every :])), 4),
                "held_out": round(held_out_loss(state.params), 4),
                "seconds": round(time.monotonic() - begun, 1),
            }
            with curve.open("a") as file:
                file.write(json.dumps(point) + "\n")
        if state.step % recipe.checkpoint_every == 0 or state.step == recipe.steps:
            replace(checkpoint, serialization.to_bytes(state))
    return jax.tree.map(jnp.asarray, state.params)


def build_step(loss: Callable, rule: optax.GradientTransformation) -> Callable:
    def step(params, moments, tokens):
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        updates, moments = rule.update(gradient, moments, params)
        return optax.apply_updates(params, updates), moments, value

    return jax.jit(step, donate_argnums=(0, 1))


def evaluator(loss: Callable, held_out: Stream, recipe: Recipe, batches: int = 12):
    """The mean loss on the same held-out windows at every call."""
    fixed = [
        rows(held_out, (1, i), recipe.batch, recipe.length) for i in range(batches)
    ]
    compiled = jax.jit(loss)
    return lambda params: float(np.mean([compiled(params, tokens) for tokens in fixed]))


def check_same(path: Path, config: gpt.Config, recipe: Recipe) -> None:
    """A folder is one run: its sizes and recipe, but not how often it saves."""
    saving = {"checkpoint_every", "evaluate_every"}
    lasting = {k: v for k, v in recipe._asdict().items() if k not in saving}
    mine = {"config": config._asdict(), "recipe": lasting}
    if not path.exists():
        replace(path, json.dumps(mine, indent=1).encode())
        return
    there = json.loads(path.read_text())
    if there != mine:
        raise ValueError(
            f"{path.parent} holds a run of another recipe ({there} instead of {mine}):"
            " name another folder or delete this one"
        )


def trim(curve: Path, step: int) -> None:
    """Drops the points beyond the checkpoint, which the run will measure again."""
    if curve.exists():
        points = [line for line in curve.read_text().splitlines() if line]
        kept = [line for line in points if json.loads(line)["step"] <= step]
        replace(curve, "".join(line + "\n" for line in kept).encode())


def replace(path: Path, content: bytes) -> None:
    """Writes a file so that a kill leaves the old one or the new one, whole."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)
