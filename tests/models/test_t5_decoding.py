"""Texts of an encoder-decoder: the target's own with every kind of drafter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import nothing
from specjax.generate import Output
from specjax.inputs import make_prompt, make_request, make_sampling, pad
from specjax.models import t5
from specjax.step import Decoder
from specjax.types import Params, Prompt
from tests.support import tiny, tiny_t5
from tests.support.drafter_cases import BY_NAME, Case
from tests.support.goodness import g_test
from tests.support.tiny_t5 import TARGET, logits_by_hand

GAMMA, NEW, SLOTS = 3, 20, 28
SOURCES = [[5, 9, 2, 17, 11, 3], [7, 7, 20], [4], [12, 25, 6, 8]]
TEXTS = [[0], [0, 5, 7], [0, 3], [0]]
WIDE = 24  # of inputs: most of it is padding
PROMPT = make_prompt(TEXTS)._replace(inputs=pad(SOURCES, WIDE))
WORLD = tiny_t5.world()
NAMES = "autoregressive", "early_exit", "copying"
NOTHING = Case("nothing", lambda world, gamma: nothing.drafter)
CASES = (NOTHING, *(BY_NAME[name] for name in NAMES))
COPYING = BY_NAME["copying"]


@functools.cache
def loop(case: Case):
    return jax.jit(generate.build_loop(case.decoder(WORLD, GAMMA), SLOTS))


def greedy(case: Case, params: Params, prompt: Prompt = PROMPT) -> Output:
    sampling = make_sampling(len(TEXTS), 0.0)
    request = make_request(jax.random.key(0), prompt, NEW, sampling)
    return jax.device_get(loop(case)(params, prompt, request))


def texts(output: Output) -> list[list[int]]:
    """With their prompts."""
    rows = zip(output.tokens, output.length, strict=True)
    return [row[:end].tolist() for row, end in rows]


@jax.jit
def logits_of(tokens):
    """Of the target without a cache."""
    return t5.logits(TARGET, WORLD.target_weights, t5.Inputs(*PROMPT.inputs), tokens)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_greedy_text_is_the_argmax_of_a_full_recomputation(case):
    output = greedy(case, case.params(WORLD))
    tiny.check_greedy(output, PROMPT.length, logits_of(output.tokens), least=6)
    if case.name in ("autoregressive", "early_exit"):
        accepted, tested = output.counts.accepted, output.counts.tested
        assert np.all((0 < accepted) & (accepted < tested))


def deaf():
    """The target's weights, with nothing of the input let through to the text."""
    params = jax.tree.map(lambda leaf: leaf, WORLD.target_weights)
    for layer in ("layers_0", "layers_1"):
        out = params["decoder"][layer]["encoder_decoder_attention"]["out"]
        out["kernel"] = jnp.zeros_like(out["kernel"])
    return Params(params)


def test_copying_copies_from_the_input():
    """Most of a text that is in its input, less where that is cut."""
    own = greedy(COPYING, deaf())
    ends, whole = own.length.copy(), texts(own)
    ends[1], ends[2] = 12, 9
    tokens, length = pad(whole, WIDE)
    unwritten = min({*range(TARGET.pieces)}.difference(*whole))
    entire, short, none = (
        greedy(COPYING, deaf(), PROMPT._replace(inputs=inputs))
        for inputs in (
            (tokens, length),
            (tokens, jnp.array(ends, jnp.int32)),
            pad([[unwritten] * WIDE] * len(TEXTS)),
        )
    )
    assert texts(entire) == texts(short) == texts(none) == whole
    entire, short = entire.counts.accepted, short.counts.accepted
    assert (entire >= NEW // 2).all() and (short > 0).all()
    np.testing.assert_array_equal(short < entire, [False, True, True, False])
    assert not none.counts.drafted.any()


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
def shifting():
    """Its parameters are the drafter's and a number: each draft claims the law that the
    row so many before drew from, which is right for 0."""
    decoder = BY_NAME["autoregressive"].decoder(FEW, AHEAD)

    def init(params, prompt, slots):
        return decoder.drafter.init(params[0], prompt, slots)

    def draft(key, params, request, state):
        right, cache = decoder.drafter.draft(key, params[0], request, state)
        law = jax.tree.map(lambda leaf: jnp.roll(leaf, params[1], axis=0), right.law)
        return right._replace(law=law), cache

    drafter = decoder.drafter._replace(init=init, draft=draft)
    shifted = Decoder(FEW.target, drafter)
    return jax.jit(generate.build_loop(shifted, 1 + FIRST + AHEAD + 1))


def p_values(law_of: int = 0, inputs_of: int = 0) -> list[float]:
    """One for each input. A row's draft claims the law, and its encoder reads the
    input, of the row so many before."""
    rows = EACH * len(READ)
    read = READ[-inputs_of:] + READ[:-inputs_of] if inputs_of else READ
    prompt = make_prompt([[t5.PAD]] * rows, read * EACH)
    request = make_request(jax.random.key(1), prompt, FIRST, make_sampling(rows, 1.0))
    params = Params(FEW.target_weights, (FEW.draft_weights, law_of))
    pairs = np.asarray(shifting()(params, prompt, request).tokens)[:, 1 : 1 + FIRST]
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
