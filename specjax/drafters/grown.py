"""A smaller model grows a tree token by token, where the next seems likeliest kept.

A place for a next token is the first child of a node, or one more sibling. How likely a
rule is to come to a place and to accept what is drawn there is guessed from the draft's
own laws (`best_first.guess`), so that a draft that is sure grows a chain and one that
is not a bush; Xiong et al. (2024), https://arxiv.org/abs/2410.11744, grow so. Siblings
are drawn without replacement. It is exact because a place is chosen before its token is
known, by laws and by tokens that stay: a tree of the best among drawn tokens would be
drawn from another law than its nodes carry.
Axes: B rows, G nodes, R = G + 1 rows of the target's call, K children, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, probs, trees
from specjax.drafters import tree
from specjax.drafters.autoregressive import after_prompt, catch_up
from specjax.drafters.best_first import guess, shares
from specjax.types import Branches, Draft, Drafter, Law, Model, Request, State


class Growth(NamedTuple):
    """A tree, and where it may grow; rows are those of the target's call. tokens,
    parent [B, G]. depth [B, R]; sees [B, R, R]: which rows are on each one's path.
    reach [B, R]: how likely the place of a row's next child is come to, -1 where none
    may be. nth [B, R]: which child that is. children [B, R, K]: of each row, as they
    are drawn; kept, hoped [B, R, K]: how likely each is accepted where those before it
    were not, when its token is known and before."""

    tokens: Array
    parent: Array
    depth: Array
    sees: Array
    reach: Array
    nth: Array
    children: Array
    kept: Array
    hoped: Array


def build(
    model: Model,
    nodes: int,
    floors: Sequence[float],
    longest: int | None = None,
) -> Drafter:
    """A drafter of at most so many nodes, by as many calls of the model. floors: of
    each of the K children that a node may have, see `best_first.guess`. longest: tokens
    of a path at most. Raises ValueError for no nodes, floors that are no probabilities,
    or more nodes than the model's caches take back."""
    if nodes < 1 or not floors or not all(0 <= x <= 1 for x in floors):
        raise ValueError(
            f"{nodes} nodes, acceptances {tuple(floors)}: name at least one node, and"
            " for each of its children a probability from 0 to 1"
        )
    chunks.check_room(model, nodes, "draft")
    longest = min(longest or nodes, nodes)
    most = sum(len(floors) ** depth for depth in range(1, longest + 1))
    nodes = min(nodes, most)

    def draft(key: Array, params, request: Request, state: State) -> tuple:
        def law_after(features: Array) -> Law:
            logits = model.readout(params, features[:, None])
            return probs.standardize(logits, request.sampling)

        def grow(growth: Growth, law: Law, node: Array | int) -> Growth:
            """With node `node`, where the law after row `node` is known now."""
            slot = jnp.asarray(node)[None]
            children = tree.children(key, law, slot, len(floors))[:, 0]
            known = open_at(growth, node, law, children, floors)
            return added(known, node, longest)

        def further(carried: tuple, node: Array) -> tuple:
            growth, cache = carried
            token = jax.lax.dynamic_slice_in_dim(growth.tokens, node - 1, 1, axis=1)
            start, paths = state.length + node - 1, fed(growth, node - 1)
            features, cache = model.apply(params, token, start, cache, paths)
            law = law_after(features[:, 0])
            return (grow(growth, law, node), cache), probs.per_row(law)

        features, cache = catch_up(model, params, state, 1 + longest)
        law = law_after(features)
        growth = grow(begun(len(features), nodes, len(floors)), law, 0)
        carried, later = jax.lax.scan(further, (growth, cache), jnp.arange(1, nodes))
        growth, cache = carried
        rows = jnp.arange(len(features))[:, None]
        after = probs.take_fn(growth.parent + 1, rows)

        def of_nodes(first: Array, later: Array) -> Array:
            """What was known after each row, [B, 1] and [G - 1, B, 1], of each node
            after its parent: [B, G]."""
            known = jnp.concatenate([first[None], later])[:, :, 0]
            return after(jnp.moveaxis(known, 0, 1))

        laws = jax.tree.map(of_nodes, probs.per_row(law), later)
        num = tree.within(model, state, nodes, longest)
        laws = probs.with_shared(laws, law.logits)
        return Draft(growth.tokens, num, laws, growth.parent), cache

    limits = model.vocab, model.shapes, model.slots
    return Drafter(after_prompt(model), draft, nodes, *limits, "without", longest)


def begun(batch: int, nodes: int, most: int) -> Growth:
    """Row 0 alone, whose law is not known yet."""
    shape, each = (batch, nodes), (batch, nodes + 1, most)
    parent = jnp.full(shape, trees.ROOT, jnp.int32)
    first = jnp.arange(nodes + 1) == 0
    sees = jnp.broadcast_to(jnp.eye(nodes + 1, dtype=bool), (batch, *[nodes + 1] * 2))
    zero = jnp.zeros(each[:2], jnp.int32)
    reach = jnp.broadcast_to(jnp.where(first, 1.0, -1.0), zero.shape)
    ids, chance = jnp.zeros(each, jnp.int32), jnp.zeros(each)
    tokens = jnp.zeros(shape, jnp.int32)
    return Growth(tokens, parent, zero, sees, reach, zero, ids, chance, chance)


def open_at(
    growth: Growth, row: Array | int, law: Law, children: Array, floors: Sequence[float]
) -> Growth:
    """With the law [B, 1] after a row, and the children [B, K] that it may have."""
    z = probs.expand_logits(law.logits)[:, 0]
    q = jax.nn.softmax(jnp.where(jnp.isnan(z), -jnp.inf, z), axis=-1)
    of_child = jnp.take_along_axis(q, children, axis=1)
    # Before it is known, a child's share is that of what is left, in the mean.
    left = 1 - (jnp.cumsum(of_child, axis=1) - of_child)
    squares = jnp.cumsum(of_child**2, axis=1) - of_child**2
    squares = jnp.sum(q**2, axis=1, keepdims=True) - squares
    mean = jnp.clip(squares / jnp.maximum(left, 1e-6) ** 2, 0.0, 1.0)
    return growth._replace(
        children=growth.children.at[:, row].set(children),
        kept=growth.kept.at[:, row].set(guess(shares(of_child), floors)),
        hoped=growth.hoped.at[:, row].set(guess(mean, floors)),
    )


def added(growth: Growth, node: Array | int, longest: int) -> Growth:
    """With node `node` at the place that is likeliest to be come to and accepted."""
    rows, most = jnp.arange(len(growth.nth)), growth.children.shape[-1]
    nth = jnp.minimum(growth.nth, most - 1)[..., None]
    hoped = jnp.take_along_axis(growth.hoped, nth, axis=2)[..., 0]
    value = jnp.where(growth.reach < 0, -1.0, growth.reach * hoped)
    at = rows, jnp.argmax(value, axis=1)
    nth, reach, depth = growth.nth[at], growth.reach[at], growth.depth[at] + 1
    kept = growth.kept[(*at, nth)]
    beside = jnp.where(nth + 1 < most, reach * (1 - kept), -1.0)
    below = jnp.where(depth < longest, reach * kept, -1.0)
    row = jnp.arange(growth.nth.shape[1]) == node + 1
    return growth._replace(
        tokens=growth.tokens.at[:, node].set(growth.children[(*at, nth)]),
        parent=growth.parent.at[:, node].set(at[1] - 1),
        depth=growth.depth.at[:, node + 1].set(depth),
        sees=growth.sees.at[:, node + 1].set(growth.sees[at] | row),
        reach=growth.reach.at[at].set(beside).at[:, node + 1].set(below),
        nth=growth.nth.at[at].add(1),
    )


def fed(growth: Growth, node: Array) -> Branches:
    """How node `node` follows those before it. Its tree is told as one of G tokens for
    any node: the last of the text, which are a chain, and the nodes up to it."""
    size = growth.tokens.shape[1]
    text, index = size - 1 - node, jnp.arange(size)
    row = jnp.maximum(index - text, 0) + 1
    depth = jnp.where(index < text, index, text + growth.depth[:, row] - 1)
    mine = jax.lax.dynamic_slice_in_dim(growth.sees, node + 1, 1, axis=1)
    return Branches(depth, jnp.where(index < text, True, mine[:, :, row]))
