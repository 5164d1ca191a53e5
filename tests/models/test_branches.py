"""A call whose tokens are a tree, for every family: its slots apart from its positions.

Axes: B rows, T tokens of the tree.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import chunks
from specjax.types import Branches
from tests.support.model_cases import CASES, IDS, TOKENS, ZERO, B, call, close, fresh
from tests.support.model_cases import T as WIDTH
from tests.support.tiny_t5 import quick_jit

by_family = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

# Each row has a tree of its own. The last has a path longer than windows are, whose
# root lies in a later slot than its position.
PARENTS = np.array([[-1, -1, 0, 0], [-1, 0, 0, 2], [-1, -1, 1, 2]])
NODES = jnp.array([[4, 9, 17, 2], [11, 6, 20, 13], [3, 22, 7, 15]])
START = jnp.array([WIDTH, 3, 4])


def paths() -> list[list[list[int]]]:
    """Of each row and node, the nodes from a root to it."""

    def path(parents, node):
        return [] if node < 0 else [*path(parents, parents[node]), node]

    return [[path(row, node) for node in range(len(row))] for row in PARENTS]


def branches() -> Branches:
    depth = np.array([[len(path) - 1 for path in row] for row in paths()])
    sees = np.zeros((*PARENTS.shape, PARENTS.shape[1]), bool)
    for row, of_row in enumerate(paths()):
        for node, path in enumerate(of_row):
            sees[row, node, path] = True
    return Branches(jnp.int32(depth), jnp.array(sees))


def as_chains(case, cache, start=START) -> np.ndarray:
    """Logits after each node, of the chain that its path is."""
    logits = []
    for node in range(PARENTS.shape[1]):
        of_rows = [row[node] for row in paths()]
        chain = np.zeros((B, max(map(len, of_rows))), int)
        for row, path in enumerate(of_rows):
            chain[row, : len(path)] = NODES[row, np.array(path)]
        z = np.asarray(call(case, jnp.array(chain), start, cache)[0])
        logits.append([z[row, len(path) - 1] for row, path in enumerate(of_rows)])
    return np.stack(logits, axis=1)


def run(case, tree: Branches, start, cache):
    world = case.world()

    @quick_jit
    def logits(params, start, cache, tree):
        features, cache = world.target.apply(params, NODES, start, cache, tree)
        return world.target.readout(params, features), cache

    return logits(world.target_weights, start, cache, tree)


@by_family
def test_each_path_of_a_tree_gives_the_logits_of_the_chain_that_it_is(case):
    """Rows stand at different slots, which an earlier call has written already."""
    _, cache = call(case, TOKENS, ZERO, fresh(case))
    tree, expected = branches(), as_chains(case, cache)
    logits, _ = run(case, tree, START, cache)
    close(logits, expected)
    # The check notices what is seen besides, and where tokens stand.
    chain = np.tri(len(NODES[0]), dtype=bool)
    in_slots = tree._replace(depth=jnp.zeros_like(tree.depth) + jnp.arange(4))
    for wrong in (tree._replace(sees=tree.sees | chain), in_slots):
        other, _ = run(case, wrong, START, cache)
        off = np.abs(np.asarray(other)[..., :IDS] - expected[..., :IDS])
        assert (off.max(-1) > 1e-2).any(axis=1).all()


@by_family
def test_a_tree_that_is_a_chain_is_a_chain(case):
    _, cache = call(case, TOKENS, ZERO, fresh(case))
    steps = jnp.broadcast_to(jnp.arange(4), NODES.shape)
    sees = jnp.broadcast_to(np.tri(4, dtype=bool), (B, 4, 4))
    plain = call(case, NODES, START, cache)
    jax.tree.map(close, run(case, Branches(steps, sees), START, cache), plain)


@by_family
def test_a_tree_without_a_cache_sees_itself_alone(case):
    cache = fresh(case)._replace(own=None) if case.encodes else None
    expected = as_chains(case, fresh(case), ZERO)
    close(run(case, branches(), ZERO, cache)[0], expected)


@by_family
def test_a_tree_of_more_than_a_portion_is_refused(case):
    model = chunks.in_chunks(case.world().target, 3)
    with pytest.raises(ValueError, match="a tree of 4 tokens is one call: draft at"):
        model.apply(case.world().target_weights, NODES, ZERO, fresh(case), branches())
