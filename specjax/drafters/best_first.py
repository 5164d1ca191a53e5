"""A smaller model drafts the tree of its own most probable paths, a new one each step.

This is EAGLE-2's tree (Li et al. 2024, https://arxiv.org/abs/2406.16858, Sections 4.1
and 4.2): the W most probable paths of each length are extended by their W most probable
ids each, and the tree keeps the most probable of all these nodes, which always include
their parents. Nothing is drawn, so siblings are certain, and a rule verifies them as
such. The probabilities are those at temperature 1, whatever the temperature of the
text, and may be raised by measured acceptances (`guess`). Axes: B rows, W width, N
nodes at one depth, G nodes of the tree, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, probs, trees
from specjax.drafters import tree
from specjax.drafters.autoregressive import catch_up, init_fn
from specjax.types import Branches, Draft, Drafter, Model, Request, State


class Level(NamedTuple):
    """The nodes at one depth.

    tokens: [B, N].
    score: [B, N], the estimated probability that each node is kept.
    parent: [B, N], its parent's index among all candidates.
    """

    tokens: Array
    score: Array
    parent: Array


def build(
    model: Model,
    nodes: int,
    *,
    width: int,
    longest: int,
    floors: Sequence[float] = (),
) -> Drafter:
    """Returns a drafter of at most `nodes` nodes, by `longest` calls of the model.

    Args:
      model: the draft model.
      nodes: the size of the tree.
      width: how many paths of each length are extended, and by how many children each.
      longest: the most tokens of a path.
      floors: see `guess`.

    Raises:
      ValueError: for a number below 1, a floor that is no probability, or more nodes
        than the model's caches can take back.
    """
    if min(nodes, width, longest) < 1:
        raise ValueError(
            f"a tree has at least one of each; got {nodes} nodes, {width} children,"
            f" paths of {longest}"
        )
    if not all(0 <= floor <= 1 for floor in floors):
        raise ValueError(f"floors are probabilities from 0 to 1; got {floors}")
    width = min(width, model.vocab)
    fed = width * (longest - 1)
    chunks.check_room(model, fed, "draft")
    size = min(nodes, width + fed * width)

    def draft(key: Array, params: Any, request: Request, state: State) -> tuple:
        del key, request
        features, cache = catch_up(model, params, state, 1 + longest)
        batch = state.length.size
        features = jax.tree.map(lambda x: x[:, None], features)
        score = jnp.ones((batch, 1))
        place, sees = jnp.full((batch, 1), trees.ROOT), jnp.zeros((batch, 1, 0), bool)
        levels, count = [], 0
        for depth in range(longest):
            logits = model.readout(params, features)
            level = most_likely_children(logits, score, place, floors, width)
            levels.append(level)
            if depth + 1 == longest:
                break
            score, best = jax.lax.top_k(level.score, width)
            place, count = count + best, count + level.score.shape[1]
            # A node sees what its parent sees, and itself.
            own = jnp.broadcast_to(jnp.eye(width, dtype=bool), (batch, width, width))
            sees = jnp.take_along_axis(sees, best[..., None] // width, axis=1)
            sees = jnp.concatenate([sees, own], axis=2)
            stands = jnp.repeat(jnp.arange(depth + 1), width)
            stands = jnp.broadcast_to(stands, (batch, stands.size))
            block = jnp.take_along_axis(level.tokens, best, axis=1)
            start, paths = state.length + depth * width, Branches(stands, sees)
            features, cache = model.apply(params, block, start, cache, paths)
        tokens, parent = select_nodes(levels, size)
        num = tree.node_budget(model, state, size, longest)
        return Draft(tokens, num, None, parent), cache

    return Drafter(
        init_fn(model, fed),
        draft,
        size,
        vocab=model.vocab,
        shapes=model.shapes,
        slots=model.slots,
        siblings="certain",
        depth=longest,
        observe=model.observe,
        needs_features=model.observe is not None,
    )


def most_likely_children(
    logits: Array, score: Array, place: Array, floors: Sequence[float], width: int
) -> Level:
    """Returns the `width` most probable children of each node, [B, N W].

    logits: [B, N, V].
    """
    z = probs.expand_logits(logits)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    q, tokens = probs.largest(jax.nn.softmax(z, axis=-1), width)
    accept = guess(shares(q), floors)
    first = jnp.ones_like(accept[..., :1])
    tried = jnp.cumprod(jnp.concatenate([first, 1 - accept[..., :-1]], -1), axis=-1)
    score = score[..., None] * tried * accept
    every = tokens, score, jnp.broadcast_to(place[..., None], tokens.shape)
    return Level(*(x.reshape(len(x), -1) for x in every))


def shares(q: Array) -> Array:
    """Returns each sibling's probability, given that the token is none of those before
    it.

    q: [..., K], the siblings' probabilities.
    """
    before = jnp.cumsum(q, axis=-1) - q
    return jnp.clip(q / jnp.maximum(1 - before, 1e-6), 0.0, 1.0)


def guess(share: Array, floors: Sequence[float]) -> Array:
    """Returns the estimated acceptance of each of K siblings, given that those before
    are rejected.

    A draft that is sure is mostly right. How often it is right where it is not sure
    must be measured (`measure.siblings`).

    Args:
      share: [..., K], see `shares`.
      floors: for each sibling, the share of acceptances that does not depend on its
        probability; 0 for siblings without one.
    """
    count = share.shape[-1]
    least = jnp.array([*floors, *[0.0] * count][:count], share.dtype)
    return least + (1 - least) * share


def select_nodes(levels: list[Level], size: int) -> tuple[Array, Array]:
    """Returns tokens and parents [B, G] of the most probable candidates, the most
    probable first.

    No child is more probable than its parent, and of equals the parent comes first.
    """
    tokens, score, parent = (
        jnp.concatenate(x, axis=1) for x in zip(*levels, strict=True)
    )
    best = jax.lax.top_k(score, size)[1]
    rows = jnp.arange(len(best))[:, None]
    rank = jnp.zeros(score.shape, jnp.int32).at[rows, best].set(jnp.arange(size))
    above = parent[rows, best]
    above = jnp.where(above == trees.ROOT, above, rank[rows, above])
    return tokens[rows, best].astype(jnp.int32), above.astype(jnp.int32)
