"""A smaller model grows a tree token by token, always where the next seems most useful.

A place for the next token is the first child of a node, or one more sibling. The
probability that a rule reaches a place and accepts the token drawn there is estimated
from the draft's own laws (`best_first.guess`). So a draft that is sure grows a chain
and one that is not sure grows a bush, as in Xiong et al. (2024),
https://arxiv.org/abs/2410.11744. Siblings are drawn without replacement. The result is
exact because a place is chosen before its token is known, by laws and tokens that stay
in the tree. A tree of the best among drawn tokens would follow another law than its
nodes carry. Axes: B rows, G nodes, R = G + 1 rows of the target's call, K children, V
vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, probs, trees
from specjax.drafters import tree
from specjax.drafters.autoregressive import catch_up, init_fn
from specjax.drafters.best_first import guess, shares
from specjax.types import (
    Branches,
    Draft,
    Drafter,
    Law,
    Model,
    Request,
    Sampling,
    State,
)


class Growth(NamedTuple):
    """A tree and the places where it may grow; its rows are those of the target's call.

    Attributes:
      tokens, parent: [B, G].
      depth: [B, R].
      sees: [B, R, R], which rows are on each row's path.
      reach: [B, R], the probability that the place of a row's next child is reached, -1
        where there may be none.
      nth: [B, R], the rank of that child.
      children: [B, R, K], each row's children in the order drawn.
      kept, hoped: [B, R, K], the probability that each is accepted where those before
        it were not, once its token is known and before that.
    """

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
    """Returns a drafter of at most `nodes` nodes, by as many calls of the model.

    Args:
      model: the draft model.
      nodes: the size of the tree.
      floors: one for each of the K children that a node may have, see
        `best_first.guess`.
      longest: the most tokens of a path.

    Raises:
      ValueError: for no nodes, floors that are not probabilities, or more nodes than
        the model's caches can take back.
    """
    if nodes < 1 or not floors or not all(0 <= x <= 1 for x in floors):
        raise ValueError(
            f"{nodes} nodes, acceptances {tuple(floors)}: name at least one node, and"
            " for each of its children a probability from 0 to 1"
        )
    chunks.check_room(model, nodes, "draft")
    longest = min(longest or nodes, nodes)
    most = sum(len(floors) ** depth for depth in range(1, longest + 1))
    nodes = min(nodes, most)

    def draft(key: Array, params: Any, request: Request, state: State) -> tuple:
        def law_after(features: Any) -> Law:
            logits = model.readout(params, features)  # of one token, [B, 1, ...]
            return probs.standardize(logits, request.sampling)

        def grow(growth: Growth, law: Law, node: Array | int) -> Growth:
            """Adds node `node`, now that the law after row `node` is known."""
            slot = jnp.asarray(node)[None]
            children = tree.children(key, law, slot, len(floors))[:, 0]
            growth = add_children(
                growth, node, law=law, children=children, floors=floors
            )
            return add_node(growth, node, longest)

        def draft_node(carried: tuple, node: Array) -> tuple:
            growth, cache = carried
            token = jax.lax.dynamic_slice_in_dim(growth.tokens, node - 1, 1, axis=1)
            start, paths = state.length + node - 1, node_branches(growth, node - 1)
            features, cache = model.apply(params, token, start, cache, paths)
            law = law_after(features)
            return (grow(growth, law, node), cache), probs.per_row(law)

        features, cache = catch_up(model, params, state, 1 + longest)
        law = law_after(jax.tree.map(lambda x: x[:, None], features))
        batch = state.length.size
        growth = grow(initial_growth(batch, nodes, len(floors)), law, 0)
        grown: Any = jax.lax.scan(draft_node, (growth, cache), jnp.arange(1, nodes))
        (growth, cache), later = grown
        rows = jnp.arange(batch)[:, None]
        after = probs.take_fn(growth.parent + 1, rows)

        def put_behind_parents(first: Array, later: Array) -> Array:
            """Returns, for each node, the entry of its parent: [B, G], from `first` for
            a child of the root, else from `later`.

            first [B, 1] and later [G - 1, B, 1] are known after each row.
            """
            known = jnp.concatenate([first[None], later])[:, :, 0]
            return after(jnp.moveaxis(known, 0, 1))

        laws = jax.tree.map(put_behind_parents, probs.per_row(law), later)
        num = tree.node_budget(model, state, nodes, longest)
        laws = probs.with_shared(laws, law.logits)
        return Draft(growth.tokens, num, laws, growth.parent), cache

    return Drafter(
        init_fn(model),
        draft,
        nodes,
        vocab=model.vocab,
        shapes=model.shapes,
        slots=model.slots,
        siblings="without",
        depth=longest,
        observe=model.observe,
        needs_features=model.observe is not None,
    )


def initial_growth(batch: int, nodes: int, most: int) -> Growth:
    """Returns the growth of a tree with only row 0, whose law is not known yet."""
    shape, each = (batch, nodes), (batch, nodes + 1, most)
    parent = jnp.full(shape, trees.ROOT, jnp.int32)
    first = jnp.arange(nodes + 1) == 0
    sees = jnp.broadcast_to(jnp.eye(nodes + 1, dtype=bool), (batch, *[nodes + 1] * 2))
    zero = jnp.zeros(each[:2], jnp.int32)
    reach = jnp.broadcast_to(jnp.where(first, 1.0, -1.0), zero.shape)
    return Growth(
        tokens=jnp.zeros(shape, jnp.int32),
        parent=parent,
        depth=zero,
        sees=sees,
        reach=reach,
        nth=zero,
        children=jnp.zeros(each, jnp.int32),
        kept=jnp.zeros(each),
        hoped=jnp.zeros(each),
    )


def add_children(
    growth: Growth,
    row: Array | int,
    *,
    law: Law,
    children: Array,
    floors: Sequence[float],
) -> Growth:
    """Records the law [B, 1] after a row, and the children [B, K] that may follow
    it."""
    # q at temperature 1, and sum q(x)^2 by the normalizer of q^2.
    ones = jnp.ones(len(children))
    q = probs.standardize(law.logits, Sampling(ones))
    of_square = probs.standardize(law.logits, Sampling(ones / 2))
    of_child = probs.at(q, children)
    # Before a child is known its share is the mean share of what is left.
    left = 1 - (jnp.cumsum(of_child, axis=1) - of_child)
    squares = jnp.cumsum(of_child**2, axis=1) - of_child**2
    squares = jnp.exp(of_square.lse - 2 * q.lse) - squares
    mean = jnp.clip(squares / jnp.maximum(left, 1e-6) ** 2, 0.0, 1.0)
    return growth._replace(
        children=growth.children.at[:, row].set(children),
        kept=growth.kept.at[:, row].set(guess(shares(of_child), floors)),
        hoped=growth.hoped.at[:, row].set(guess(mean, floors)),
    )


def add_node(growth: Growth, node: Array | int, longest: int) -> Growth:
    """Adds node `node` at the place that is most likely to be reached and accepted."""
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


def node_branches(growth: Growth, node: Array) -> Branches:
    """Returns the branches of a call on node `node` alone, the last of a tree of G.

    The tree has the same size for every node: it consists of the last tokens of the
    text, which are a chain, and the nodes up to this one.
    """
    size = growth.tokens.shape[1]
    text, index = size - 1 - node, jnp.arange(size)
    row = jnp.maximum(index - text, 0) + 1
    depth = jnp.where(index < text, index, text + growth.depth[:, row] - 1)
    mine = jax.lax.dynamic_slice_in_dim(growth.sees, node + 1, 1, axis=1)
    return Branches(depth, jnp.where(index < text, True, mine[:, :, row]))
