"""Whisper decodes with every kind of draft, and hears a window once for both sides.

What it computes is compared with transformers in `tests/checkpoints`.
Axes: B rows, F frames, M bands.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, sides
from specjax.drafters import autoregressive, copying
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import whisper
from specjax.models.whisper import Convolution, sinusoids
from specjax.step import Decoder
from specjax.types import Params, Prompt
from tests.support import tiny_whisper
from tests.support.tiny_whisper import SMALL, TARGET

WORLD = tiny_whisper.world()
PROMPT = make_prompt([[3, 12], [5], [0, 28, 1]])._replace(inputs=tiny_whisper.sounds(3))
DRAFTERS = {
    "smaller": (autoregressive.build(WORLD.draft, 3), WORLD.draft_weights),
    "copying": (copying.build(3), None),
}


def texts(decoder: Decoder, params: Params, prompt: Prompt = PROMPT) -> np.ndarray:
    request = make_request(jax.random.key(0), prompt, 12, make_sampling(3, 0.0))
    output = generate.build(decoder, 20)(params, prompt, request)
    return np.asarray(output.tokens)


@functools.cache
def alone() -> np.ndarray:
    return texts(Decoder(WORLD.target), Params(WORLD.target_weights))


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_texts_are_those_without_a_draft(name):
    drafter, weights = DRAFTERS[name]
    params = Params(WORLD.target_weights, weights)
    written = texts(Decoder(WORLD.target, drafter), params)
    np.testing.assert_array_equal(written, alone())
    assert len(np.unique(written[:, 3:])) > 6, "too little to be compared"


def test_states_that_are_shared_are_those_that_either_side_would_hear():
    encode = jax.jit(functools.partial(whisper.encode, TARGET))
    heard = encode(WORLD.target_weights, PROMPT.inputs)
    assert whisper.same_encoder(WORLD.target_weights, WORLD.draft_weights)
    assert heard.states.shape == (3, TARGET.states, TARGET.dim)
    drafter = autoregressive.build(WORLD.draft, 3)
    # No side runs an encoder of its own: that of each is ruined.
    ruined = [
        weights | {"encoder": jax.tree.map(jnp.zeros_like, weights["encoder"])}
        for weights in (WORLD.target_weights, WORLD.draft_weights)
    ]
    prompt = PROMPT._replace(inputs=heard)
    written = texts(Decoder(WORLD.target, drafter), Params(*ruined), prompt)
    np.testing.assert_array_equal(written, alone())
    other = encode(ruined[0], PROMPT.inputs).states  # the check would notice
    assert np.abs(other - heard.states).max() > 0.1


def test_other_encoders_are_told_apart():
    params, other = WORLD.target_weights, tiny_whisper.weights(SMALL, 9)
    assert not whisper.same_encoder(params, other)
    deeper = tiny_whisper.weights(TARGET._replace(encoder_layers=2), 4)
    wider = tiny_whisper.weights(TARGET._replace(mlp_dim=25), 4)
    assert not whisper.same_encoder(params, deeper)
    assert not whisper.same_encoder(params, wider)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("frames", [6, 7])
def test_a_convolution_is_jax_s(frames, stride):
    rng = np.random.default_rng(0)
    x = jnp.float32(rng.standard_normal((2, frames, 3)))
    params = {
        "kernel": jnp.float32(rng.standard_normal((3, 3, 5))),
        "bias": jnp.float32(rng.standard_normal(5)),
    }
    y = Convolution(5, stride, jnp.float32).apply({"params": params}, x)
    layout = "NWC", "WIO", "NWC"
    expected = jax.lax.conv_general_dilated(
        x, params["kernel"], (stride,), [(1, 1)], dimension_numbers=layout
    )
    np.testing.assert_allclose(y, expected + params["bias"], atol=1e-5)


def test_positions_of_the_encoder_are_sinusoids_and_are_not_trained():
    table = sinusoids(5, 8)
    wavelengths = 10_000.0 ** (np.arange(4) / 3)
    np.testing.assert_allclose(table[3, :4], np.sin(3 / wavelengths), atol=1e-6)
    np.testing.assert_allclose(table[3, 4:], np.cos(3 / wavelengths), atol=1e-6)

    def total(params):
        return whisper.logits(SMALL, params, PROMPT.inputs, jnp.ones((3, 4), int)).sum()

    slopes = jax.jit(jax.grad(total))(WORLD.draft_weights)["encoder"]
    assert not slopes["positions"].any() and slopes["conv_0"]["kernel"].any()


def test_its_first_layers_are_a_model():
    shallow = sides.first_layers(TARGET, 1)
    assert shallow.shapes == whisper.abstract_params(SMALL)
