"""Drafters draft what is computed by hand: from counts of n-grams, and from matches in
texts."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gpu.aot import hlo
from specjax import generate, policies, probs
from specjax.drafters import (
    anchored,
    autoregressive,
    copying,
    datastore,
    ngram,
    random,
    recycling,
    rollout,
    suffix,
)
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import draw_independent
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder, build_step
from specjax.types import (
    Draft,
    Drafter,
    Params,
    Policy,
    Request,
    Sampling,
    State,
    TargetCall,
)
from tests.support import tiny
from tests.support.drafted import drafts_by_step

# a b a b c, then a b c: after (a, b) come a once and c twice.
A, B, C = 0, 1, 2
TEXTS = [[A, B, A, B, C], [A, B, C]]
WEIGHT, ADD = 0.8, 0.5


def fit_ngram(order: int, places: int = 4) -> ngram.NGram:
    return ngram.fit(TEXTS, 4, order, weight=WEIGHT, add=ADD, places=places)


@jax.jit
def laws_after(params: ngram.NGram, contexts) -> jax.Array:
    """Returns the laws [N, V] after contexts [N, k], which are padded on the left with
    -1."""
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
    got = laws_after(fit_ngram(3), jnp.array([*laws]))
    np.testing.assert_allclose(got, [*laws.values()], rtol=1e-6)


def test_what_stands_before_a_text_is_no_token():
    tokens = jnp.array([[A, B, C], [C, 0, 0], [B, A, 0]])
    last = ngram.last_tokens(tokens, jnp.array([3, 1, 2]), 2)
    assert last.tolist() == [[B, C], [-1, C], [B, A]]


def test_few_places_keep_the_most_probable_and_still_sum_to_one():
    (law,) = laws_after(fit_ngram(2, places=1), jnp.array([[B]]))
    rest = (1 - WEIGHT) * UNIGRAM
    kept = np.where(np.arange(4) == C, AFTER_B, rest)
    np.testing.assert_allclose(law, kept / kept.sum(), rtol=1e-6)


def make_state(texts, cache=(), context=None, budget=9) -> State:
    tokens = np.array([text + [0] * (16 - len(text)) for text in texts], np.int32)
    length = np.array([len(text) for text in texts], np.int32)
    return State(tokens, length, (), cache, 0 * length + budget, context)


def run_drafter(drafter, state: State, params=None) -> tuple[list[list[int]], object]:
    draft, cache = jax.jit(lambda s: drafter.draft(None, params, None, s))(state)
    rows = zip(draft.tokens.tolist(), draft.num.tolist(), strict=True)
    return [row[:num] for row, num in rows], cache


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
    state = make_state(texts, budget=np.array(budgets))
    assert run_drafter(copying.build(4), state)[0] == [*expected]


def test_copying_looks_in_its_context():
    """It looks there too, and for no more tokens than the text has."""
    context = np.array([[9, 6, 3, 2, 6], [6, 6, 3, 6, 2]]), np.array([4, 5])
    state = make_state([[5, 6, 7, 6], [6]], context=context)
    assert run_drafter(copying.build(4), state)[0] == [[3, 2], [2]]


def test_least_leaves_out_what_matches_less():
    state = make_state([[5, 6, 7, 6], [5, 6, 7, 5, 6]])
    assert run_drafter(copying.build(3, 3, 2), state)[0] == [[], [7, 5, 6]]


def test_where_nothing_is_copied_a_draft_is_short():
    """Where something is copied, a draft is as long as the text to copy."""

    def draft(key, params, request, state):
        return Draft(jnp.zeros((3, 5), jnp.int32), state.budget, None), ()

    drafter = copying.shorten_without_copy(
        Drafter(no_cache, draft, 5), least=2, short=2
    )
    texts = [[5, 6, 7, 8, 5, 6], [5, 6, 7, 8, 9, 6], [5, 6, 7, 8, 5, 6]]
    state = make_state(texts, budget=np.array([9, 9, 1]))
    assert [len(row) for row in run_drafter(drafter, state)[0]] == [4, 2, 1]
    assert drafter.widths == (2,)


def test_what_is_copied_has_a_law_that_is_sure_of_it():
    """The law of the other tokens is the model's own."""
    model, gamma = tiny.transformers(), 3
    drawn = copying.copy_first(draw_independent, gamma, 2)
    drafter = autoregressive.build(model.draft, gamma, drawn)
    text = [[5, 6, 7, 8, 5, 6], [5, 6, 7, 8, 9, 6]]  # the second matches one token
    params = Params(model.target_weights, model.draft_weights)
    decoder = Decoder(model.target, drafter)
    draft = drafts_by_step(decoder, params, make_prompt(text), steps=0)[0].draft
    assert draft.tokens[0].tolist() == [7, 8, 5] and draft.num.tolist() == [3, 3]
    laws = np.asarray(probs.dense(draft.law))
    np.testing.assert_array_equal(laws[0], np.eye(29)[[7, 8, 5]])
    assert (laws[1].max(-1) < 1).all()


def test_a_suffix_goes_on_as_most_of_its_occurrences_do():
    texts = [
        [6, 8, 1, 6, 8, 2, 6, 9, 6],  # 8 twice; of those that went on so, the later
        [6, 8, 6, 9, 6],  # the later of equals
        [5, 6, 7, 9, 6, 8, 6, 8, 5, 6],  # the longest match before the most frequent
        [5, 6, 7],
    ]
    expected = [[8, 2, 6, 9], [9, 6], [7, 9, 6, 8], []]
    assert run_drafter(suffix.build(4), make_state(texts))[0] == expected
    # A tree: 8 and what followed it most, and beside it 9; or one path, in its places.
    tree = suffix.build(4, paths=2)
    assert run_drafter(tree, make_state(texts[:1] + texts[3:]))[0] == [[8, 9, 2, 6], []]
    one = run_drafter(tree, make_state(texts[2:3]))[0][0]
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
    tokens, after = run_drafter(drafter, make_state(texts, place, context), begins)
    assert tokens == [[4, 6, 7], [7, 4, 8], [7, 4, 8], [5, 4, 6], [5, 4, 6]]
    assert after.at.tolist() == [3, 5, 5, 2, 2]
    assert after.seen.tolist() == [3, 3, 3, 1, 2]
    # One token that follows is enough, though another place agrees with more.
    context = np.array([[3, 4, 5, 3, 4, 6]]), np.array([6])
    place = anchored.Place(np.array([1]), np.array([2]))
    state = make_state([[5, 3, 4]], place, context)
    assert run_drafter(drafter, state, begins)[0] == [[5, 3, 4]]


STORE = [[1, 2, 3, 4], [9, 2, 3, 5], [7, 2, 3, 5], [2, 3]]


def test_a_store_is_searched_for_the_longest_match():
    drafter, store = datastore.build(3), datastore.index(STORE)
    texts = [[8, 2, 3], [1, 2, 3], [6], [5], [3, 1, 1, 3], [4, 1, 8, 4, 1]]
    # 5 twice; 4 after one token more; unknown; at an end; as long in the text itself.
    expected = [[5], [4], [], [], [1, 1, 3], [8, 4, 1]]
    assert run_drafter(drafter, make_state(texts), store)[0] == expected
    unknown = datastore.last_tokens(jnp.array([6]), jnp.int32(1))
    _, num, matched = jax.jit(datastore.find_continuation, static_argnums=2)(
        store, unknown, 3
    )
    assert (int(num), int(matched)) == (0, 0)


def test_of_many_occurrences_some_are_asked_evenly():
    """Of 96 occurrences of one token, the first 32 are followed by 5 and the others by
    6; those that are looked at must be spread evenly."""
    texts = [[7 + i, 2, 5 if i < suffix.OCCURRENCES else 6] for i in range(96)]
    store = datastore.index(texts)
    assert run_drafter(datastore.build(1), make_state([[3, 2]]), store)[0] == [[6]]


def test_bisection_finds_what_a_search_of_every_place_does():
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 3, n).tolist() for n in (40, 1, 25)]
    store = datastore.index(texts)
    flat, found = (
        np.asarray(store.tokens),
        jax.jit(datastore.find_continuation, static_argnums=2),
    )
    few = datastore.index([[1, 2, 3, 4]])
    for edge, before in ((np.iinfo(np.int32).max, 5), (-3, 0)):  # after all, before all
        assert datastore.count_before(few, jnp.full(16, edge)) == before
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
    state = make_state([[4, 5, 4, 6, 4], [7]], chain.init(None, prompt, 16))
    assert run_drafter(chain, state)[0] == [[6], []]  # the later of those in the prompt
    table = tree.init(None, prompt, 16)
    logits = np.zeros((2, 3, 9), np.float32)
    logits[0, 0, [5, 8]] = 2, 1  # after 4
    logits[0, 1, [3, 2]] = 2, 1  # after 5, which is there once more:
    logits[0, 2, [1, 2]] = 2, 1
    law = probs.standardize(jnp.array(logits), Sampling(jnp.ones(2)))
    zero = np.zeros(2, np.int32)
    call = TargetCall(
        np.array([[4, 5, 5], [7, 7, 7]]), law, np.array([2, 0]), zero, zero
    )
    table = tree.observe(None, table, call)
    tokens, _ = run_drafter(tree, make_state([[4], [7]], table))
    assert tokens[0] == [5, 8, 1, 2]
    call = call._replace(num=np.array([1, 0]))  # what is not real is not learnt
    table = tree.observe(None, tree.init(None, prompt, 16), call)
    assert run_drafter(tree, make_state([[4], [7]], table))[0][0] == [5, 8, 3, 2]


def test_a_rollout_keeps_to_each_rows_budget():
    """To draft more would still be exact, so that only this test can detect it."""
    state = State(jnp.zeros((2, 9), int), jnp.array([1, 1]), (), (), jnp.array([1, 3]))
    key = jax.random.split(jax.random.key(0), 2)
    request = Request(key, Sampling(jnp.ones(2)), *[jnp.zeros(2, int)] * 3)
    draft, _ = jax.jit(random.build(8, gamma=4).draft)(key, None, request, state)
    np.testing.assert_array_equal(draft.num, [1, 3])

    def draw(logits, slot):
        return jnp.zeros(2, jnp.int32), probs.standardize(logits, Sampling(jnp.ones(2)))

    @jax.jit
    def calls(budget):
        def advance(count, token, slot):
            return rollout.Proposal(jnp.zeros((2, 8)), count + 1)

        initial = rollout.Proposal(jnp.zeros((2, 8)), jnp.int32(0))
        limited = state._replace(budget=budget)
        return rollout.rollout(draw, limited, 4, initial=initial, advance=advance)[1]

    for budget in (0, 1, 3, 4, 9):
        assert calls(jnp.array([0, budget])) == max(min(budget, 4) - 1, 0)


def count_loop_turns(drafter: Drafter, policy: Policy | None = None) -> int | None:
    """Returns how often the loop over drafted tokens runs in a compiled step, None
    where the device decides; all loops for random bits and searches have a known
    length."""
    world = tiny.tables()
    decoder = Decoder(world.target, drafter, policy=policy)
    params = Params(world.target_weights, world.draft_weights)
    prompt = make_prompt([[1, 3], [2]])
    state = jax.eval_shape(lambda: generate.prefill(decoder, params, prompt, 32))
    request = make_request(jax.random.key(0), prompt, 20, make_sampling(2, 1.0))
    step = jax.jit(build_step(*decoder)).lower(params, request, state).compile()
    every = [loop.trips for loop in hlo.loops(hlo.read(step.as_text()))]
    (count,) = {None, drafter.gamma - 1}.intersection(every)
    return count


def test_a_compiler_knows_how_much_is_drafted_unless_something_may_stop_it():
    """Otherwise the host of a GPU waits for every token, which only this test can
    detect."""
    model, gamma = tiny.tables().draft, 9
    chain = autoregressive.build(model, gamma)
    assert count_loop_turns(chain) == gamma - 1
    assert count_loop_turns(chain, policies.find("adaptive")) is None
    assert (
        count_loop_turns(copying.shorten_without_copy(chain, least=2, short=2)) is None
    )
    # As many positions as texts have, in 32 slots of which gamma + 1 are to spare.
    for slots, known in ((32 - gamma - 1, gamma - 1), (32 - gamma - 2, None)):
        limited = model._replace(slots=slots)
        assert count_loop_turns(autoregressive.build(limited, gamma)) == known
