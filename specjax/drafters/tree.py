"""A smaller model drafts a tree, with one call of M_q for each level.

The children of a node are drawn without replacement: they are the ids with the largest
log q + g for Gumbel variables g, in that order (Kool et al. 2019,
https://arxiv.org/abs/1903.06059). Where the law keeps fewer ids than there are children
to draw, as at temperature 0, the ids with the next largest logits follow. Axes: B rows,
T nodes of a call, M nodes fed so far, G nodes, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import chunks, keys, probs, trees
from specjax.drafters.autoregressive import catch_up, init_fn
from specjax.types import Branches, Draft, Drafter, Law, Model, Request, State

WITH, WITHOUT = "with", "without"


class Level(NamedTuple):
    """The nodes at one depth.

    Attributes:
      above: [n], the index of each node's parent among the rows that have laws.
      rank: [n], which child of that parent it is, of at most `most`.
      nodes, laws: the indices in the whole tree of these nodes, and of the rows with
        laws.
      fed: [T], which of these nodes have children.
      tree: how those follow what was fed before, for one row of the batch.
    """

    above: np.ndarray
    rank: np.ndarray
    most: int
    nodes: np.ndarray
    laws: np.ndarray
    fed: np.ndarray
    tree: Branches


def build(model: Model, parent: Sequence[int], siblings: str = WITHOUT) -> Drafter:
    """Returns a drafter of the tree with these parents, see `specjax.trees`.

    Parents must be in level order. siblings: drawn "without" replacement or "with" it.
    Raises ValueError for parents that are no tree or not in level order, or more nodes
    than the model's caches can take back.
    """
    trees.check(parent)
    if siblings not in (WITH, WITHOUT):
        raise ValueError(f"siblings are drawn 'with' or 'without'; got {siblings!r}")
    chunks.check_room(model, len(parent), "draft")
    levels, size = build_levels(parent), len(parent)
    above = jnp.array(parent, jnp.int32)

    def draft(key: Array, params: Any, request: Request, state: State) -> tuple:
        features, cache = catch_up(model, params, state, 1 + len(levels))
        features = jax.tree.map(lambda x: x[:, None], features)
        batch, fed, tokens, laws = state.length.size, 0, [], []
        for level in levels:
            law = probs.standardize(model.readout(params, features), request.sampling)
            own = jax.tree.map(lambda x, i=level.above: x[:, i], probs.per_row(law))
            laws.append(own)
            names = slots(level, siblings)
            if siblings == WITH:
                tokens.append(
                    draw_with_replacement(
                        key, probs.with_shared(own, law.logits), names
                    )
                )
            else:
                drawn = children(key, law, names, level.most)
                tokens.append(drawn[:, level.above, level.rank])
            if level.fed.size:
                tree = jax.tree.map(lambda x: jnp.repeat(x, batch, 0), level.tree)
                block, start = tokens[-1][:, level.fed], state.length + fed
                features, cache = model.apply(params, block, start, cache, tree)
                fed += level.fed.size
        joined = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *laws)
        num = node_budget(model, state, size, len(levels))
        tokens = jnp.concatenate(tokens, axis=1)
        joined = probs.with_shared(joined, law.logits)
        return Draft(tokens, num, joined, jnp.broadcast_to(above, tokens.shape)), cache

    return Drafter(
        init_fn(model),
        draft,
        size,
        vocab=model.vocab,
        shapes=model.shapes,
        slots=model.slots,
        siblings=siblings,
        depth=len(levels),
        observe=model.observe,
        needs_features=model.observe is not None,
    )


def slots(level: Level, siblings: str) -> np.ndarray:
    """Returns the slots that name the noise of a level's draws; no two draws of a tree
    share one.

    Drawn with replacement each node is a draw, whose slot is the node; without it each
    law is, whose slot is the row of the target's call that it follows.
    """
    return level.nodes if siblings == WITH else level.laws + 1


def draw_with_replacement(key: Array, law: Law, slots: Array | np.ndarray) -> Array:
    """Draws from each of the laws [B, N] by the noise of its slot [N]: [B, N] ids."""
    return probs.race(law, keys.gumbels(key, slots, probs.vocab_size(law.logits)))


def children(key: Array, law: Law, slots: Array | np.ndarray, most: int) -> Array:
    """Draws `most` ids without replacement from each of the laws [B, T].

    The noise is that of its slot [T]. The result is [B, T, most] ids in the order
    drawn.
    """
    noise = keys.gumbels(key, slots, probs.vocab_size(law.logits))
    return probs.sample_distinct(law, noise, most)


def node_budget(model: Model, state: State, nodes: int, longest: int) -> Array:
    """Returns how many of a tree's nodes to draft, [B].

    It is the row's budget, but 0 where paths of `longest` tokens exceed the positions
    that the model knows.
    """
    num = jnp.minimum(state.budget, nodes)
    if model.slots is None:
        return num
    return jnp.where(state.length + longest - 1 <= model.slots, num, 0)


def build_levels(parent: Sequence[int]) -> list[Level]:
    """Returns the levels of a tree; raises ValueError unless nodes are in order."""
    depth = trees.depths(parent)
    if (np.diff(depth) < 0).any():
        raise ValueError(f"{tuple(parent)} is not in levels: put shorter paths first")
    paths: list[set[int]] = []  # for each node: itself and its ancestors
    for node, above in enumerate(parent):
        paths.append({node} | (set() if above == trees.ROOT else paths[above]))
    levels, laws, fed = [], [trees.ROOT], []  # laws: the nodes with rows of laws
    for each in range(1, depth.max() + 1):
        nodes = np.flatnonzero(depth == each)
        above = [parent[int(node)] for node in nodes]
        rank = [above[:i].count(one) for i, one in enumerate(above)]
        inner = [i for i, node in enumerate(nodes) if node in parent]
        own = [int(nodes[i]) for i in inner]
        fed += own
        place = np.array([laws.index(one) for one in above])

        seen = [[node in paths[one] for node in fed] for one in own]
        sees: Any = np.array(seen, bool)  # known to a compiler
        stands: Any = np.array([len(paths[node]) - 1 for node in fed], np.int32)
        tree = Branches(stands[None], sees.reshape(1, len(own), len(fed)))
        levels.append(
            Level(
                above=place,
                rank=np.array(rank),
                most=max(rank) + 1,
                nodes=nodes,
                laws=np.array(laws),
                fed=np.array(inner, int),
                tree=tree,
            )
        )
        laws = own
    return levels
