"""What a target answers, with its law at every token: written and kept in one pass.

Scoring a text after it was written reads its long prompt twice. Here the prompt is read
once; of it only the end is kept, which is what a draft with a short window reads.
Axes: B answers written together, T prompt tokens, N new ones, P prompt tokens kept, K
likeliest ids, V vocabulary, E features.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.training.drafts import losses
from experiments.training.drafts.written import KEPT, Texts, Written
from specjax.checkpoints import Pretrained
from specjax.types import Prompt

WIDTH = 32  # prompts are padded to multiples of it: few shapes are compiled


class Plan(NamedTuple):
    """Static. new: tokens of an answer at most. kept: tokens of a prompt that are kept.
    batch: answers written together."""

    new: int
    kept: int
    batch: int


def build(target: Pretrained, plan: Plan) -> Callable[..., Written]:
    """Returns `answer(key, prompts, temperature) -> Written`, for a list of at most
    `plan.batch` prompts. Answers end with what ends the target's texts."""
    model, (new, kept, batch) = target.model, plan
    ends = jnp.asarray(target.ends, jnp.int32)

    def likeliest(logits: Array) -> tuple[Array, Array]:
        log_p = jax.nn.log_softmax(logits)
        ids = jax.lax.top_k(log_p, KEPT)[1]
        return ids.astype(jnp.uint16), losses.classes(log_p, ids).astype(jnp.float16)

    def run(params: Any, key: Array, tokens: Array, length: Array, heat: Array):
        cache = model.init(params, Prompt(tokens, length), tokens.shape[1] + new)
        start = jnp.zeros(batch, jnp.int32)
        features, cache = model.apply(params, tokens, start, cache)
        places = length[:, None] - kept + jnp.arange(kept)
        last = jnp.take_along_axis(
            features, jnp.maximum(places, 0)[..., None], axis=1
        )  # [B, P, E]

        def of_row(row: Array) -> tuple[Array, Array]:
            return likeliest(model.readout(params, row))

        before = jax.lax.map(of_row, last)

        def step(carried, at):
            features, cache, ended = carried
            logits = model.readout(params, features)
            hot = logits / jnp.where(heat > 0, heat, 1.0)[:, None]
            drawn = jax.random.categorical(jax.random.fold_in(key, at), hot)
            token = jnp.where(heat > 0, drawn, jnp.argmax(logits, -1)).astype(jnp.int32)
            live = ~ended
            ended |= (token[:, None] == ends).any(-1)
            block = token[:, None]
            features, cache = model.apply(params, block, length + at, cache)
            out = token, live, *likeliest(logits)
            return (features[:, 0], cache, ended), out

        begun = last[:, -1], cache, jnp.zeros(batch, bool)
        _, out = jax.lax.scan(step, begun, jnp.arange(new))
        return before, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), out)

    compiled = jax.jit(run)

    def answer(key: Array, prompts: list[list[int]], heat: np.ndarray) -> Written:
        filled = prompts + prompts[-1:] * (batch - len(prompts))
        lengths = np.array([len(ids) for ids in filled], np.int32)
        tokens = np.zeros((batch, -(-lengths.max() // WIDTH) * WIDTH), np.int32)
        for row, ids in enumerate(filled):
            tokens[row, : len(ids)] = ids
        heat = np.resize(np.float32(heat), batch)
        out = compiled(target.params, key, tokens, lengths, heat)
        before, (drawn, live, *after) = jax.device_get(out)
        joined = _joined(plan, tokens, lengths, (before, drawn, live, after))
        return jax.tree.map(lambda leaf: leaf[: len(prompts)], joined)

    return answer


def _joined(plan: Plan, tokens: np.ndarray, length: np.ndarray, made: tuple) -> Written:
    """Each row from the first prompt token that is kept on, zeros after its end."""
    before, drawn, live, after = made
    count, whole = len(tokens), plan.kept + plan.new
    texts = np.zeros((count, whole), np.uint16)
    ids = np.zeros((count, whole - 1, KEPT), np.uint16)
    log_p = np.zeros((count, whole - 1, KEPT + 1), np.float16)
    begun = np.minimum(length, plan.kept)
    ends = begun + live.sum(1)
    for row in range(count):
        own, lives = begun[row], live[row].sum()
        texts[row, :own] = tokens[row, length[row] - own : length[row]]
        texts[row, own : own + lives] = drawn[row, :lives]
        for kept, (of_prompt, of_answer) in zip(
            (ids, log_p), zip(before, after, strict=True), strict=True
        ):
            # The law after the prompt's last token is that of the answer's first.
            kept[row, : own - 1] = of_prompt[row, plan.kept - own : plan.kept - 1]
            kept[row, own - 1 : own - 1 + lives] = of_answer[row, :lives]
    none = np.zeros((count, 0), np.uint16)
    bounds = ends.astype(np.int32), begun.astype(np.int32)
    alone = Texts(texts, *bounds, none, np.zeros(count, np.int32))
    return Written(alone, ids, log_p)
