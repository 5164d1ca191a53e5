"""A call whose tokens are a tree: its slots apart from its positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import chunks
from specjax.types import Branches
from tests.support.model_cases import IDS, MODULES, TOKENS, ZERO, B, close
from tests.support.model_cases import T as WIDTH

by_family = pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)

# Each row has a tree of its own: of each node, those from a root to it. The last has a
# path longer than windows are, whose root lies in a later slot than its position.
PATHS = [
    [[0], [1], [0, 2], [0, 3]],
    [[0], [0, 1], [0, 2], [0, 2, 3]],
    [[0], [1], [1, 2], [1, 2, 3]],
]
NODES = np.array([[4, 9, 17, 2], [11, 6, 20, 13], [3, 22, 7, 15]], np.int32)
START = np.array([WIDTH, 3, 4], np.int32)


def branches() -> Branches:
    depth = [[len(path) - 1 for path in row] for row in PATHS]
    sees = np.zeros((B, 4, 4), bool)
    for row, node in np.ndindex(B, 4):
        sees[row, node, PATHS[row][node]] = True
    return Branches(jnp.int32(depth), jnp.array(sees))


def as_chains(case, cache, start=START) -> np.ndarray:
    """Logits after each node, of the chain that its path is."""
    logits = []
    for node in range(4):
        chain, last = np.zeros((B, 3), np.int32), [len(row[node]) - 1 for row in PATHS]
        for row, of_row in enumerate(PATHS):
            chain[row, : last[row] + 1] = NODES[row, np.array(of_row[node])]
        each = np.asarray(case.call(chain, start, cache)[0])
        logits.append(each[np.arange(B), last])
    return np.stack(logits, axis=1)


@functools.cache
def program(case):
    model = case.world().target

    @jax.jit
    def logits(params, start, cache, tree):
        features, cache = model.apply(params, NODES, start, cache, tree)
        return model.readout(params, features), cache

    return functools.partial(logits, case.world().target_weights)


@by_family
def test_each_path_of_a_tree_gives_the_logits_of_the_chain_that_it_is(case):
    """Rows stand at different slots, which an earlier call has written already."""
    _, cache = case.call(TOKENS, ZERO, case.fresh())
    tree, expected = branches(), as_chains(case, cache)
    logits, _ = program(case)(START, cache, tree)
    close(logits, expected)
    # The check notices what is seen besides, and where tokens stand.
    chain = np.tri(len(NODES[0]), dtype=bool)
    in_slots = tree._replace(depth=jnp.zeros_like(tree.depth) + jnp.arange(4))
    for wrong in (tree._replace(sees=tree.sees | chain), in_slots):
        other, _ = program(case)(START, cache, wrong)
        off = np.abs(np.asarray(other)[..., :IDS] - expected[..., :IDS])
        assert (off.max(-1) > 1e-2).any(axis=1).all()


@by_family
def test_a_tree_without_a_cache_sees_itself_alone(case):
    cache = case.fresh()._replace(own=None) if case.encodes else None
    expected = as_chains(case, case.fresh(), ZERO)
    close(program(case)(ZERO, cache, branches())[0], expected)


@by_family
def test_a_tree_of_more_than_a_portion_is_refused(case):
    model = chunks.in_chunks(case.world().target, 3)
    with pytest.raises(ValueError, match="a tree of 4 tokens is one call: draft at"):
        model.apply(case.world().target_weights, NODES, ZERO, case.fresh(), branches())
