"""Drafters on their own: what n-grams count, what copying finds.

That every drafter keeps the target's law is `verifiers/test_token.py`'s, that greedy
texts are the target's `test_generate.py`'s.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, probs
from specjax.drafters import copying, ngram, random
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Params, Request, Sampling, State
from tests.support import tiny

# a b a b c, then a b c: after (a, b) come a once and c twice.
A, B, C = 0, 1, 2
TEXTS = [[A, B, A, B, C], [A, B, C]]
WEIGHT, ADD = 0.8, 0.5


def fitted(order: int, places: int = 4) -> ngram.NGram:
    return ngram.fit(TEXTS, 4, order, WEIGHT, ADD, places)


def law_after(params: ngram.NGram, context: list[int]) -> np.ndarray:
    row = ngram.find(params, jnp.array([context], jnp.int32).reshape(1, -1))
    logits = probs.table_rows(params.table, row)
    return np.asarray(probs.dense(probs.standardize(logits, Sampling(jnp.ones(1)))))[0]


# Counted by hand. The first token of a text is given, so it is nobody's successor.
UNIGRAM = np.array([1, 3, 2, 0]) + ADD
UNIGRAM = UNIGRAM / UNIGRAM.sum()
AFTER_B = WEIGHT * np.array([1, 0, 2, 0]) / 3 + (1 - WEIGHT) * UNIGRAM
AFTER_AB = WEIGHT * np.array([1, 0, 2, 0]) / 3 + (1 - WEIGHT) * AFTER_B


@pytest.mark.parametrize(
    ("context", "expected"),
    [([], UNIGRAM), ([B], AFTER_B), ([A, B], AFTER_AB), ([C, B], AFTER_B)],
    ids=["no context", "bigram", "trigram", "unseen, so its suffix"],
)
def test_ngram_laws_are_the_interpolated_counts(context, expected):
    np.testing.assert_allclose(law_after(fitted(3), context), expected, rtol=1e-6)


def test_an_unseen_context_is_the_unigram_law():
    np.testing.assert_allclose(law_after(fitted(2), [3]), UNIGRAM, rtol=1e-6)


def test_few_places_keep_the_most_probable_and_still_sum_to_one():
    law = law_after(fitted(2, places=1), [B])
    rest = (1 - WEIGHT) * UNIGRAM
    kept = np.where(np.arange(4) == C, AFTER_B, rest)
    np.testing.assert_allclose(law, kept / kept.sum(), rtol=1e-6)


def test_contexts_are_the_tokens_before_each_next_one():
    found = ngram.contexts_of(jnp.array([[7, 8, 9]]), order=3)
    np.testing.assert_array_equal(found, [[[-1, 7], [7, 8], [8, 9]]])
    last = ngram.last_tokens(jnp.array([[7, 8, 9], [5, 0, 0]]), jnp.array([3, 1]), 2)
    np.testing.assert_array_equal(last, [[8, 9], [-1, 5]])


def test_held_out_loss_is_the_mean_surprise():
    text = [A, B, C]
    params = fitted(2)
    after_a = WEIGHT * np.array([0, 1, 0, 0]) + (1 - WEIGHT) * UNIGRAM
    expected = -np.log([after_a[B], AFTER_B[C]]).mean()
    got = ngram.held_out_loss(params, jnp.array([text]), 2)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def copied(text: list[int], gamma: int = 4, longest: int = 3, context=None):
    tokens = jnp.array([text + [0] * 8])
    length = jnp.array([len(text)])
    state = State(tokens, length, (), (), jnp.array([gamma]), context)
    drafter = copying.build(gamma, longest)
    request = Request(None, None, None, None, None)
    draft, _ = drafter.draft(jax.random.key(0)[None], None, request, state)
    return np.asarray(draft.tokens[0, : draft.num[0]]).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([5, 6, 7, 8, 5, 6], [7, 8, 5, 6]),
        ([5, 6, 7, 9, 6, 8, 5, 6], [7, 9, 6, 8]),
        ([6, 7, 6, 8, 6], [8, 6]),
        ([5, 6, 7], []),
        ([5], []),
        ([4, 4], [4]),
    ],
    ids=["follows", "longest wins", "latest of equals", "none", "start", "overlap"],
)
def test_copying_continues_the_best_match(text, expected):
    assert copied(text) == expected


def test_copying_keeps_to_its_budget_and_to_its_context():
    assert copied([5, 6, 7, 8, 5, 6], gamma=2) == [7, 8]
    context = jnp.array([[9, 6, 3, 2, 6]]), jnp.array([4])
    assert copied([5, 6, 7, 6], context=context) == [3, 2]


def test_a_text_to_copy_from_comes_with_the_prompt():
    """Greedy output stays the target's, and what the source holds is drafted."""
    world = tiny.transformers()
    prompt = make_prompt([[1, 2], [7]])
    request = make_request(jax.random.key(0), prompt, 20, make_sampling(2, 0.0))
    params = Params(world.target_weights)
    expected = generate.autoregressive(world.target, 40)(params, prompt, request)
    source = expected.tokens, expected.length
    parts = Decoder(world.target, copying.build(4))
    run = generate.build(parts, 40)
    got = run(params, prompt._replace(inputs=source), request)
    np.testing.assert_array_equal(got.tokens, expected.tokens)
    without = run(params, prompt, request)
    assert got.counts.accepted.sum() > without.counts.accepted.sum()


def test_gamma_below_what_a_drafter_needs_is_refused():
    with pytest.raises(ValueError, match="gamma"):
        ngram.build(8, 0)
    with pytest.raises(ValueError, match="longest"):
        copying.build(2, 0)


def test_a_rollout_keeps_to_each_rows_budget():
    """Drafting more would be exact still, so only this test can see it."""
    state = State(jnp.zeros((2, 9), int), jnp.array([1, 1]), (), (), jnp.array([1, 3]))
    key = jax.random.split(jax.random.key(0), 2)
    request = Request(key, Sampling(jnp.ones(2)), *[jnp.zeros(2, int)] * 3)
    draft, _ = random.build(8, gamma=4).draft(key, None, request, state)
    np.testing.assert_array_equal(draft.num, [1, 3])
