"""Drafters on their own: what n-grams count, what copying finds."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import probs
from specjax.drafters import autoregressive, copying, ngram, random
from specjax.drafters.rollout import independent
from specjax.inputs import make_prompt
from specjax.step import Decoder
from specjax.types import Params, Request, Sampling, State
from tests.support import tiny
from tests.support.drafted import along

# a b a b c, then a b c: after (a, b) come a once and c twice.
A, B, C = 0, 1, 2
TEXTS = [[A, B, A, B, C], [A, B, C]]
WEIGHT, ADD = 0.8, 0.5


def fitted(order: int, places: int = 4) -> ngram.NGram:
    return ngram.fit(TEXTS, 4, order, WEIGHT, ADD, places)


@jax.jit
def laws_after(params: ngram.NGram, contexts) -> jax.Array:
    """Of contexts [N, k], padded on the left with -1: [N, V]."""
    logits = probs.table_rows(params.table, ngram.find(params, contexts))
    sampling = Sampling(jnp.ones(contexts.shape[0]))
    return probs.dense(probs.standardize(logits, sampling))


# Counted by hand. The first token of a text is given, so it is nobody's successor.
UNIGRAM = np.array([1, 3, 2, 0]) + ADD
UNIGRAM = UNIGRAM / UNIGRAM.sum()
AFTER_B = WEIGHT * np.array([1, 0, 2, 0]) / 3 + (1 - WEIGHT) * UNIGRAM
AFTER_AB = WEIGHT * np.array([1, 0, 2, 0]) / 3 + (1 - WEIGHT) * AFTER_B


def test_ngram_laws_are_the_interpolated_counts():
    laws = {
        (-1, -1): UNIGRAM,
        (-1, B): AFTER_B,
        (A, B): AFTER_AB,
        (C, B): AFTER_B,  # unseen, so its suffix
        (A, 3): UNIGRAM,  # of which no suffix was seen either
    }
    got = laws_after(fitted(3), jnp.array([*laws]))
    np.testing.assert_allclose(got, [*laws.values()], rtol=1e-6)


def test_few_places_keep_the_most_probable_and_still_sum_to_one():
    (law,) = laws_after(fitted(2, places=1), jnp.array([[B]]))
    rest = (1 - WEIGHT) * UNIGRAM
    kept = np.where(np.arange(4) == C, AFTER_B, rest)
    np.testing.assert_allclose(law, kept / kept.sum(), rtol=1e-6)


def copied(texts: list[list[int]], budget: list[int], context=None) -> list[list[int]]:
    tokens = np.array([text + [0] * (12 - len(text)) for text in texts])
    length = np.array([len(text) for text in texts])
    state = State(tokens, length, (), (), np.array(budget), context)
    key = jax.random.split(jax.random.key(0), len(texts))
    draft = copying.build(4).draft(key, None, Request(*[None] * 5), state)[0]
    rows = zip(draft.tokens.tolist(), draft.num.tolist(), strict=True)
    return [row[:num] for row, num in rows]


def test_what_is_copied_has_a_law_that_is_sure_of_it():
    """And the rest is the model's, by its own law."""
    model, gamma = tiny.transformers(), 3
    drawn = copying.first(independent, gamma, 2)
    drafter = autoregressive.build(model.draft, gamma, drawn)
    text = [[5, 6, 7, 8, 5, 6], [5, 6, 7, 8, 9, 6]]  # the second matches one token
    params = Params(model.target_weights, model.draft_weights)
    decoder = Decoder(model.target, drafter)
    draft = along(decoder, params, make_prompt(text), 0)[0].draft
    assert draft.tokens[0].tolist() == [7, 8, 5] and draft.num.tolist() == [3, 3]
    laws = np.asarray(probs.dense(draft.law))
    np.testing.assert_array_equal(laws[0], np.eye(29)[[7, 8, 5]])
    assert (laws[1].max(-1) < 1).all()


def test_copying_continues_the_best_match():
    cases = [
        ([5, 6, 7, 8, 5, 6], 4, [7, 8, 5, 6]),
        ([5, 6, 7, 8, 5, 6], 2, [7, 8]),  # as its budget allows
        ([5, 6, 7, 9, 6, 8, 5, 6], 4, [7, 9, 6, 8]),  # the longest match wins
        ([6, 7, 6, 8, 6], 4, [8, 6]),  # the latest of equals
        ([5, 6, 7], 4, []),
        ([5], 4, []),
        ([4, 4], 4, [4]),  # they overlap
    ]
    texts, budgets, expected = zip(*cases, strict=True)
    assert copied(texts, budgets) == [*expected]


def test_copying_looks_in_its_context():
    """And there too for no more tokens than the text has."""
    context = np.array([[9, 6, 3, 2, 6], [6, 6, 3, 6, 2]]), np.array([4, 5])
    assert copied([[5, 6, 7, 6], [6]], [4, 4], context) == [[3, 2], [2]]


def test_a_rollout_keeps_to_each_rows_budget():
    """Drafting more would be exact still, so only this test can see it."""
    state = State(jnp.zeros((2, 9), int), jnp.array([1, 1]), (), (), jnp.array([1, 3]))
    key = jax.random.split(jax.random.key(0), 2)
    request = Request(key, Sampling(jnp.ones(2)), *[jnp.zeros(2, int)] * 3)
    draft, _ = jax.jit(random.build(8, gamma=4).draft)(key, None, request, state)
    np.testing.assert_array_equal(draft.num, [1, 3])
