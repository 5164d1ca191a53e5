"""Drafts with a reduced vocabulary (`specjax.models.reduced_vocab`), and how they learn
from what a target wrote that was fetched.

Axes: B texts, L tokens, K ids that the draft says, V those of the target, N likeliest
ids that are kept of the target's law, C = N + 1 classes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.training import forward, loop, pipeline
from experiments.training.drafts import losses, written
from experiments.training.drafts.written import Compared, Written
from experiments.training.pipeline import Data, Stage
from specjax.checkpoints import Pretrained, reduced_vocab
from specjax.models import families, llama
from specjax.models.families import Config
from specjax.models.reduced_vocab import Reduction, table_of, with_table


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


def compare(config: Config, params: Any, lesson: Lesson) -> Compared:
    """Of the draft's classes; q is 0 of an id that it lacks."""
    texts, wide = lesson.whole.texts, lesson.embedding.shape[0]
    reads = with_table(params, lesson.embedding)
    asked = reads, texts.tokens[:, :-1], texts.inputs
    features = forward.of_decoder(config._replace(vocab=wide), *asked)
    z = families.build(config).readout(params, features)
    log_q, ids = jax.nn.log_softmax(z), lesson.whole.ids
    kept = jnp.take_along_axis(log_q, ids, axis=-1, mode="fill", fill_value=-jnp.inf)
    others = jnp.maximum(1 - jnp.exp(kept).sum(-1, keepdims=True), losses.LEAST)
    log_q = jnp.concatenate([kept, jnp.log(others)], axis=-1)
    return Compared(log_q, jnp.argmax(z, -1) == ids[..., 0], lesson.whole)


def train(
    target: Pretrained,
    held_out: Sequence[Written],
    parts: Mapping[str, Sequence[Written]],
    runs: Path,
    path: Path,
    recipe: dict,
    more: np.ndarray | None = None,
) -> None:
    """Writes the draft to `path`, and its recipe beside it. held_out: batches of what
    the target wrote. parts: others, by what the recipe's stages call them; the ids are
    the most frequent ones of the first part, with those of `more` as `frequent` has it,
    and the last holds all."""
    stages = [it._replace(config=fitted(it, target)) for it in pipeline.stages(recipe)]
    config, whole = stages[-1].config, target.model.vocab
    ids = frequent(next(iter(parts.values())), config.vocab, whole, more)
    embedding = table_of(target.params)

    def named(batches: Sequence[Written]) -> list[Written]:
        return [among(it, ids, whole) for it in batches]

    def lesson(part: Written, index: np.ndarray) -> Lesson:
        return Lesson(part.rows(index), embedding)

    def each(step: slice) -> list[Lesson]:
        return [lesson(it, np.arange(len(it.ids))[step]) for it in named(held_out)]

    fixed = {"held_out": each(slice(None))}

    def data(learnt: Written, stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Lesson:
            size, rng = stage.recipe.batch, np.random.default_rng(seed)
            return lesson(learnt, rng.integers(len(learnt.ids), size=size))

        loss = partial(written.distillation, stage.loss, compare=compare)
        return Data(batch, fixed, loss, about(target, learnt, ids))

    joined = {name: written.join(named(part)) for name, part in parts.items()}
    texts = {name: partial(data, part) for name, part in joined.items()}
    begun = pruned(config, recipe["first_layers"], target.params, ids)
    params = pipeline.run(runs, stages, texts, begun)
    # The even rows are greedy.
    apart = {f"t{t}": each(slice(t, None, 2)) for t in (0, 1)}
    alphas = written.rates(config, params, apart, compare)
    reduced_vocab.save(path, Reduction(config, params, ids))
    *_, every = parts.values()
    spans = (it.texts.length - it.texts.begun for it in (*held_out, *every))
    tokens = sum(int(span.sum()) for span in spans)
    print(f"{tokens} tokens of the target's: {alphas}")
    made = path.with_suffix(".json")
    pipeline.save(made, runs, recipe, tokens=tokens, held_out=alphas)


def fitted(stage: Stage, target: Pretrained) -> Config:
    """The sizes of a stage's draft, with what a Llama has of its target."""
    config = stage.config
    if not isinstance(config, llama.Config):
        return config
    local = tuple(config.local)
    return config._replace(rotation=target.config.rotation, local=local)


def about(target: Pretrained, learnt: Written, ids: np.ndarray) -> dict[str, Any]:
    """JSON, what tells runs apart besides their recipe."""
    digests = {"target": target.params, "answers": learnt.texts._asdict(), "ids": ids}
    return {
        name: loop.digest(jax.tree.map(np.asarray, x)) for name, x in digests.items()
    }
