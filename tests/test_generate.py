"""Whole texts from tiny transformers: the same for every drafter, batch, slot and cut.

Where a text is random, these tests compare runs of the same keys, so that equality is
exact: an end of text or a limit only cuts, and neither batch mates nor stale cache
slots enter. That the texts follow the target's law is `verifiers/test_token.py`'s.
Axes: B rows, T tokens, L buffer, G = gamma, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive
from specjax.generate import Output
from specjax.inputs import make_prompt, make_sampling
from specjax.step import Decoder, build_step, finished, is_end
from specjax.types import Params, Prompt, Request, State
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME, Case

GAMMA, NEW, SLOTS = 2, 24, 36
PROMPT = make_prompt([[1, 2, 3, 4, 5], [7], [3, 4, 3, 4], [9, 2]])
BATCH, WIDTH = PROMPT.tokens.shape
VOCAB = tiny.TARGET.vocab
HUGE = 1e30

# A unigram is a trigram without a context, and "random" a rollout as they are.
NAMES = ("autoregressive", "adaptive", "itself", "early_exit", "copying", "trigram")
CASES = [BY_NAME[name] for name in NAMES]
each_case = pytest.mark.parametrize("case", CASES, ids=NAMES)


@functools.cache
def decoder(case: Case):
    """One compilation a drafter serves every test of these shapes."""
    return generate.build(case.decoder(tiny.transformers(), GAMMA), SLOTS)


@functools.cache
def baseline():
    return generate.autoregressive(tiny.transformers().target, SLOTS)


def make_request(temperature: float, seed: int = 0, prompt: Prompt = PROMPT) -> Request:
    sampling = make_sampling(BATCH, temperature)
    request = inputs.make_request(jax.random.key(seed), prompt, NEW, sampling)
    return request._replace(eos=ends_of([()] * BATCH))


def ends_of(rows) -> jax.Array:
    """Ends of text of each row, of one type in all tests, to share the compilation."""
    filled = [[*[-1] * (3 - len(row)), *map(int, row)] for row in rows]
    return jnp.array(filled, jnp.int32)


def answer(case: Case, request: Request, prompt: Prompt = PROMPT) -> Output:
    return decoder(case)(case.params(tiny.transformers()), prompt, request)


@functools.cache
def decode(case: Case, temperature: float, seed: int = 0) -> Output:
    return answer(case, make_request(temperature, seed))


def texts(output: Output) -> list[list[int]]:
    """Each row's generated tokens."""
    rows = zip(output.tokens, output.length, PROMPT.length, strict=True)
    return [np.asarray(row)[start:end].tolist() for row, end, start in rows]


def assert_same(output: Output, other: Output) -> None:
    jax.tree.map(np.testing.assert_array_equal, output, other)


@jax.jit
def rows_of(tree, rows):
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@jax.jit
def mixed(tree, others, own):
    """The rows `own` of the first, and of the second those that are left."""
    return jax.tree.map(lambda leaf, other: other.at[own].set(leaf[own]), tree, others)


def check_counts(output: Output) -> None:
    emitted = np.asarray(output.length - PROMPT.length)
    calls, drafted, tested, accepted = map(np.asarray, output.counts)
    assert np.all(calls <= emitted) and np.all(emitted <= calls * (GAMMA + 1))
    assert np.all(accepted <= tested) and np.all(tested <= drafted)
    assert np.all(drafted <= calls * GAMMA)
    # A call adds one token of its own, unless the row ends with an accepted one.
    assert np.all((emitted - accepted == calls) | (emitted - accepted == calls - 1))


# The text itself.


@functools.cache
def greedy_text() -> Output:
    params = Params(tiny.transformers().target_weights)
    return baseline()(params, PROMPT, make_request(0.0))


def test_the_baseline_is_the_argmax_of_a_full_recomputation():
    """No cache, no prefill, no loop on the device: greedy decoding by definition."""
    world = tiny.transformers()

    @jax.jit
    def extend(tokens, length):
        start = jnp.zeros_like(length)
        features, _ = world.target.apply(world.target_weights, tokens, start, None)
        logits = world.target.readout(world.target_weights, features)
        row = jnp.arange(BATCH)
        best = jnp.argmax(logits[row, length - 1], axis=-1)
        return tokens.at[row, length].set(best), length + 1

    tokens, length = jnp.zeros((BATCH, SLOTS), jnp.int32), PROMPT.length
    tokens = tokens.at[:, :WIDTH].set(PROMPT.tokens)
    for _ in range(NEW):
        tokens, length = extend(tokens, length)
    assert texts(greedy_text()) == texts(Output(tokens, length, ()))
    assert min(len(set(text)) for text in texts(greedy_text())) >= 4


@each_case
def test_greedy_text_is_the_targets(case):
    got = decode(case, 0.0)
    np.testing.assert_array_equal(got.tokens, greedy_text().tokens)
    np.testing.assert_array_equal(got.length, PROMPT.length + NEW)
    check_counts(got)


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
    check_counts(got)
    other = texts(decode(case, 1.0, seed=1))  # another key, another text
    assert all(a != b for a, b in zip(texts(got), other, strict=True))


def test_some_drafts_are_accepted_and_some_are_not():
    """Without both, most of this file would test nothing."""
    for name in ("autoregressive", "adaptive", "early_exit", "copying"):
        counts = decode(BY_NAME[name], 0.0).counts
        assert 0 < counts.accepted.sum() < counts.tested.sum(), name


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_as_its_own_drafter_is_never_wrong(temperature):
    counts = decode(BY_NAME["itself"], temperature).counts
    calls = -(-NEW // (GAMMA + 1))
    np.testing.assert_array_equal(counts.calls, np.full(BATCH, calls))
    np.testing.assert_array_equal(counts.drafted, np.full(BATCH, calls * GAMMA))
    np.testing.assert_array_equal(counts.accepted, counts.tested)
    np.testing.assert_array_equal(counts.accepted, np.full(BATCH, NEW - calls))


def test_copying_from_another_text():
    """From the very text that the target will say, nearly all of it is copied."""
    case, text = BY_NAME["copying"], greedy_text()
    prompt = PROMPT._replace(inputs=(text.tokens, text.length))
    got = answer(case, make_request(0.0), prompt)
    np.testing.assert_array_equal(got.tokens, text.tokens)
    assert got.counts.accepted.sum() > decode(case, 0.0).counts.accepted.sum()
    nonsense = PROMPT._replace(inputs=((text.tokens + 1) % VOCAB, text.length))
    got = answer(case, make_request(0.0), nonsense)
    np.testing.assert_array_equal(got.tokens, text.tokens)


def test_gamma_zero_is_autoregression():
    world, request = tiny.transformers(), make_request(1.0)
    none = autoregressive.build(world.draft, 0)
    params = Params(world.target_weights, world.draft_weights)
    got = generate.build(Decoder(world.target, none), SLOTS)(params, PROMPT, request)
    assert_same(got, baseline()(Params(world.target_weights), PROMPT, request))
    np.testing.assert_array_equal(got.counts.calls, np.full(BATCH, NEW))
    assert not np.any(got.counts.drafted)


# Where it ends.


def cut_at(text: list[int], eos: int) -> list[int]:
    return text[: text.index(eos) + 1] if eos in text else text


@each_case
@pytest.mark.parametrize("at", range(GAMMA + 1))
def test_an_end_of_text_only_cuts(case, at):
    """Wherever in a step it falls; the token is the one that the row drew there."""
    whole = texts(decode(case, 1.0))
    eos = [text[4 + at + row] for row, text in enumerate(whole)]
    request = make_request(1.0)._replace(eos=ends_of([[end] for end in eos]))
    got = answer(case, request)
    wanted = [cut_at(text, int(end)) for text, end in zip(whole, eos, strict=True)]
    assert texts(got) == wanted
    assert all(len(text) < NEW for text in wanted)
    check_counts(got)


def test_an_end_of_text_in_a_draft_and_as_the_extra_token():
    """The target as its own drafter keeps G + 1 tokens a step: it is known which."""
    case = BY_NAME["itself"]
    whole = texts(decode(case, 1.0))
    first = [[text.index(token) for token in text] for text in whole]
    new = [[i for i, j in enumerate(row) if i == j] for row in first]
    extra = [[i for i in row if i % (GAMMA + 1) == GAMMA] for row in new]
    inside = [[i for i in row if i % (GAMMA + 1) < GAMMA] for row in new]
    for kind, counted in ((extra, 0), (inside, 1)):
        ends = [row[-1] for row in kind]
        eos = ends_of([[text[end]] for text, end in zip(whole, ends, strict=True)])
        request = make_request(1.0)._replace(eos=eos)
        got = answer(case, request)
        assert [len(text) - 1 for text in texts(got)] == ends
        calls = np.array(ends) // (GAMMA + 1) + 1
        np.testing.assert_array_equal(got.counts.calls, calls)
        np.testing.assert_array_equal(got.counts.accepted, ends - calls + 1 + counted)


@each_case
def test_whichever_of_several_ids_comes_first_ends_the_row(case):
    """Drafted, added, or not there: -1 fills the ids of a row that has fewer."""
    whole = texts(decode(case, 1.0))
    for at in range(GAMMA + 2):
        ends = [
            [text[4 + at + row], text[2 + 2 * row], -1][::-1]
            for row, text in enumerate(whole)
        ]
        ends[0] = [-1, ends[0][2], -1]
        got = answer(case, make_request(1.0)._replace(eos=np.array(ends, np.int32)))
        wanted = [
            min((cut_at(text, eos) for eos in row), key=len)
            for text, row in zip(whole, ends, strict=True)
        ]
        assert texts(got) == wanted
        check_counts(got)


def test_several_ids_in_one_block_cut_at_the_first():
    """What is committed, and what is told of it, end there."""
    tokens = jnp.array([[5, 7, 5, 9], [9, 8, 7, 5], [1, 2, 3, 4]])
    eos = jnp.array([[5, 7], [7, 5], [-1, 9]])
    hits = is_end(tokens, eos)
    assert hits.tolist() == [[1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert is_end(tokens[:, 0], eos).tolist() == [True, False, False]


def test_a_request_has_an_id_a_row_or_several():
    request = functools.partial(
        inputs.make_request, jax.random.key(0), PROMPT, NEW, make_sampling(BATCH, 0.0)
    )
    for none in ((), [], -1):
        assert request(none).eos.tolist() == [-1] * BATCH
    for single in (3, (3,), np.int64(3)):
        assert request(single).eos.tolist() == [3] * BATCH
    assert request((3, 5)).eos.tolist() == [[3, 5]] * BATCH


def test_an_end_of_text_in_the_prompt_does_not_end_the_row():
    request = make_request(0.0)
    tokens, length = np.asarray(PROMPT.tokens), np.asarray(PROMPT.length)
    last = tokens[np.arange(BATCH), length - 1]
    got = answer(CASES[0], request._replace(eos=ends_of(last[:, None])))
    wanted = [
        cut_at(t, int(e)) for t, e in zip(texts(greedy_text()), last, strict=True)
    ]
    assert texts(got) == wanted and min(map(len, wanted)) > 0


@each_case
def test_a_limit_only_cuts_and_finished_rows_stand_still(case):
    whole, new = texts(decode(case, 1.0)), np.array([0, 1, 7, NEW])
    for shift in range(BATCH):
        lengths = np.roll(new, shift)
        request = make_request(1.0)._replace(limit=PROMPT.length + lengths)
        got = answer(case, request)
        assert texts(got) == [t[:n] for t, n in zip(whole, lengths, strict=True)]
        check_counts(got)


# Rows do not know of each other.


@each_case
def test_a_rows_text_depends_neither_on_its_slot_nor_on_the_other_rows(case):
    order, request = jnp.array([2, 0, 3, 1]), make_request(1.0)
    whole = decode(case, 1.0)
    moved = rows_of((PROMPT, request), order)
    assert_same(answer(case, moved[1], moved[0]), rows_of(whole, order))
    others = make_prompt([[8, 8, 8, 8, 8], [6, 5], [1], [2, 2, 2]])
    strangers = others, make_request(0.5, 7, others)
    for own in (jnp.array([0, 2]), jnp.array([1, 3])):
        prompt, asked = mixed((PROMPT, request), strangers, own)
        got = answer(case, asked, prompt)
        assert_same(rows_of(got, own), rows_of(whole, own))


# What is stale is never read, what is live is.


@functools.cache
def stepper(case: Case):
    """The jitted step, the state after the prefill, and a list of its traces."""
    traces, decoder = [], case.decoder(tiny.transformers(), GAMMA)
    step, params = build_step(*decoder), case.params(tiny.transformers())

    @jax.jit
    def spec_step(params, request, state):
        traces.append(1)
        return step(params, request, state)

    begin = jax.jit(lambda params: generate.prefill(decoder, params, PROMPT, SLOTS))
    return functools.partial(spec_step, params), begin(params), traces


def run(case: Case, between) -> tuple[Output, list[np.ndarray]]:
    """Decodes with `between(state)` before every step; returns texts and what was
    drafted, with -1 where nothing was."""
    step, state, _ = stepper(case)
    request, drafts = make_request(1.0), []
    turns = tiny.bound()
    while not np.all(finished(request, state)):
        next(turns)
        state, info = step(request, between(state))
        real = np.arange(GAMMA) < np.asarray(info.drafted)[:, None]
        drafts.append(np.where(real, info.tokens, -1))
    return Output(state.tokens, state.length, ()), drafts


@jax.jit
def overwrite(cache, first, last):
    """Puts huge numbers into cache slots `first .. last - 1` [B] of every row."""
    slot = jnp.arange(SLOTS)
    stale = (slot >= first[:, None]) & (slot < last[:, None])
    ruined = {"keys": stale[:, None, None, :], "values": stale[:, None, :, None]}
    return type(cache)(
        layer._replace(
            **{k: jnp.where(at, HUGE, getattr(layer, k)) for k, at in ruined.items()}
        )
        for layer in cache
    )


def poison(state: State) -> State:
    """Ruins all that is stale: the target has not been fed the last token, and drafters
    are fed the last two anew."""
    end, last_two = jnp.full(BATCH, SLOTS), jnp.maximum(state.length - 2, 0)
    stale = jnp.arange(SLOTS)[None] >= state.length[:, None]
    return state._replace(
        tokens=jnp.where(stale, VOCAB - 1, state.tokens),
        target_cache=overwrite(state.target_cache, state.length - 1, end),
        draft_cache=overwrite(state.draft_cache, last_two, end),
    )


# Each with a cache of another kind; those that are not here have none of their own.
CACHED = ("adaptive", "early_exit", "copying")


@pytest.mark.parametrize("case", [BY_NAME[name] for name in CACHED], ids=CACHED)
def test_what_is_stale_is_never_read_and_nothing_is_compiled_twice(case):
    clean, drafts = run(case, lambda state: state)
    assert texts(clean) == texts(decode(case, 1.0))
    ruined, ruined_drafts = run(case, poison)
    assert texts(ruined) == texts(clean)
    np.testing.assert_array_equal(ruined_drafts, drafts)
    assert len(stepper(case)[2]) == 1


def test_the_check_notices_a_slot_that_is_read():
    case = BY_NAME["adaptive"]

    def ruin_target(state):
        cache = overwrite(state.target_cache, state.length - 2, state.length - 1)
        return state._replace(target_cache=cache)

    def ruin_draft(state):
        cache = overwrite(state.draft_cache, state.length - 3, state.length - 2)
        return state._replace(draft_cache=cache)

    assert texts(run(case, ruin_target)[0]) != texts(decode(case, 1.0))
    first, ruined = run(case, lambda state: state)[1][0], run(case, ruin_draft)[1][0]
    assert not np.array_equal(first, ruined)
