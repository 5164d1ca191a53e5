"""Texts of an encoder-decoder: the target's own with every kind of drafter.

That rows end, and are read, each at its own slot is `test_generate.py`'s; here each has
an input too. Greedy texts are compared token by token, random ones by their law, which
numpy knows.
Axes: B rows, T tokens, I input tokens, N rows of a sample, G = gamma, V vocabulary.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive, nothing
from specjax.inputs import make_prompt, make_sampling, pad
from specjax.models import gpt, t5
from specjax.step import Decoder, build_step, finished
from specjax.types import Info, Params, Prompt, Request
from tests.support import tiny, tiny_t5
from tests.support.checkpoint_folders import params_of
from tests.support.drafter_cases import BY_NAME, Case
from tests.support.goodness import g_test
from tests.support.tiny_t5 import TARGET, logits_by_hand

GAMMA, NEW, SLOTS = 3, 20, 28
SOURCES = [[5, 9, 2, 17, 11, 3], [7, 7, 20], [4], [12, 25, 6, 8]]
TEXTS = [[0], [0, 5, 7], [0, 3], [0]]
WIDE = 24  # of inputs: most of it is padding
PROMPT = make_prompt(TEXTS)._replace(inputs=pad(SOURCES, WIDE))
BATCH, PIECES = len(TEXTS), TARGET.pieces
WORLD = tiny_t5.world()

DECODER_ONLY = gpt.Config(TARGET.vocab, 16, 32, num_layers=1, num_heads=2)


CASES = (
    Case("nothing", lambda world, gamma: nothing.drafter),
    *(BY_NAME[name] for name in ("autoregressive", "early_exit", "copying")),
    Case(
        "decoder-only",
        lambda world, gamma: autoregressive.build(gpt.build(DECODER_ONLY), gamma),
        lambda world: params_of(DECODER_ONLY),
    ),
)
NOTHING, SMALLER, EARLY_EXIT, COPYING, GPT = CASES
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Side(NamedTuple):
    """begin: (params, prompt) -> State. step: as `build_step`. traces: one a shape."""

    begin: object
    step: object
    traces: list


def make_player(decoder: Decoder, slots: int = SLOTS) -> Side:
    traces, step = [], build_step(*decoder)

    def begin(params, prompt):
        traces.append("begin")
        return generate.prefill(decoder, params, prompt, slots)

    def counted(params, request, state):
        traces.append("step")
        return step(params, request, state)

    return Side(jax.jit(begin), jax.jit(counted), traces)


@functools.cache
def player(case: Case) -> Side:
    return make_player(case.decoder(WORLD, GAMMA))


def make_request(temperature: float, seed: int = 0, prompt: Prompt = PROMPT) -> Request:
    sampling = make_sampling(prompt.length.shape[0], temperature)
    return inputs.make_request(jax.random.key(seed), prompt, NEW, sampling)


class Run(NamedTuple):
    """What a row generated, and what was measured in each step."""

    texts: list[list[int]]
    infos: list[Info]


def play(player: Side, params: Params, request: Request, prompt=PROMPT) -> Run:
    """Steps until all rows have ended."""
    state, infos = player.begin(params, prompt), []
    turns = tiny.bound()
    while not np.all(finished(request, state)):
        next(turns)
        state, info = player.step(params, request, state)
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
    return np.concatenate(
        [info.tokens[np.arange(GAMMA) < info.drafted[:, None]] for info in run.infos]
    )


# Greedy texts.


@functools.cache
def greedy() -> list[list[int]]:
    """No cache, no prefill: the whole text is read anew for each token."""
    read = t5.Inputs(*PROMPT.inputs)

    @jax.jit
    def extend(tokens, length):
        logits = t5.logits(TARGET, WORLD.target_weights, read, tokens)
        row = jnp.arange(BATCH)
        best = jnp.argmax(logits[row, length - 1], axis=-1)
        return tokens.at[row, length].set(best), length + 1

    width = PROMPT.tokens.shape[1]
    tokens = jnp.pad(PROMPT.tokens, ((0, 0), (0, SLOTS - width)))
    length = PROMPT.length
    for _ in range(NEW):
        tokens, length = extend(tokens, length)
    return texts(tokens, length)


@each_case
def test_greedy_text_is_the_argmax_of_a_full_recomputation(case):
    assert played(case, 0.0).texts == greedy()
    assert min(len(set(text)) for text in greedy()) >= 6  # no row only repeats


def test_inputs_matter_to_the_text_and_not_to_the_program():
    """Else parity would say nothing of them; other lengths are no new shape."""
    assert greedy()[0] != greedy()[3]  # these rows start alike
    tokens, length = PROMPT.inputs
    other = PROMPT._replace(inputs=(tokens[::-1], length[::-1]))
    stepper = player(SMALLER)
    run = play(stepper, SMALLER.params(WORLD), make_request(0.0), other)
    assert all(a != b for a, b in zip(run.texts, greedy(), strict=True))
    assert sorted(stepper.traces) == ["begin", "step"]
    wider = PROMPT._replace(inputs=pad(SOURCES, WIDE + 1))
    jax.eval_shape(stepper.begin, SMALLER.params(WORLD), wider)
    assert len(stepper.traces) == 3  # the count does count


def test_some_drafts_are_accepted_and_some_are_not():
    for case in (SMALLER, EARLY_EXIT):
        for temperature in (0.0, 1.0):
            run = played(case, temperature)
            accepted, tested = total(run, "accepted"), total(run, "tested")
            assert np.all((0 < accepted) & (accepted < tested)), case.name


# A padded vocabulary.


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_of_the_vocabulary_is_never_written(temperature):
    """Nor drafted by a T5; it is by a drafter that knows nothing of it."""
    for case in (SMALLER, EARLY_EXIT, GPT):
        run = played(case, temperature)
        assert max(map(max, run.texts)) < PIECES
        assert case is GPT or drafted(run).max() < PIECES
    assert drafted(played(GPT, 1.0)).max() >= PIECES


# Copying from what the encoder reads.


def deaf():
    """The target's weights, with nothing of the input let through to the text."""
    params = jax.tree.map(lambda leaf: leaf, WORLD.target_weights)
    for layer in ("layers_0", "layers_1"):
        out = params["decoder"][layer]["encoder_decoder_attention"]["out"]
        out["kernel"] = jnp.zeros_like(out["kernel"])
    return params


def test_copying_copies_from_the_input():
    """A text that its input already holds is mostly copied; less where that is cut."""
    params, request = Params(deaf()), make_request(0.0)
    own = play(player(COPYING), params, request).texts
    whole = [start + text for start, text in zip(TEXTS, own, strict=True)]
    ends = [len(text) for text in whole]
    ends[1], ends[2] = 12, 9
    tokens, length = pad(whole, WIDE)
    runs = [
        play(player(COPYING), params, request, PROMPT._replace(inputs=(tokens, read)))
        for read in (length, jnp.array(ends, jnp.int32))
    ]
    assert [run.texts for run in runs] == [own, own]
    entire, short = (total(run, "accepted") for run in runs)
    assert (entire >= NEW // 2).all() and (short > 0).all()
    np.testing.assert_array_equal(short < entire, [False, True, True, False])


def test_copying_with_nothing_to_copy_drafts_nothing():
    written = {token for text in (*greedy(), *TEXTS) for token in text}
    unwritten = next(token for token in range(PIECES) if token not in written)
    prompt = PROMPT._replace(inputs=pad([[unwritten] * WIDE] * BATCH))
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
def shifting() -> Side:
    """Its parameters are the drafter's and a number: each draft claims the law that the
    row so many before drew from, which is right for 0."""
    decoder = SMALLER.decoder(FEW, AHEAD)

    def init(params, prompt, slots):
        return decoder.drafter.init(params[0], prompt, slots)

    def draft(key, params, request, state):
        right, cache = decoder.drafter.draft(key, params[0], request, state)
        law = jax.tree.map(lambda leaf: jnp.roll(leaf, params[1], axis=0), right.law)
        return right._replace(law=law), cache

    drafter = decoder.drafter._replace(init=init, draft=draft)
    return make_player(decoder._replace(drafter=drafter), 1 + FIRST + AHEAD + 1)


def p_values(law_of: int = 0, inputs_of: int = 0) -> list[float]:
    """One for each input. A row's draft claims the law, and its encoder reads the
    input, of the row so many before."""
    rows = EACH * len(READ)
    read = READ[-inputs_of:] + READ[:-inputs_of] if inputs_of else READ
    prompt = make_prompt([[t5.PAD]] * rows, read * EACH)
    sampling = make_sampling(rows, 1.0)
    request = inputs.make_request(jax.random.key(1), prompt, FIRST, sampling)
    params = Params(FEW.target_weights, (FEW.draft_weights, law_of))
    pairs = np.array(play(shifting(), params, request, prompt).texts)
    joined = np.ravel_multi_index(pairs.T, (TINY.vocab,) * FIRST)
    size = TINY.vocab**FIRST
    return [
        g_test(np.bincount(joined[i :: len(READ)], minlength=size), exact_law(i))
        for i in range(len(READ))
    ]


def test_the_first_tokens_follow_the_target():
    assert min(p_values()) > 1e-3


def test_the_check_notices_a_law_recorded_in_another_row():
    assert max(p_values(law_of=1)) < 1e-6


def test_the_check_notices_an_input_read_in_another_row():
    assert max(p_values(inputs_of=1)) < 1e-6
