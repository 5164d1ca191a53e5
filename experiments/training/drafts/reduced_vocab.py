"""Drafts with a reduced vocabulary (`specjax.models.reduced_vocab`), and their training
on texts of a pretrained target.

Axes: B texts, L tokens, K ids of the draft, V those of the target, N most likely ids
that are kept of the target's law, C = N + 1 classes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.training import pipeline
from experiments.training.pipeline import Data, Stage
from specjax.checkpoints import Pretrained, reduced_vocab
from specjax.models import families, llama
from specjax.models.families import Config
from specjax.models.reduced_vocab import Reduction, find_embedding, with_embedding
from specjax.training import forward, loop, losses, written
from specjax.training.written import Comparison, Written


class Lesson(NamedTuple):
    """A batch.

    Attributes:
        whole: `Written`, but with ids [B, L - 1, N] of the draft, K where it has none.
        embedding: [V, E], the target's, which is read and not trained.
    """

    whole: Written
    embedding: Array


def most_frequent_ids(
    parts: Sequence[Written], count: int, *, vocab: int, more: np.ndarray | None = None
) -> np.ndarray:
    """Returns the ids [count] that the target would emit most often, in ascending
    order.

    They have the largest sums of its laws after its answers' tokens.

    Args:
        more: [V], how often ids occur in other texts, which have the same total weight.
    """
    mass = np.zeros(vocab)
    for texts, ids, log_p in parts:
        at = np.arange(ids.shape[1])
        inside = (at >= texts.begun[:, None] - 1) & (at < texts.length[:, None] - 1)
        share = np.exp(log_p[..., :-1].astype(np.float32)) * inside[..., None]
        np.add.at(mass, ids.ravel(), share.ravel())
    if more is not None:
        mass = mass / mass.sum() + more / more.sum()
    return np.sort(np.argsort(-mass, kind="stable")[:count])


def relabel_ids(part: Written, ids: np.ndarray, vocab: int) -> Written:
    """Returns the same batch with the target's most likely ids replaced by the draft's
    own numbers for them.
    """
    place = np.full(vocab, ids.size, np.uint16)
    place[ids] = np.arange(ids.size)
    return part._replace(ids=place[part.ids])


def prune(
    config: Config, layers: Sequence[int], *, params: Any, ids: np.ndarray
) -> Any:
    """Returns the initial weights of a draft, cut from those of a model.

    They are some layers of the target's decoder, with those units of the feed-forward
    that have the largest weights, its last norm and positions, and the rows of its
    table.

    Args:
        config: the draft's.
        params: the target's.
    """
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


def compare(config: Config, params: Any, lesson: Lesson) -> Comparison:
    """Returns the comparison over the draft's classes; q is 0 for an id that the draft
    lacks.
    """
    texts, wide = lesson.whole.texts, lesson.embedding.shape[0]
    reads = with_embedding(params, lesson.embedding)
    features = forward.decoder_features(
        config._replace(vocab=wide), reads, texts.tokens[:, :-1], texts.inputs
    )
    z = families.build(config).readout(params, features)
    ids = lesson.whole.ids
    log_q = losses.reduced_classes(z, ids)
    return Comparison(log_q, jnp.argmax(z, -1) == ids[..., 0], lesson.whole)


def train(
    target: Pretrained,
    *,
    held_out: Sequence[Written],
    parts: Mapping[str, Sequence[Written]],
    runs: Path,
    path: Path,
    recipe: dict,
    more: np.ndarray | None = None,
) -> None:
    """Trains a draft; writes it to `path`, and its recipe beside it.

    Args:
        held_out: batches of the target's texts.
        parts: other batches, by the names of the recipe's stages. The ids are the most
            frequent ones of the first part, together with those of `more` as for
            `most_frequent_ids`; the last part holds all batches.
    """
    stages = [
        it._replace(config=stage_config(it, target)) for it in pipeline.stages(recipe)
    ]
    config, whole = stages[-1].config, target.model.vocab
    ids = most_frequent_ids(
        next(iter(parts.values())), config.vocab, vocab=whole, more=more
    )
    embedding = find_embedding(target.params)

    def with_draft_ids(batches: Sequence[Written]) -> list[Written]:
        return [relabel_ids(it, ids, whole) for it in batches]

    def lesson(part: Written, index: np.ndarray) -> Lesson:
        return Lesson(part.rows(index), embedding)

    def held_out_lessons(step: slice) -> list[Lesson]:
        return [
            lesson(it, np.arange(len(it.ids))[step]) for it in with_draft_ids(held_out)
        ]

    fixed = {"held_out": held_out_lessons(slice(None))}

    def data(learnt: Written, stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Lesson:
            size, rng = stage.recipe.batch, np.random.default_rng(seed)
            return lesson(learnt, rng.integers(len(learnt.ids), size=size))

        loss = partial(written.distillation, stage.loss, compare=compare)
        return Data(batch, fixed, loss, run_identity(target, learnt, ids))

    joined = {name: written.join(with_draft_ids(part)) for name, part in parts.items()}
    texts = {name: partial(data, part) for name, part in joined.items()}
    begun = prune(config, recipe["first_layers"], params=target.params, ids=ids)
    params = pipeline.run(runs, stages, texts, first=begun)
    # The even rows are greedy.
    apart = {f"t{t}": held_out_lessons(slice(t, None, 2)) for t in (0, 1)}
    alphas = written.rates(config, params, held_out=apart, compare=compare)
    reduced_vocab.save(path, Reduction(config, params, ids))
    *_, every = parts.values()
    spans = (it.texts.length - it.texts.begun for it in (*held_out, *every))
    tokens = sum(int(span.sum()) for span in spans)
    print(f"{tokens} tokens of the target's: {alphas}")
    made = path.with_suffix(".json")
    pipeline.save(made, runs, recipe, tokens=tokens, held_out=alphas)


def stage_config(stage: Stage, target: Pretrained) -> Config:
    """Returns the sizes of a stage's draft, with the values that a Llama has in common
    with its target.
    """
    config = stage.config
    if not isinstance(config, llama.Config):
        return config
    local = tuple(config.local)
    return config._replace(rotation=target.config.rotation, local=local)


def run_identity(
    target: Pretrained, learnt: Written, ids: np.ndarray
) -> dict[str, Any]:
    """Returns the JSON that identifies a run, in addition to its recipe."""
    digests = {"target": target.params, "answers": learnt.texts._asdict(), "ids": ids}
    return {
        name: loop.digest(jax.tree.map(np.asarray, x)) for name, x in digests.items()
    }
