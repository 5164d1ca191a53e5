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
from specjax.types import Params, Prompt
from tests.support import tiny, tiny_t5
from tests.support.drafter_cases import BY_NAME, Case
from tests.support.tiny_t5 import TARGET

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
