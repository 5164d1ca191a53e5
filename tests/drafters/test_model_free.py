"""Drafters without a model: what each finds, by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import probs
from specjax.drafters import anchored, copying, datastore, recycling, suffix
from specjax.inputs import make_prompt
from specjax.types import Kept, Sampling, State


def state_of(texts, cache=(), context=None, slots: int = 16) -> State:
    tokens = np.array([text + [0] * (slots - len(text)) for text in texts], np.int32)
    length = np.array([len(text) for text in texts], np.int32)
    return State(tokens, length, (), cache, np.full(len(texts), 9), context)


def drafted(drafter, state: State, params=None) -> tuple[list[list[int]], object]:
    draft, cache = jax.jit(lambda s: drafter.draft(None, params, None, s))(state)
    rows = zip(draft.tokens.tolist(), draft.num.tolist(), strict=True)
    return [row[:num] for row, num in rows], cache


def test_least_leaves_out_what_matches_less():
    state = state_of([[5, 6, 7, 6], [5, 6, 7, 5, 6]])
    assert drafted(copying.build(3, 3, 2), state)[0] == [[], [7, 5, 6]]


def test_a_suffix_goes_on_as_most_of_its_occurrences_do():
    texts = [
        [6, 8, 1, 6, 8, 2, 6, 9, 6],  # 8 twice; of those that went on so, the later
        [6, 8, 6, 9, 6],  # the later of equals
        [5, 6, 7, 9, 6, 8, 6, 8, 5, 6],  # the longest match before the most frequent
        [5, 6, 7],
    ]
    expected = [[8, 2, 6, 9], [9, 6], [7, 9, 6, 8], []]
    assert drafted(suffix.build(4), state_of(texts))[0] == expected
    # A tree: 8 and what followed it most, and beside it 9; or one path, in its places.
    tree = suffix.build(4, paths=2)
    assert drafted(tree, state_of(texts[:1] + texts[3:]))[0] == [[8, 9, 2, 6], []]
    one = drafted(tree, state_of(texts[2:3]))[0][0]
    assert one[::2] == [7, 9] and len(one) == 3


def test_a_place_in_the_input_is_followed_and_found_again():
    source = [3, 4, 5, 4, 6, 7, 4, 8]
    context = np.array([source] * 5), np.array([7, 8, 8, 8, 8])
    begins = jnp.arange(10) % 2 == 1  # odd ids begin a word
    drafter = anchored.build(3)
    # Rows: follows; one token was changed to one that is near; to one that is nowhere;
    # nothing was written; to one that stands in several places.
    texts = [[0, 4, 5], [0, 4, 6], [0, 4, 9], [0], [0, 4]]
    place = anchored.Place(np.array([1, 1, 1, 0, 2]), np.ones(5, int))
    tokens, after = drafted(drafter, state_of(texts, place, context), begins)
    assert tokens == [[4, 6, 7], [7, 4, 8], [7, 4, 8], [5, 4, 6], [5, 4, 6]]
    assert after.at.tolist() == [3, 5, 5, 2, 2]
    assert after.seen.tolist() == [3, 3, 3, 1, 2]


STORE = [[1, 2, 3, 4], [9, 2, 3, 5], [7, 2, 3, 5], [2, 3]]


def test_a_store_is_searched_for_the_longest_match():
    drafter, store = datastore.build(3), datastore.index(STORE)
    texts = [[8, 2, 3], [1, 2, 3], [6], [5], [3, 1, 1, 3], [4, 1, 8, 4, 1]]
    # 5 twice; 4 after one token more; unknown; at an end; as long in the text itself.
    expected = [[5], [4], [], [], [1, 1, 3], [8, 4, 1]]
    assert drafted(drafter, state_of(texts), store)[0] == expected


def test_bisection_finds_what_a_search_of_every_place_does():
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 3, n).tolist() for n in (40, 1, 25)]
    store = datastore.index(texts)
    flat, found = np.asarray(store.tokens), jax.jit(datastore.stored, static_argnums=2)
    for _ in range(50):
        text = rng.integers(0, 3, 20)
        end = datastore.last_tokens(jnp.array(text), jnp.int32(20))
        matched = 0
        for at in range(flat.size):
            same = 0
            while same < 16 and at > same and flat[at - 1 - same] == text[-1 - same]:
                same += 1
            matched = max(matched, same)
        assert int(found(store, end, 2)[2]) == matched


def test_successors_are_those_that_the_target_held_likely():
    chain, tree = recycling.build(9, 3), recycling.build(9, 4, (-1, -1, 0, 0))
    prompt = make_prompt([[4, 5, 4, 6], [7]])
    state = state_of([[4, 5, 4, 6, 4], [7]], chain.init(None, prompt, 16))
    assert drafted(chain, state)[0] == [[6], []]  # the later of those in the prompt
    table = tree.init(None, prompt, 16)
    logits = np.zeros((2, 3, 9), np.float32)
    logits[0, 0, [5, 8]] = 2, 1  # after 4
    logits[0, 1, [3, 2]] = 2, 1  # after 5, which is there once more:
    logits[0, 2, [1, 2]] = 2, 1
    law = probs.standardize(jnp.array(logits), Sampling(jnp.ones(2)))
    zero = np.zeros(2, np.int32)
    kept = Kept(np.array([[4, 5, 5], [7, 7, 7]]), law, np.array([2, 0]), zero)
    table = tree.observe(None, table, kept)
    tokens, _ = drafted(tree, state_of([[4], [7]], table))
    assert tokens[0] == [5, 8, 1, 2]
    kept = kept._replace(num=np.array([1, 0]))  # what is not real is not learnt
    table = tree.observe(None, tree.init(None, prompt, 16), kept)
    assert drafted(tree, state_of([[4], [7]], table))[0][0] == [5, 8, 3, 2]
