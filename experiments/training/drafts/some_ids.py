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

from experiments.training import forward
from experiments.training.drafts import losses, written
from experiments.training.drafts.written import Written
from specjax.models import reduced
from specjax.models.reduced import Config


class Lesson(NamedTuple):
    """One batch. whole: `Written`, but for ids [B, L - 1, N] of the draft's, K where
    it has none. embedding [V, E]: the target's, which is read and not learnt."""

    whole: Written
    embedding: Array


def frequent(
    parts: Sequence[Written], count: int, vocab: int, more: np.ndarray | None = None
) -> np.ndarray:
    """The ids [count] that the target would say most often, by the sum of its laws
    after what it answered, in ascending order. more [V]: how often they are in other
    texts, which weigh as much."""
    mass = np.zeros(vocab)
    for texts, ids, log_p in parts:
        at = np.arange(ids.shape[1])
        inside = (at >= texts.begun[:, None] - 1) & (at < texts.length[:, None] - 1)
        share = np.exp(log_p[..., :-1].astype(np.float32)) * inside[..., None]
        np.add.at(mass, ids.ravel(), share.ravel())
    if more is not None:
        mass = mass / mass.sum() + more / more.sum()
    return np.sort(np.argsort(-mass, kind="stable")[:count])


def among(part: Written, ids: np.ndarray, vocab: int) -> Written:
    """The same with the draft's names of what the target finds likeliest."""
    place = np.full(vocab, ids.size, np.uint16)
    place[ids] = np.arange(ids.size)
    return part._replace(ids=place[part.ids])


def pruned(config: Config, layers: Sequence[int], params: Any, ids: np.ndarray) -> Any:
    """The weights that a draft begins with: some layers of its target's decoder, of
    whose feed-forward the units are kept that weigh most, its last norm and positions,
    and the rows of its table. config: the draft's. params: the target's."""
    target = params.get("decoder", params)
    own = {name: target[name] for name in ("norm", "positions") if name in target}
    own["embedding"] = jnp.asarray(target["embedding"])[ids]
    for number, layer in enumerate(layers):
        whole = target[f"layers_{layer}"]
        into = {name: part for name, part in whole["mlp"].items() if name != "out"}
        out = whole["mlp"]["out"]
        sides = (jnp.linalg.norm(part["kernel"], axis=0) for part in into.values())
        weight = np.prod([*sides, jnp.linalg.norm(out["kernel"], axis=1)], axis=0)
        kept = np.sort(np.argsort(-weight)[: config.mlp_dim])
        cut = jax.tree.map(lambda leaf, kept=kept: leaf[..., kept], into)
        cut["out"] = {**out, "kernel": out["kernel"][kept]}
        own[f"layers_{number}"] = {**whole, "mlp": cut}
    own = {"decoder": own} if "decoder" in params else own
    return jax.tree.map(jnp.array, own)  # a copy: training gives its buffers away


def logits(config: Config, params: Any, lesson: Lesson) -> Array:
    """[B, L - 1, K], after each token of the texts but the last."""
    texts, wide = lesson.whole.texts, lesson.embedding.shape[0]
    reads = reduced.with_table(params, lesson.embedding)
    asked = reads, texts.tokens[:, :-1], texts.inputs
    features = forward.of_decoder(config._replace(vocab=wide), *asked)
    return forward.FAMILIES[type(config)].build(config).readout(params, features)


def compared(config: Config, params: Any, lesson: Lesson) -> tuple[Array, Array]:
    """log p and log q [B, L - 1, C] of the classes; q is 0 of an id that it lacks."""
    log_q = jax.nn.log_softmax(logits(config, params, lesson))
    kept = jnp.take_along_axis(
        log_q, lesson.whole.ids, axis=-1, mode="fill", fill_value=-jnp.inf
    )
    others = jnp.maximum(1 - jnp.exp(kept).sum(-1, keepdims=True), losses.LEAST)
    log_q = jnp.concatenate([kept, jnp.log(others)], axis=-1)
    return lesson.whole.log_p, log_q


def distillation(name: str, config: Config) -> Callable:
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
    config: Config, params: Any, lessons: Sequence[Lesson]
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
