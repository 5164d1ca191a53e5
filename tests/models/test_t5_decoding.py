"""Texts of an encoder-decoder: the target's own with every drafter, ragged in and out.

Greedy texts are compared token by token, random ones by their law, which numpy knows.
Axes: B rows, T tokens, I input tokens, N rows of a sample, G = gamma, V vocabulary.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive, ngram
from specjax.exactness import certify
from specjax.exactness.fixtures import Fixture
from specjax.inputs import check, make_prompt, make_sampling, pad
from specjax.models import gpt, t5
from specjax.step import Decoder, build_step, finished
from specjax.types import Info, Params, Prompt, Request, State
from specjax.verifiers import token
from tests.support import tiny, tiny_t5
from tests.support.drafter_cases import BY_NAME, Case, counts
from tests.support.goodness import g_test
from tests.support.tiny_t5 import TARGET, logits_by_hand, quick_jit

GAMMA, NEW, SLOTS = 3, 20, 28
SOURCES = [[5, 9, 2, 17, 11, 3], [7, 7, 20], [4], [12, 25, 6, 8]]
TEXTS = [[0], [0, 5, 7], [0, 3], [0]]
WIDE = 24  # of inputs: most of it is padding
PROMPT = make_prompt(TEXTS)._replace(inputs=pad(SOURCES, WIDE))
BATCH, PIECES = len(TEXTS), TARGET.pieces
WORLD = tiny_t5.world()

DECODER_ONLY = gpt.Config(TARGET.vocab, 16, 32, num_layers=1, num_heads=2)


@functools.cache
def decoder_only_weights():
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda leaf: jnp.float32(0.25 * rng.normal(size=leaf.shape)),
        gpt.abstract_params(DECODER_ONLY),
    )


CASES = (
    *(BY_NAME[name] for name in ("autoregressive", "itself", "early_exit", "copying")),
    BY_NAME["random"],
    Case(
        "bigram",
        lambda world, gamma: ngram.build(world.target.vocab, gamma, 2),
        counts,
    ),
    Case(
        "decoder-only",
        lambda world, gamma: autoregressive.build(gpt.build(DECODER_ONLY), gamma),
        lambda world: decoder_only_weights(),
    ),
)
SMALLER, ITSELF, EARLY_EXIT, COPYING, RANDOM, BIGRAM, GPT = CASES
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Player(NamedTuple):
    """begin: (params, prompt) -> State. step: as `build_step`. traces: one a shape."""

    begin: object
    step: object
    traces: list


def make_player(parts: Decoder, slots: int = SLOTS) -> Player:
    traces, step = [], build_step(*parts)

    def begin(params, prompt):
        traces.append("begin")
        return generate.prefill(parts, params, prompt, slots)

    def counted(params, request, state):
        traces.append("step")
        return step(params, request, state)

    return Player(quick_jit(begin), quick_jit(counted), traces)


@functools.cache
def player(case: Case) -> Player:
    return make_player(case.parts(WORLD, GAMMA))


def make_request(temperature: float, seed: int = 0, prompt: Prompt = PROMPT) -> Request:
    sampling = make_sampling(prompt.length.shape[0], temperature)
    return inputs.make_request(jax.random.key(seed), prompt, NEW, sampling)


class Run(NamedTuple):
    """What a row generated, and what was measured in each step."""

    texts: list[list[int]]
    infos: list[Info]


def play(
    one: Player, params: Params, request: Request, prompt=PROMPT, between=None
) -> Run:
    """Steps until all rows have ended, with `between(state)` before each."""
    state, infos = one.begin(params, prompt), []
    turns = tiny.bound()
    while not np.all(finished(request, state)):
        next(turns)
        state, info = one.step(params, request, between(state) if between else state)
        infos.append(jax.tree.map(np.asarray, info))
    return Run(texts(state.tokens, state.length, prompt), infos)


def texts(tokens, length, prompt: Prompt = PROMPT) -> list[list[int]]:
    rows = zip(*map(np.asarray, (tokens, prompt.length, length)), strict=True)
    return [row[start:end].tolist() for row, start, end in rows]


@functools.cache
def played(case: Case, temperature: float) -> Run:
    return play(player(case), case.params(WORLD), make_request(temperature))


def total(run: Run, name: str) -> np.ndarray:
    return np.sum([getattr(info, name) for info in run.infos], axis=0)


def drafted(run: Run) -> np.ndarray:
    """Every id that was drafted in any row and step."""
    found = [
        info.tokens[np.arange(GAMMA) < info.drafted[:, None]] for info in run.infos
    ]
    return np.concatenate(found)


@functools.cache
def baseline():
    """The whole loop with no drafter, and a list of what the encoder was traced for."""
    traces = []

    def init(params, prompt, slots):
        traces.append(prompt.inputs[0].shape)
        return WORLD.target.init(params, prompt, slots)

    parts = Decoder(WORLD.target._replace(init=init))
    return quick_jit(generate.build_loop(parts, SLOTS)), traces


@functools.cache
def greedy() -> list[list[int]]:
    params, request = Params(WORLD.target_weights), make_request(0.0)
    got = baseline()[0](params, PROMPT, request)
    return texts(got.tokens, got.length)


# Greedy texts.


def test_the_baseline_is_the_argmax_of_a_full_recomputation():
    """No cache, no prefill: the whole text is read anew for each token."""

    inputs = t5.Inputs(*PROMPT.inputs)

    @quick_jit
    def extend(tokens, length):
        logits = t5.logits(TARGET, WORLD.target_weights, inputs, tokens)
        row = jnp.arange(BATCH)
        best = jnp.argmax(logits[row, length - 1], axis=-1)
        return tokens.at[row, length].set(best), length + 1

    width = PROMPT.tokens.shape[1]
    tokens = jnp.pad(PROMPT.tokens, ((0, 0), (0, SLOTS - width)))
    length = PROMPT.length
    for _ in range(NEW):
        tokens, length = extend(tokens, length)
    assert texts(tokens, length) == greedy()
    assert min(len(set(text)) for text in greedy()) >= 6  # no row only repeats


@each_case
def test_greedy_text_is_the_targets(case):
    assert played(case, 0.0).texts == greedy()


def test_inputs_and_starts_matter_to_the_text():
    """Else parity would say nothing of them: rows 0 and 3 start alike."""
    assert greedy()[0] != greedy()[3]
    other = PROMPT._replace(inputs=(PROMPT.inputs[0][::-1], PROMPT.inputs[1][::-1]))
    params = SMALLER.params(WORLD)
    got = play(player(SMALLER), params, make_request(0.0), other).texts
    assert all(a != b for a, b in zip(got, greedy(), strict=True))


def test_some_drafts_are_accepted_and_some_are_not():
    for case in (SMALLER, EARLY_EXIT):
        for temperature in (0.0, 1.0):
            run = played(case, temperature)
            accepted, tested = total(run, "accepted"), total(run, "tested")
            assert np.all((0 < accepted) & (accepted < tested)), case.name


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_as_its_own_drafter_is_never_wrong(temperature):
    run = played(ITSELF, temperature)
    assert len(run.infos) == NEW // (GAMMA + 1)
    np.testing.assert_array_equal(total(run, "accepted"), total(run, "tested"))


# Rows.


def test_rows_end_at_their_own_time():
    """By an end of text in the first, a middle or a late step, and by a limit."""
    whole = played(SMALLER, 1.0).texts
    new = [[i for i, x in enumerate(text) if x not in text[:i]] for text in whole]
    last = [0, new[1][-1], 6, new[3][len(new[3]) // 2]]
    ends = [text[at] for text, at in zip(whole, last, strict=True)]
    ends[2] = -1
    limit = PROMPT.length + jnp.array([NEW, NEW, last[2] + 1, NEW])
    request = make_request(1.0)._replace(eos=jnp.array(ends), limit=limit)
    got = play(player(SMALLER), SMALLER.params(WORLD), request)
    assert got.texts == [text[: at + 1] for text, at in zip(whole, last, strict=True)]
    assert len(set(last)) == BATCH and max(last) > 2 * (GAMMA + 1)
    emitted = np.array([info.emitted for info in got.infos])
    assert (emitted[1:, 0] == 0).all() and (emitted[-1] > 0).sum() == 1


def test_one_compilation_a_shape():
    """Other inputs, lengths, texts and temperatures are no new shape."""
    sources = [[1], [3, 8, 9, 10, 11, 1], [2, 2], [28] * WIDE]
    other = make_prompt([[0, 9, 9], [0], [0, 1], [0, 0]])
    other = other._replace(inputs=pad(sources))
    request, one = make_request(0.5, 3, other), player(SMALLER)
    said = played(SMALLER, 1.0), play(one, SMALLER.params(WORLD), request, other)
    assert said[0].texts != said[1].texts
    assert sorted(one.traces) == ["begin", "step"]
    loop, traces = baseline()
    loop(Params(WORLD.target_weights), other, request)
    assert greedy() and traces == [PROMPT.inputs[0].shape]
    wider = other._replace(inputs=pad(sources, WIDE + 1))
    jax.eval_shape(one.begin, SMALLER.params(WORLD), wider)
    assert len(one.traces) == 3  # the count does count


def rows_of(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


@pytest.mark.parametrize("order", [[2, 0, 3, 1], [1, 1, 1, 1], [0, 2, 2, 2]])
def test_a_rows_text_does_not_depend_on_its_slot_or_its_mates(order):
    whole, moved = played(SMALLER, 1.0), (PROMPT, make_request(1.0))
    prompt, request = rows_of(moved, jnp.array(order))
    got = play(player(SMALLER), SMALLER.params(WORLD), request, prompt)
    assert got.texts == [whole.texts[i] for i in order]


@pytest.mark.parametrize("case", [SMALLER, EARLY_EXIT], ids=lambda case: case.name)
def test_what_is_stale_is_never_read(case):
    """Beyond a row's cursor in either cache, and beyond its input."""
    read, params, request = PROMPT.inputs[1], case.params(WORLD), make_request(1.0)

    def poison(state: State, back: int = 0) -> State:
        target = tiny_t5.ruin(state.target_cache, state.length - 1 - back, read)
        draft = state.draft_cache
        if draft:  # it is fed the last two tokens anew
            draft = tiny_t5.ruin(draft, jnp.maximum(state.length - 2, 0), read)
        return state._replace(target_cache=target, draft_cache=draft)

    ruined = play(player(case), params, request, between=poison)
    jax.tree.map(np.testing.assert_array_equal, ruined, played(case, 1.0))
    worse = play(
        player(case), params, request, between=functools.partial(poison, back=1)
    )
    assert worse.texts != played(case, 1.0).texts


# A padded vocabulary.


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_of_the_vocabulary_is_never_written(temperature):
    """Nor drafted by a T5; it is by drafters that know nothing of it."""
    foolish = (RANDOM, GPT, BIGRAM)
    for case in CASES:
        run = played(case, temperature)
        assert max(map(max, run.texts)) < PIECES
        if case not in foolish:
            assert drafted(run).max() < PIECES
    assert all(drafted(played(case, 1.0)).max() >= PIECES for case in foolish)


# Copying from what the encoder reads.


def copied(text: list[int], source: list[int]) -> list[int]:
    """What follows the longest of up to three last tokens, where it last occurs."""
    for size in (3, 2, 1):
        end = text[-size:] if size <= len(text) else None
        at = [i for i in range(size, len(source)) if source[i - size : i] == end]
        if at:
            return source[at[-1] : at[-1] + GAMMA]
    return []


def deaf():
    """The target's weights, with nothing of the input let through to the text."""
    params = jax.tree.map(lambda leaf: leaf, WORLD.target_weights)
    for layer in ("layers_0", "layers_1"):
        out = params["decoder"][layer]["encoder_decoder_attention"]["out"]
        out["kernel"] = jnp.zeros_like(out["kernel"])
    return params


def test_copying_copies_from_the_input():
    """A text that its input already holds is copied from there, place by place."""
    one, params, request = player(COPYING), Params(deaf()), make_request(0.0)
    said = play(one, params, request).texts
    whole = [start + text for start, text in zip(TEXTS, said, strict=True)]
    ends = [len(text) for text in whole]
    ends[1], ends[2] = 12, 9  # cut short: nothing beyond may be drafted
    sources = [text[:end] for text, end in zip(whole, ends, strict=True)]
    length = jnp.array(ends, jnp.int32)
    prompt = PROMPT._replace(inputs=(pad(whole, WIDE)[0], length))

    state, accepted, nums = one.begin(params, prompt), 0, set()
    turns = tiny.bound()
    while not np.all(finished(request, state)):
        next(turns)
        active = ~np.asarray(finished(request, state))
        tokens, length = map(np.asarray, state[:2])
        before = [row[:n].tolist() for row, n in zip(tokens, length, strict=True)]
        state, info = one.step(params, request, state)
        info = jax.tree.map(np.asarray, info)
        accepted += info.accepted
        for row in np.flatnonzero(active):
            num = int(info.drafted[row])
            expected = copied(before[row], sources[row])
            assert info.tokens[row, :num].tolist() == expected
            nums.add(num)
    assert texts(state.tokens, state.length) == said
    assert nums == set(range(GAMMA + 1))
    # Whole inputs give nearly all; those cut short what they hold, or less.
    assert (accepted[[0, 3]] >= NEW // 2).all() and (accepted[1:3] > 0).all()


def test_copying_with_nothing_to_copy_drafts_nothing():
    said = {token for text in greedy() for token in text} | {0, 3, 5, 7}
    unsaid = next(token for token in range(PIECES) if token not in said)
    prompt = PROMPT._replace(inputs=pad([[unsaid] * WIDE] * BATCH))
    run = play(player(COPYING), Params(deaf()), make_request(0.0), prompt)
    assert not total(run, "drafted").any()


# The law of random texts, at temperature 1.

TINY = t5.Config(4, 8, 8, 1, 2, num_heads=2, head_width=4, pieces=3)
FEW = tiny_t5.world(TINY, noise=0.3, sharp=1.2)
READ = [[3, 2, 1], [1], [2, 0]]  # three inputs, their rows in turn
EACH, FIRST, AHEAD = 1500, 2, 2


@functools.cache
def exact_law(source: int) -> np.ndarray:
    """Of the first two tokens after PAD, [V * V], in float64."""

    def after(text):
        config, params = TINY, FEW.target_weights
        z = logits_by_hand(config, params, READ[source], [t5.PAD, *text])[-1]
        p = np.exp(z - z.max())
        return p / p.sum()

    second = np.stack([after([x]) for x in range(TINY.vocab)])
    return (after([])[:, None] * second).ravel()


@functools.cache
def shifting(case: Case) -> Player:
    """Its parameters are the drafter's and a number: each draft claims the law that the
    row so many before drew from, which is right for 0."""
    parts = case.parts(FEW, AHEAD)

    def init(params, prompt, slots):
        return parts.drafter.init(params[0], prompt, slots)

    def draft(key, params, request, state):
        right, cache = parts.drafter.draft(key, params[0], request, state)
        law = jax.tree.map(lambda leaf: jnp.roll(leaf, params[1], axis=0), right.law)
        return right._replace(law=law), cache

    drafter = parts.drafter._replace(init=init, draft=draft)
    return make_player(parts._replace(drafter=drafter), 1 + FIRST + AHEAD + 1)


def p_values(case: Case, law_of: int = 0, inputs_of: int = 0) -> list[float]:
    """One for each input. A row's draft claims the law, and its encoder reads the
    input, of the row so many before."""
    rows = EACH * len(READ)
    read = READ[-inputs_of:] + READ[:-inputs_of] if inputs_of else READ
    prompt = make_prompt([[t5.PAD]] * rows, read * EACH)
    sampling = make_sampling(rows, 1.0)
    request = inputs.make_request(jax.random.key(1), prompt, FIRST, sampling)
    params = Params(FEW.target_weights, (case.weights(FEW), law_of))
    found = np.array(play(shifting(case), params, request, prompt).texts)
    joined = np.ravel_multi_index(found.T, (TINY.vocab,) * FIRST)
    size = TINY.vocab**FIRST
    return [
        g_test(np.bincount(joined[i :: len(READ)], minlength=size), exact_law(i))
        for i in range(len(READ))
    ]


@pytest.mark.parametrize("case", [SMALLER, COPYING], ids=lambda case: case.name)
def test_the_first_tokens_follow_the_target(case):
    assert min(p_values(case)) > 1e-3


def test_the_check_notices_a_law_recorded_in_another_row():
    assert max(p_values(SMALLER, law_of=1)) < 1e-6


def test_the_check_notices_an_input_read_in_another_row():
    assert max(p_values(SMALLER, inputs_of=1)) < 1e-6


@functools.cache
def fixture() -> Fixture:
    """Both T5s after one input: logits at every prefix, all in one cached call."""
    longest = 4
    grid = np.indices((TINY.vocab,) * longest).reshape(longest, -1).T
    tokens = np.pad(grid, ((0, 0), (1, 0)))
    prompt = make_prompt(tokens.tolist(), [READ[0]] * len(tokens))

    shape = *(TINY.vocab,) * longest, longest + 1, TINY.vocab

    def of(model, params):
        @quick_jit
        def score(params):
            cache = model.init(params, prompt, longest + 1)
            zero = jnp.zeros_like(prompt.length)
            features, _ = model.apply(params, prompt.tokens, zero, cache)
            return model.readout(params, features)

        rows = np.asarray(score(params)).reshape(shape)
        return lambda text: rows[text + (0,) * (longest - len(text))][len(text)]

    models = of(FEW.target, FEW.target_weights), of(FEW.draft, FEW.draft_weights)
    return Fixture("two T5s", TINY.vocab, *models)


def test_the_law_of_a_step_is_exact_by_enumeration():
    found = certify.certify(token.verifier, fixture(), AHEAD, n=2)
    assert found.exact and not found.broken and found.error < 2e-7
    own = np.array([fixture().target(()), fixture().target((2,))])
    by_hand = logits_by_hand(TINY, FEW.target_weights, READ[0], [t5.PAD, 2])
    np.testing.assert_allclose(own, by_hand, atol=1e-4)


# Inputs that no encoder can read.


def spoilt(change) -> Prompt:
    tokens, length = map(np.array, PROMPT.inputs)
    change(tokens, length)
    return PROMPT._replace(inputs=(jnp.asarray(tokens), jnp.asarray(length)))


def put(name: str, at, value):
    def change(tokens, length):
        {"tokens": tokens, "length": length}[name][at] = value

    return change


SPOILT = {
    "empty": put("length", 1, 0),
    "longer than its array": put("length", 0, WIDE + 1),
    "beyond the vocabulary": put("tokens", (3, 2), TARGET.vocab),
    "below the vocabulary": put("tokens", (2, 0), -1),
}


@pytest.mark.parametrize("case", [SMALLER, COPYING], ids=lambda case: case.name)
@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_a_bad_input_is_refused(case, change):
    run = generate.build(case.parts(WORLD, GAMMA), SLOTS)
    with pytest.raises(ValueError, match="inputs"):
        run(case.params(WORLD), spoilt(change), make_request(0.0))


def test_an_encoder_with_nothing_to_read_is_refused():
    run = generate.build(BIGRAM.parts(WORLD, GAMMA), SLOTS)
    with pytest.raises(ValueError, match="inputs"):
        run(BIGRAM.params(WORLD), PROMPT._replace(inputs=None), make_request(0.0))


def test_good_inputs_are_not_refused():
    given = SMALLER.params(WORLD), spoilt(lambda *_: None), make_request(0.0)
    check(SMALLER.parts(WORLD, GAMMA), SLOTS, *given)
    last = put("tokens", (3, 2), TARGET.vocab - 1)  # padding of the vocabulary: an id
    check(SMALLER.parts(WORLD, GAMMA), SLOTS, given[0], spoilt(last), given[2])
