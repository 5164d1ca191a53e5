"""A smaller model drafts the tree of its own likeliest paths, a new one for each text.

As EAGLE-2 (Li et al. 2024, https://arxiv.org/abs/2406.16858, Sections 4.1 and 4.2): the
W likeliest paths of each length are followed by the W likeliest ids each; of all those
nodes the tree keeps the likeliest, which are never without their parents. Nothing is
drawn, so that siblings are certain, and a rule tries each as such. Likelihoods are
those at temperature 1, whatever texts are sampled at, and may be raised by what is
known of acceptances (`guess`).
Axes: B rows, W width, N nodes at one depth, G nodes of the tree, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, probs, trees
from specjax.drafters import tree
from specjax.drafters.autoregressive import after_prompt, catch_up
from specjax.types import Branches, Draft, Drafter, Model, Request, State


class Level(NamedTuple):
    """Nodes at one depth. tokens, score (how likely it seems that each is kept), parent
    (its place among all candidates) [B, N]."""

    tokens: Array
    score: Array
    parent: Array


def build(
    model: Model,
    nodes: int,
    width: int,
    longest: int,
    floors: Sequence[float] = (),
) -> Drafter:
    """A drafter of at most `nodes` nodes, the likeliest among `width` children of each
    of `width` paths a length, to `longest` tokens: so many calls of the model. floors:
    see `guess`. Raises ValueError for what is below 1, or more nodes than the model's
    caches take back."""
    if min(nodes, width, longest) < 1:
        sizes = f"{nodes} nodes, {width} children, paths of {longest}"
        raise ValueError(f"a tree has at least one of each; got {sizes}")
    width = min(width, model.vocab)
    fed = width * (longest - 1)
    chunks.check_room(model, fed, "draft")
    size = min(nodes, width + fed * width)

    def draft(key: Array, params, request: Request, state: State) -> tuple:
        del key, request
        features, cache = catch_up(model, params, state, 1 + longest)
        batch = len(features)
        features, score = features[:, None], jnp.ones((batch, 1))
        place, sees = jnp.full((batch, 1), trees.ROOT), jnp.zeros((batch, 1, 0), bool)
        levels, count = [], 0
        for depth in range(longest):
            logits = model.readout(params, features)
            level = likeliest(logits, score, place, floors, width)
            levels.append(level)
            if depth + 1 == longest:
                break
            score, best = jax.lax.top_k(level.score, width)
            place, count = count + best, count + level.score.shape[1]
            # A node sees what its parent saw, and itself.
            own = jnp.broadcast_to(jnp.eye(width, dtype=bool), (batch, width, width))
            sees = jnp.take_along_axis(sees, best[..., None] // width, axis=1)
            sees = jnp.concatenate([sees, own], axis=2)
            stands = jnp.repeat(jnp.arange(depth + 1), width)
            stands = jnp.broadcast_to(stands, (batch, stands.size))
            block = jnp.take_along_axis(level.tokens, best, axis=1)
            start, paths = state.length + depth * width, Branches(stands, sees)
            features, cache = model.apply(params, block, start, cache, paths)
        tokens, parent = kept(levels, size)
        num = tree.within(model, state, size, longest)
        return Draft(tokens, num, None, parent), cache

    limits = model.vocab, model.shapes, model.slots
    init = after_prompt(model, fed)
    return Drafter(init, draft, size, *limits, "certain", longest)


def likeliest(
    logits: Array, score: Array, place: Array, floors: Sequence[float], width: int
) -> Level:
    """The `width` likeliest children each [B, N W] of nodes with logits [B, N, V]."""
    z = probs.expand_logits(logits)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    q, tokens = probs.largest(jax.nn.softmax(z, axis=-1), width)
    kept = guess(shares(q), floors)
    first = jnp.ones_like(kept[..., :1])
    tried = jnp.cumprod(jnp.concatenate([first, 1 - kept[..., :-1]], -1), axis=-1)
    score = score[..., None] * tried * kept
    every = tokens, score, jnp.broadcast_to(place[..., None], tokens.shape)
    return Level(*(x.reshape(len(x), -1) for x in every))


def shares(q: Array) -> Array:
    """Of siblings with probabilities q [..., K], each one's given that it is none of
    those before it."""
    before = jnp.cumsum(q, axis=-1) - q
    return jnp.clip(q / jnp.maximum(1 - before, 1e-6), 0.0, 1.0)


def guess(share: Array, floors: Sequence[float]) -> Array:
    """With what probability each of K siblings is kept where those before it were not.
    share [..., K]: `shares`. floors: for each, what is accepted however improbable it
    is; 0 for those that it does not name. (A draft that is sure is mostly right; how
    much it is where it is unsure must be measured: `measure.siblings`.)"""
    count = share.shape[-1]
    least = jnp.array([*floors, *[0.0] * count][:count], share.dtype)
    return least + (1 - least) * share


def kept(levels: list[Level], size: int) -> tuple[Array, Array]:
    """tokens, parent [B, G] of the likeliest candidates, in that order. No child is
    likelier than its parent, which comes first among equals."""
    tokens, score, parent = (
        jnp.concatenate(x, axis=1) for x in zip(*levels, strict=True)
    )
    best = jax.lax.top_k(score, size)[1]
    rows = jnp.arange(len(best))[:, None]
    rank = jnp.zeros(score.shape, jnp.int32).at[rows, best].set(jnp.arange(size))
    above = parent[rows, best]
    above = jnp.where(above == trees.ROOT, above, rank[rows, above])
    return tokens[rows, best].astype(jnp.int32), above.astype(jnp.int32)
