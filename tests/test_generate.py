"""Whole texts of tiny transformers are the same with every drafter, batch, slot and
end."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive
from specjax.drafts import levels
from specjax.generate import Output
from specjax.inputs import make_prompt, make_sampling
from specjax.step import Decoder, build_step, has_ended
from specjax.types import Params, Prompt, Request, State
from tests.support import tiny
from tests.support.drafted import build_whole_text_logits
from tests.support.drafter_cases import BY_NAME, Case

GAMMA, NEW, SLOTS = 2, 24, 36
PROMPT = make_prompt([[1, 2, 3, 4, 5], [7], [3, 4, 3, 4], [9, 2]])
BATCH, WIDTH = PROMPT.tokens.shape
LENGTHS = PROMPT.length.tolist()
VOCAB = tiny.TARGET.vocab

# Which decode elsewhere, or as another one here.
ELSEWHERE = "renewal", "intersection", "suffix_tree", "random"
# Others here are made of the same parts.
LATER = "copying_short", "tree_of_counts", "recycling_tree"
LATER += "hierarchy", "hierarchy_three", "tree", "reduced", "blockwise", "eagle"
CASES = [
    pytest.param(case, marks=pytest.mark.slow if name in LATER else (), id=name)
    for name, case in BY_NAME.items()
    if name not in ELSEWHERE
]
each_case = pytest.mark.parametrize("case", CASES)


@functools.cache
def decoder(case: Case):
    """Returns a decoder, whose compiled program serves every test of these shapes."""
    return generate.build(case.decoder(tiny.transformers(), GAMMA), SLOTS)


@functools.cache
def baseline():
    return generate.autoregressive(tiny.transformers().target, SLOTS)


def make_request(temperature: float, seed: int = 0, prompt: Prompt = PROMPT) -> Request:
    sampling = make_sampling(BATCH, temperature)
    request = inputs.make_request(jax.random.key(seed), prompt, NEW, sampling)
    return request._replace(eos=pad_ends([()] * BATCH))


def pad_ends(rows) -> np.ndarray:
    """Returns the end ids of each row, padded to one shape for all tests, so that they
    share the compilation."""
    return np.array([[*[-1] * (3 - len(row)), *row] for row in rows], np.int32)


def answer(case: Case, request: Request, prompt: Prompt = PROMPT) -> Output:
    return decoder(case)(case.params(tiny.transformers()), prompt, request)


@functools.cache
def decode(case: Case, temperature: float, seed: int = 0) -> Output:
    return answer(case, make_request(temperature, seed))


def generated_texts(output: Output) -> list[list[int]]:
    """Returns the generated tokens of each row."""
    rows = zip(output.tokens, output.length, PROMPT.length, strict=True)
    return [np.asarray(row)[start:end].tolist() for row, end, start in rows]


def assert_same(output: Output, other: Output) -> None:
    jax.tree.map(np.testing.assert_array_equal, output, other)


@jax.jit
def take_rows(tree, rows):
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@jax.jit
def mix_rows(tree, others, own):
    """Returns the rows `own` of the first tree, and the other rows of the second."""
    return jax.tree.map(lambda leaf, other: other.at[own].set(leaf[own]), tree, others)


def check_counts(output: Output, case: Case) -> None:
    nodes = case.drafter(tiny.transformers(), GAMMA).gamma  # more than GAMMA of a tree
    emitted = np.asarray(output.length - PROMPT.length)
    calls, drafted, tested, accepted = map(np.asarray, output.counts)
    assert np.all(calls <= emitted) and np.all(emitted <= calls * (GAMMA + 1))
    assert np.all(accepted <= tested) and np.all(tested <= drafted)
    assert np.all(drafted <= calls * nodes)
    # A call adds one token of its own, unless the row ends with an accepted one.
    assert np.all((emitted - accepted == calls) | (emitted - accepted == calls - 1))


@functools.cache
def greedy_text() -> Output:
    params = Params(tiny.transformers().target_weights)
    return baseline()(params, PROMPT, make_request(0.0))


def test_the_baseline_is_the_argmax_of_a_full_recomputation():
    """Greedy decoding by definition has no cache, no prefill and no loop on the
    device."""
    world = tiny.transformers()
    each = build_whole_text_logits(world.target)(
        world.target_weights, greedy_text().tokens
    )
    tiny.check_greedy(greedy_text(), LENGTHS, each, least=4)


@each_case
def test_greedy_text_is_the_targets(case):
    got = decode(case, 0.0)
    np.testing.assert_array_equal(got.tokens, greedy_text().tokens)
    np.testing.assert_array_equal(got.length, PROMPT.length + NEW)
    check_counts(got, case)
    if case.name not in ("itself", "trigram"):  # or most of this file tests nothing
        assert 0 < got.counts.accepted.sum() < got.counts.tested.sum()


@each_case
def test_a_text_is_its_prompt_then_its_tokens_then_nothing(case):
    got = decode(case, 1.0)
    slot = np.arange(SLOTS)
    padded = np.pad(np.asarray(PROMPT.tokens), ((0, 0), (0, SLOTS - WIDTH)))
    written = slot < np.asarray(got.length)[:, None]
    prompt = slot < np.asarray(PROMPT.length)[:, None]
    np.testing.assert_array_equal(np.where(prompt, got.tokens, 0), padded * prompt)
    assert not np.asarray(got.tokens)[~written].any()
    assert np.all((got.tokens >= 0) & (got.tokens < VOCAB))
    check_counts(got, case)
    other = generated_texts(decode(case, 1.0, seed=1))  # another key, another text
    assert all(a != b for a, b in zip(generated_texts(got), other, strict=True))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_as_its_own_drafter_is_never_wrong(temperature):
    counts, calls = decode(BY_NAME["itself"], temperature).counts, NEW // (GAMMA + 1)
    wanted = [[calls], [calls * GAMMA], [NEW - calls], [NEW - calls]]
    np.testing.assert_array_equal(counts, np.repeat(wanted, BATCH, axis=1))


def test_gamma_zero_is_autoregression():
    world, request = tiny.transformers(), make_request(1.0)
    none = Decoder(world.target, autoregressive.build(world.draft, 0))
    params = Params(world.target_weights, world.draft_weights)
    got = generate.build(none, SLOTS)(params, PROMPT, request)
    assert_same(got, baseline()(Params(world.target_weights), PROMPT, request))
    np.testing.assert_array_equal(got.counts.calls, np.full(BATCH, NEW))
    assert not np.any(got.counts.drafted)


def cut_after_end(text: list[int], eos: int) -> list[int]:
    return text[: text.index(eos) + 1] if eos in text else text


@each_case
def test_whichever_of_several_ids_comes_first_ends_the_row(case):
    """The end may be drafted, added, or absent, and cuts only the text after it; in the
    prompt it ends nothing."""
    whole = generated_texts(decode(case, 1.0))
    for at in range(GAMMA + 2):
        ends = [
            [-1, text[2 + 2 * row], text[4 + at + row]]
            for row, text in enumerate(whole)
        ]
        ends[0] = [-1, ends[0][2], int(PROMPT.tokens[0, LENGTHS[0] - 1])]
        got = answer(case, make_request(1.0)._replace(eos=pad_ends(ends)))
        wanted = [
            min((cut_after_end(text, eos) for eos in row), key=len)
            for text, row in zip(whole, ends, strict=True)
        ]
        assert generated_texts(got) == wanted
        check_counts(got, case)


@each_case
def test_a_limit_only_cuts_and_finished_rows_stand_still(case):
    whole, new = generated_texts(decode(case, 1.0)), np.array([0, 1, 7, NEW])
    for shift in range(BATCH):
        lengths = np.roll(new, shift)
        request = make_request(1.0)._replace(limit=PROMPT.length + lengths)
        got = answer(case, request)
        assert generated_texts(got) == [
            t[:n] for t, n in zip(whole, lengths, strict=True)
        ]
        check_counts(got, case)


@each_case
def test_a_rows_text_depends_neither_on_its_slot_nor_on_the_other_rows(case):
    order, request = jnp.array([2, 0, 3, 1]), make_request(1.0)
    whole = decode(case, 1.0)
    moved = take_rows((PROMPT, request), order)
    assert_same(answer(case, moved[1], moved[0]), take_rows(whole, order))
    others = make_prompt([[8, 8, 8, 8, 8], [6, 5], [1], [2, 2, 2]])
    strangers = others, make_request(0.5, 7, others)
    for own in (jnp.array([0, 2]), jnp.array([1, 3])):
        prompt, asked = mix_rows((PROMPT, request), strangers, own)
        assert_same(take_rows(answer(case, asked, prompt), own), take_rows(whole, own))


@functools.cache
def stepper(case: Case):
    """Returns the compiled step, and the state after the prefill."""
    decoder = case.decoder(tiny.transformers(), GAMMA)
    params = case.params(tiny.transformers())
    begin = jax.jit(lambda params: generate.prefill(decoder, params, PROMPT, SLOTS))
    step = jax.jit(build_step(*decoder))
    return functools.partial(step, params, make_request(1.0)), begin(params)


def run(case: Case, before_step) -> list[list[int]]:
    """Decodes, with a call of `before_step(state)` before every step."""
    (step, state), turns = stepper(case), tiny.bound()
    while not np.all(has_ended(make_request(1.0), state)):
        next(turns)
        state, _ = step(before_step(state))
    return generated_texts(Output(state.tokens, state.length, ()))


def poison(state: State) -> State:
    """Ruins everything that is stale: drafters read the last two tokens again, and one
    more for each level above them."""
    stale = jnp.arange(SLOTS)[None] >= state.length[:, None]

    def ruin_cache(cache, level: int = 1):
        if isinstance(cache, levels.Caches):
            lower = ruin_cache(cache.lower, level + 1)
            return levels.Caches(ruin_cache(cache.model, level), lower)
        return tiny.ruin_slots(cache, jnp.maximum(state.length - 1 - level, 0))

    return state._replace(
        tokens=jnp.where(stale, VOCAB - 1, state.tokens),
        target_cache=tiny.ruin_slots(state.target_cache, state.length - 1),
        draft_cache=ruin_cache(state.draft_cache),
    )


# Each with a cache of another kind; those that are not here have none of their own.
CACHED = [
    pytest.param(
        BY_NAME[name], marks=pytest.mark.slow if name in LATER else (), id=name
    )
    for name in ("adaptive", "early_exit", "copying", "hierarchy", "hierarchy_three")
]


@pytest.mark.parametrize("case", CACHED)
def test_what_is_stale_is_never_read(case):
    """The draft's tokens are random and appear in the text, so that stale values would
    show."""
    whole = generated_texts(decode(case, 1.0))
    assert run(case, lambda state: state) == run(case, poison) == whole


@pytest.mark.parametrize(("name", "back"), [("target_cache", 2), ("draft_cache", 3)])
def test_the_check_notices_a_slot_that_is_read(name, back):
    def ruin(state):
        at = state.length - back
        return state._replace(
            **{name: tiny.ruin_slots(getattr(state, name), at, at + 1)}
        )

    assert run(BY_NAME["adaptive"], ruin) != generated_texts(
        decode(BY_NAME["adaptive"], 1.0)
    )
