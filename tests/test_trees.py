"""Trees: which drafted token follows which, and what a step refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, probs, trees
from specjax.drafters import tree
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder, build_step, score_as_needed
from specjax.topologies import kary, likeliest, paths
from specjax.types import Draft, Params
from specjax.verifiers import recursive, recursive_replaced, token
from tests.support import tiny

FORK = (-1, -1, 0, 0, 2)


def make_draft(*parents, num=None) -> Draft:
    parent = jnp.array(parents, jnp.int32)
    num = jnp.array(num or [parent.shape[1]] * len(parent))
    return Draft(jnp.arange(parent.size).reshape(parent.shape), num, None, parent)


def test_the_next_child_is_live_and_in_order():
    draft = make_draft(FORK, FORK, num=[5, 3])
    live = jnp.arange(5) < draft.num[:, None]

    def find(at: int, after: int) -> list[int]:
        both = jnp.full(2, at), jnp.full(2, after)
        return trees.next_child(draft.parent, live, *both).tolist()

    assert find(-1, -1) == [0, 0] and find(-1, 0) == [1, 1] and find(-1, 1) == [5, 5]
    assert find(0, 0) == [2, 2] and find(0, 2) == [3, 5]
    assert trees.is_leaf(draft, jnp.array([2, 2])).tolist() == [False, True]
    cut = make_draft(FORK, FORK, num=[5, 4])  # by a budget, before the child of node 2
    assert trees.is_leaf(cut, jnp.array([2, 2])).tolist() == [False, True]


def test_a_tree_is_scored_whole_and_as_one_where_a_policy_has_widths():
    """Chains are scored with the smallest width that holds them; the first nodes of a
    tree are not such a chain."""
    asked = []

    def apply(params, block, start, cache, *tree):
        asked.append((block.shape[1], [each.sees.shape for each in tree]))
        return jnp.zeros((*block.shape, 3)), cache

    model = tiny.markov(3)._replace(apply=apply)
    draft, prompt = make_draft(FORK, num=[2]), make_prompt([[0, 1]])
    request = make_request(jax.random.key(0), prompt, 8, make_sampling(1, 1.0))
    params = Params(jnp.zeros((3, 3)))
    state = generate.prefill(Decoder(model), params, prompt, 16)
    whole = model, params.target, request, state, draft
    asked.clear()
    law, *_ = score_as_needed(*whole, read=probs.standardize, widths=(2, 4))
    assert asked == [(6, [(1, 6, 6)])] and law.logits.shape == (1, 6, 3)


def test_a_step_refuses_trees_that_it_cannot_keep():
    model = tiny.transformers().draft
    plain, other = (tree.build(model, FORK, siblings=x) for x in ("without", "with"))
    with pytest.raises(ValueError, match="the rule verifies chains only"):
        build_step(model, plain, token.verifier)
    with pytest.raises(ValueError, match="recursive_replaced for siblings"):
        build_step(model, other, recursive.verifier)
    with pytest.raises(ValueError, match="draft chains"):
        build_step(model._replace(keep=None), plain, recursive.verifier)
    build_step(model, other, recursive_replaced.verifier)


def test_topologies():
    assert kary.build(1)(3) == (-1, 0, 1)
    assert kary.build(2)(6) == (-1, -1, 0, 0, 1, 1)
    assert kary.build(3)(4) == (-1, -1, -1, 0)
    assert paths.build(2)(5) == (-1, -1, 0, 1, 2)
    assert likeliest.build([0.9])(4) == (-1, 0, 1, 2)
    # Paths of at most one token: there are no more nodes than siblings.
    assert likeliest.build([0.5, 0.4], longest=1)(4) == (-1, -1)


def test_no_tree_keeps_more_than_the_likeliest():
    """It is compared with all trees of as many nodes, and with the values of Sequoia's
    recursion, c(n) = 1 + max sum a_i c(n_i), for a = .6, .15, .07, .04, .02."""
    shares, accept, untried = (0.6, 0.15, 0.07, 0.04, 0.02), [], 1.0
    for share in shares:
        accept.append(share / untried)
        untried -= share
    best = likeliest.build(accept)
    for nodes in range(1, 6):
        every = [
            likeliest.expected_tokens(accept, parent) for parent in all_trees(nodes)
        ]
        assert likeliest.expected_tokens(accept, best(nodes)) == pytest.approx(
            max(every)
        )
    wanted = {2: 1.60, 4: 2.18, 8: 2.64, 16: 3.08, 32: 3.50, 64: 3.89}
    got = {n: likeliest.expected_tokens(accept, best(n - 1)) for n in wanted}
    assert got == pytest.approx(wanted, abs=5e-3)
    assert all((np.diff(trees.depths(best(n - 1))) >= 0).all() for n in wanted)


def all_trees(nodes: int) -> list[tuple[int, ...]]:
    """Returns every list of parents of `nodes` nodes."""
    each = [()]
    for node in range(nodes):
        each = [(*parent, above) for parent in each for above in range(-1, node)]
    return each


def test_kept_nodes_are_gathered_and_the_rest_stay():
    path = jnp.array([[0, 2, 4, 3, 4], [1, 1, 2, 3, 4]])
    verdict = recursive.Verdict(jnp.array([3, 1]), None, None, path)
    assert trees.kept_nodes(verdict, 3).tolist() == [[0, 2, 4], [1, 1, 2]]
    assert trees.order_by_path(verdict).tolist() == [[0, 2, 4, 1, 3], [1, 0, 2, 3, 4]]
    assert trees.last_node(path, verdict.num_accepted).tolist() == [4, 1]
    assert trees.last_node(path, jnp.zeros(2, int)).tolist() == [-1, -1]
    rows = jnp.arange(12).reshape(2, 6)
    assert trees.rows_on_path(rows, verdict)[0, :4].tolist() == [0, 1, 3, 5]
    shape = jax.eval_shape(lambda: trees.rows_on_path(jnp.zeros((2, 6, 7)), verdict))
    assert shape.shape == (2, 6, 7)
