"""Lookahead decoding guesses, remembers and drafts the right tokens, and saves
calls."""

import functools
import itertools

import jax.numpy as jnp
import numpy as np

from specjax.drafters import lookahead
from specjax.inputs import make_prompt, make_sampling
from specjax.step import Decoder
from specjax.types import Params
from specjax.verifiers import match
from tests.support import tiny
from tests.support.drafted import (
    SLOTS,
    Drafted,
    build_whole_text_logits,
    drafts_by_step,
)

# N = 3: rows of 2 tokens, of 3 columns and of 2 candidates.
GAMMA, SIZE, LONG, COLUMNS = 10, 3, 2, 3
WINDOW = [-1, 0, 1, 0, 1, 2]
PROMPT = make_prompt([[1, 2, 3, 1, 2, 4, 1, 2], [5, 6]])


def test_the_window_is_a_chain_with_columns_and_candidates_are_chains():
    assert lookahead.parents(LONG, COLUMNS, 2).tolist() == [*WINDOW, -1, 6, -1, 8]
    drafter = lookahead.build(GAMMA, SIZE)
    assert (drafter.gamma, drafter.depth) == (10, 4)
    pairs = lookahead.build(4, 2)  # n-grams of two: chains of one token
    assert (pairs.gamma, pairs.depth) == (4, 2)


@functools.cache
def drafts() -> list[Drafted]:
    """Returns the drafts of greedy texts."""
    world, drafter = tiny.transformers(), lookahead.build(GAMMA, SIZE, pool=16)
    decoder = Decoder(world.target, drafter, match.verifier)
    params = Params(world.target_weights)
    return drafts_by_step(
        decoder, params, PROMPT, steps=5, sampling=make_sampling(2, 0.0)
    )


def test_what_is_drafted_is_the_window_and_what_followed_the_last_token():
    (state, draft, cache), *_ = drafts()
    assert draft.num.tolist() == [10, 6]  # the second row has met its 6 but once
    assert draft.tokens[0, 6:].tolist() == [4, 1, 3, 1]  # the latest first
    flat = np.asarray(state.draft_cache.window).reshape(2, -1)
    np.testing.assert_array_equal(draft.tokens[:, :6], flat)
    assert cache.pool[0, 0].tolist() == [4, 1, 2]


def test_a_columns_next_token_is_the_targets_after_its_path():
    """The reference is the argmax after the whole text and that path, computed without
    a cache."""
    world = tiny.transformers()
    logits = build_whole_text_logits(world.target)
    for now, (later, _, _) in itertools.pairwise(drafts()):
        (state, draft, _), texts, rows = now, [], []
        for row, text in enumerate(now.texts()):
            for column in range(COLUMNS):
                path, node = [], (LONG - 1) * COLUMNS + column
                while node >= 0:
                    path, node = [node, *path], WINDOW[node]
                texts.append([*text, *draft.tokens[row, np.array(path)].tolist()])
                rows.append((row, column))
        tokens, length, _ = make_prompt([*texts, [0] * SLOTS])
        best = np.argmax(logits(world.target_weights, tokens), axis=-1)
        best = best[np.arange(len(texts)), length[:-1] - 1]
        on = later.length - state.length - 1
        window = np.asarray(state.draft_cache.window)
        for (row, column), token_id in zip(rows, best.tolist(), strict=True):
            gram = [*window[row, :, column], token_id]
            assert gram in later.draft_cache.pool[row].tolist()
            place = (column - on[row]) % COLUMNS
            assert later.draft_cache.window[row, :, place].tolist() == gram[1:]


def test_equal_paths_are_one():
    parent = np.array([-1, 0, -1, 2, -1, 4, 5])
    tokens = jnp.array([[7, 8, 7, 9, 7, 9, 1], [7, 8, 6, 8, 6, 8, 8]])
    above = lookahead.merge_siblings(tokens, parent)
    assert above.tolist() == [[-1, 0, -1, 0, -1, 0, 3], [-1, 0, -1, 2, -1, 2, 3]]


def test_the_pool_keeps_each_once_and_the_latest():
    pool = jnp.array([[[1, 2], [3, 4], [5, 6], [-1, -1]]])
    grams = jnp.array([[[3, 4], [7, 8], [3, 4]]])
    after = lookahead.remember(pool, grams)
    assert after.tolist() == [[[3, 4], [7, 8], [1, 2], [5, 6]]]
    assert lookahead.latest_ngrams(pool[..., 0], jnp.array([3]), 2, 3).tolist() == [
        [[3, 5], [1, 3], [-1, -1]]
    ]


def test_of_a_large_pool_the_latest_come_first():
    """A sort that is not stable keeps the order of short arrays only."""
    grams = np.stack([np.full(200, 3), np.arange(200)], axis=1)
    grams[::2, 0] = 5
    last = jnp.array([[3]])
    found, count = lookahead.find_beginning(jnp.array(grams)[None], last, 4)
    assert found[0, :, 0].tolist() == [1, 3, 5, 7] and count.tolist() == [4]
    held = np.where(grams[:, :1] == 5, lookahead.NONE, grams)
    after = lookahead.remember(jnp.array(held)[None], jnp.array([[[8, 9]]]))[0]
    assert after[:4].tolist() == [[8, 9], [3, 1], [3, 3], [3, 5]]
