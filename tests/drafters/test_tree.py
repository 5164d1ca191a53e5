"""Trees that a model drafts have the right laws, draws of siblings, and caches.

Axes: B rows, G nodes, V vocabulary.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, probs, trees
from specjax.drafters import tree
from specjax.exactness.goodness import g_test
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Law, Sampling
from specjax.verifiers import recursive
from tests.support import tiny
from tests.support.drafted import SLOTS, Drafted, build_whole_text_logits, draft_twice
from tests.support.drafter_cases import BY_NAME

PARENT = (-1, -1, -1, 0, 0, 1, 3, 3)
PROMPT = make_prompt([[1, 2, 3, 4, 5], [7], [3, 4, 3, 4]])
WRITTEN = 12, 6, 20, 2  # as many tokens as the longest path has, and one
BATCH, HEAT = 3, Sampling(jnp.array([1.0, 0.0, 1.0]))


@functools.cache
def drafts(siblings: str) -> list[Drafted]:
    """Returns two drafts, in which the second row is greedy."""
    world = tiny.transformers()
    drafter = tree.build(world.draft, PARENT, siblings=siblings)
    rule = recursive.build(with_replacement=siblings == "with")
    decoder = Decoder(world.target, drafter, rule)
    return draft_twice(
        decoder, BY_NAME["tree"].params(world), PROMPT, written=WRITTEN, sampling=HEAT
    )


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("siblings", ["without", "with"])
def test_each_node_carries_the_drafts_own_law_after_its_path(siblings, later):
    """The reference is the model's law for the whole text and the path, without a
    cache."""
    world, now = tiny.transformers(), drafts(siblings)[later]
    texts = []
    for row, node in itertools.product(range(BATCH), range(len(PARENT))):
        path, above = [], PARENT[node]
        while above >= 0:
            path.insert(0, int(now.draft.tokens[row, above]))
            above = PARENT[above]
        texts.append(now.texts()[row] + path)
    prompt = make_prompt(texts)
    logits = build_whole_text_logits(world.draft)(world.draft_weights, prompt.tokens)
    last = jnp.arange(len(texts)), prompt.length - 1
    rows = Sampling(jnp.repeat(HEAT.temperature, len(PARENT)))
    wanted = probs.dense(probs.standardize(logits[last], rows))
    got = probs.dense(now.draft.law).reshape(wanted.shape)
    np.testing.assert_allclose(got, wanted, atol=2e-5)
    assert np.abs(np.diff(got, axis=0)).max() > 0.1  # laws that differ by path


def test_siblings_differ_and_a_greedy_tree_has_the_largest_logits():
    draft = drafts("without")[1].draft
    for node, above in enumerate(PARENT):
        best = np.argsort(-draft.law.logits[1, node], kind="stable")
        assert draft.tokens[1, node] == best[PARENT[:node].count(above)]
    for above in set(PARENT):
        nodes = [i for i, one in enumerate(PARENT) if one == above]
        taken = np.asarray(draft.tokens)[:, nodes]
        assert all(len(set(row)) == len(nodes) for row in taken.tolist())


def make_law(p) -> Law:
    with np.errstate(divide="ignore"):
        logits = jnp.log(jnp.asarray(p, jnp.float32))[None, None]
    return probs.standardize(logits, make_sampling(1, 1.0))


def pair_counts(law: Law, siblings: str, draws: int = 2**16) -> np.ndarray:
    keys = jax.vmap(jax.random.key)(jnp.arange(draws))
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf, draws, 0), law)

    @jax.jit
    def draw_nodes():
        if siblings == "without":
            return tree.children(keys, many, np.arange(1), 2)[:, 0]
        both = jax.tree.map(lambda leaf: jnp.repeat(leaf, 2, 1), many)
        return tree.draw_with_replacement(keys, both, np.arange(2))

    counts = np.zeros((4, 4))
    np.add.at(counts, tuple(np.asarray(draw_nodes()).T), 1)
    return counts


def test_pairs_of_siblings_follow_their_law():
    """Without replacement the law is q(x) q(y) / (1 - q(x)), with replacement q(x)
    q(y); each sampler follows its own law only."""
    q = np.array([0.5, 0.3, 0.2, 0.0])
    left = np.where(np.eye(4) > 0, 0, q[None])
    without = q[:, None] * left / left.sum(1, keepdims=True)
    both = {"without": without, "with": np.outer(q, q)}
    for siblings, law in both.items():
        counts = pair_counts(make_law(q), siblings)
        assert g_test(counts, law) > 1e-3
        (other,) = (x for name, x in both.items() if name != siblings)
        assert g_test(counts, other) < 1e-9


def test_more_children_than_the_law_keeps_are_the_next_likely():
    logits = jnp.array([[[2.0, 1.0, 0.5, -jnp.inf]]])
    sampling = Sampling(jnp.ones(1), jnp.ones(1, jnp.int32))  # top-k 1
    law = probs.standardize(logits, sampling)
    keys = jax.vmap(jax.random.key)(jnp.arange(1))
    assert tree.children(keys, law, np.arange(1), 3)[0, 0].tolist() == [0, 1, 2]
    gumbel = jnp.array([[[-30.0, 0.0, 0.0, 0.0]]])  # what is kept comes first, however
    assert probs.sample_distinct(law, gumbel, 6)[0, 0].tolist() == [0, 1, 2, 3, 3, 3]


def test_a_budget_and_positions_cut_a_tree():
    world = tiny.transformers()
    short = world.draft._replace(slots=6)
    drafter = tree.build(short, PARENT)
    decoder = Decoder(world.target, drafter, recursive.verifier)
    params = BY_NAME["tree"].params(world)
    request = make_request(jax.random.key(0), PROMPT, 24, make_sampling(BATCH, 1.0))

    @jax.jit
    def draft():
        state = generate.prefill(decoder, params, PROMPT, SLOTS)
        state = state._replace(budget=jnp.array([8, 3, 8]))
        return drafter.draft(request.key, params.draft, request, state)[0]

    draft = draft()
    assert draft.num.tolist() == [0, 3, 8]  # 5 and 2 more do not fit, of 4 they do


def test_levels_name_rows_and_ranks():
    first, second, third = tree.build_levels(PARENT)
    assert first.rank.tolist() == [0, 1, 2] and first.fed.tolist() == [0, 1]
    assert second.above.tolist() == [0, 0, 1] and second.fed.tolist() == [0]
    assert third.above.tolist() == [0, 0] and not third.fed.size
    assert second.tree.depth.tolist() == [[0, 0, 1]]
    assert second.tree.sees.tolist() == [[[True, False, True]]]
    assert trees.depths(PARENT).max() == 3


@pytest.mark.parametrize("siblings", ["without", "with"])
def test_no_two_draws_of_a_tree_have_the_same_slot(siblings):
    """Where levels become narrower and wider, slots are counted by the rows of the
    tree, and not by the number of tokens fed so far."""
    for parent in [PARENT, (-1, -1, 0, 0, 2, 4), (-1, -1, 0, 0, 1, 1, 2), (-1, -1, 1)]:
        levels = tree.build_levels(parent)
        slots = [slot for x in levels for slot in tree.slots(x, siblings).tolist()]
        draws = len(parent) if siblings == "with" else len(set(parent))
        assert len(slots) == len(set(slots)) == draws
