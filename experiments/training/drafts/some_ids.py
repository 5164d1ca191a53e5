"""Drafts that say some of the ids (`specjax.models.reduced`), and how they learn.

Axes: B texts, L tokens, K ids that the draft says, V those of the target, N likeliest
ids that are kept of the target's law, C = N + 1 classes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.training.drafts import losses, written
from experiments.training.drafts.written import Written
from specjax.models import llama


class Lesson(NamedTuple):
    """One batch. whole: `Written`, but for ids [B, L - 1, N] of the draft's, K where
    it has none. embedding [V, E]: the target's, which is read and not learnt."""

    whole: Written
    embedding: Array


def frequent(parts: Sequence[Written], count: int, vocab: int) -> np.ndarray:
    """The ids [count] that the target would say most often, by the sum of its laws
    after what it answered, in ascending order."""
    mass = np.zeros(vocab)
    for texts, ids, log_p in parts:
        at = np.arange(ids.shape[1])
        inside = (at >= texts.begun[:, None] - 1) & (at < texts.length[:, None] - 1)
        share = np.exp(log_p[..., :-1].astype(np.float32)) * inside[..., None]
        np.add.at(mass, ids.ravel(), share.ravel())
    return np.sort(np.argsort(-mass, kind="stable")[:count])


def among(part: Written, ids: np.ndarray, vocab: int) -> Written:
    """The same with the draft's names of what the target finds likeliest."""
    place = np.full(vocab, ids.size, np.uint16)
    place[ids] = np.arange(ids.size)
    return part._replace(ids=place[part.ids])


def pruned(
    config: llama.Config, layers: Sequence[int], params: Any, ids: np.ndarray
) -> Any:
    """The weights that a draft begins with: some layers of its target, of whose
    feed-forward the units are kept that weigh most, its last norm, and the rows of its
    table. config: the draft's. params: the target's."""
    own = {"norm": params["norm"], "embedding": jnp.asarray(params["embedding"])[ids]}
    for number, layer in enumerate(layers):
        whole = params[f"layers_{layer}"]
        mlp = {name: part["kernel"] for name, part in whole["mlp"].items()}
        sides = (jnp.linalg.norm(mlp[name], axis=0) for name in ("gate", "in"))
        weight = np.prod([*sides, jnp.linalg.norm(mlp["out"], axis=1)], axis=0)
        kept = np.sort(np.argsort(-weight)[: config.mlp_dim])
        cut = {name: {"kernel": mlp[name][:, kept]} for name in ("gate", "in")}
        cut["out"] = {"kernel": mlp["out"][kept]}
        own[f"layers_{number}"] = {**whole, "mlp": cut}
    return jax.tree.map(jnp.array, own)  # a copy: training gives its buffers away


def logits(config: llama.Config, params: Any, lesson: Lesson) -> Array:
    """[B, L - 1, K], after each token of the texts but the last."""
    tokens = lesson.whole.texts.tokens[:, :-1]
    wide = config._replace(vocab=lesson.embedding.shape[0])
    model, start = llama.build(wide), jnp.zeros(len(tokens), jnp.int32)
    reads = {**params, "embedding": lesson.embedding}
    features, _ = model.apply(reads, tokens, start, None)
    return model.readout({"embedding": params["embedding"]}, features)


def compared(config: llama.Config, params: Any, lesson: Lesson) -> tuple[Array, Array]:
    """log p and log q [B, L - 1, C] of the classes; q is 0 of an id that it lacks."""
    log_q = jax.nn.log_softmax(logits(config, params, lesson))
    kept = jnp.take_along_axis(
        log_q, lesson.whole.ids, axis=-1, mode="fill", fill_value=-jnp.inf
    )
    others = jnp.maximum(1 - jnp.exp(kept).sum(-1, keepdims=True), losses.LEAST)
    log_q = jnp.concatenate([kept, jnp.log(others)], axis=-1)
    return lesson.whole.log_p, log_q


def distillation(name: str, config: llama.Config) -> Callable:
    """A loss of `losses.LOSSES`, mean a token: (params, Lesson) -> scalar. What the
    draft cannot say adds nothing to learn from."""
    divergence = losses.LOSSES[name]

    def loss(params: Any, lesson: Lesson) -> Array:
        log_p, log_q = compared(config, params, lesson)
        each = divergence(log_p, jnp.where(log_q > -jnp.inf, log_q, log_p))
        weight = written.live(lesson.whole.texts)
        return jnp.sum(each * weight) / weight.sum()

    return loss


def accepted(
    config: llama.Config, params: Any, lessons: Sequence[Lesson]
) -> dict[str, float]:
    """alpha of answers, greedy and sampled ones apart. lessons: their even rows are
    greedy. "alpha_t0": the share of argmaxes that are the target's; "alpha_t1": the
    mean of sum min(p, q)."""

    @jax.jit
    def of(params: Any, lesson: Lesson) -> Array:
        texts = lesson.whole.texts
        best = jnp.argmax(logits(config, params, lesson), -1)
        log_p, log_q = compared(config, params, lesson)
        after = jnp.arange(1, texts.tokens.shape[1])
        here = written.live(texts) & (after >= texts.begun[:, None])
        greedy = here & (jnp.arange(len(here)) % 2 == 0)[:, None]
        sampled = here & ~greedy
        same = best == lesson.whole.ids[..., 0]
        alpha = losses.alpha(log_p, log_q)
        sums = (same * greedy, greedy, alpha * sampled, sampled)
        return jnp.stack([x.sum() for x in sums])

    same, greedy, alpha, sampled = sum(of(params, lesson) for lesson in lessons)
    return {"alpha_t0": float(same / greedy), "alpha_t1": float(alpha / sampled)}
