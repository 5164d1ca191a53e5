"""Whisper decodes with every kind of draft, and hears a window once for both sides."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import autoregressive, copying
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import whisper
from specjax.models.whisper import sinusoids
from specjax.step import Decoder
from specjax.types import Params, Prompt
from tests.support import tiny_whisper
from tests.support.tiny_whisper import SMALL, TARGET

WORLD = tiny_whisper.world()
PROMPT = make_prompt([[3, 12], [5], [0, 28, 1]])._replace(inputs=tiny_whisper.sounds(3))
SMALLER = autoregressive.build(WORLD.draft, 3)
DRAFTERS = [(SMALLER, WORLD.draft_weights), (copying.build(3), None)]


def texts(decoder: Decoder, params: Params, prompt: Prompt = PROMPT) -> np.ndarray:
    request = make_request(jax.random.key(0), prompt, 12, make_sampling(3, 0.0))
    output = generate.build(decoder, 20)(params, prompt, request)
    return np.asarray(output.tokens)


@functools.cache
def alone() -> np.ndarray:
    return texts(Decoder(WORLD.target), Params(WORLD.target_weights))


@pytest.mark.parametrize(("drafter", "weights"), DRAFTERS, ids=["smaller", "copying"])
def test_greedy_texts_are_those_without_a_draft(drafter, weights):
    params = Params(WORLD.target_weights, weights)
    written = texts(Decoder(WORLD.target, drafter), params)
    np.testing.assert_array_equal(written, alone())
    assert len(np.unique(written[:, 3:])) > 6, "too little to be compared"


def test_states_that_are_shared_are_those_that_either_side_would_hear():
    encode = jax.jit(functools.partial(whisper.encode, TARGET))
    heard = encode(WORLD.target_weights, PROMPT.inputs)
    assert whisper.same_encoder(WORLD.target_weights, WORLD.draft_weights)
    assert heard.states.shape == (3, TARGET.states, TARGET.dim)
    # No side runs an encoder of its own: that of each is ruined.
    ruined = [
        weights | {"encoder": jax.tree.map(jnp.zeros_like, weights["encoder"])}
        for weights in (WORLD.target_weights, WORLD.draft_weights)
    ]
    prompt = PROMPT._replace(inputs=heard)
    written = texts(Decoder(WORLD.target, SMALLER), Params(*ruined), prompt)
    np.testing.assert_array_equal(written, alone())
    other = encode(ruined[0], PROMPT.inputs).states  # the check would notice
    assert np.abs(other - heard.states).max() > 0.1


def test_other_encoders_are_told_apart():
    for change in ({}, dict(encoder_layers=2), dict(mlp_dim=25)):
        other = tiny_whisper.weights(TARGET._replace(**change), 9)
        assert not whisper.same_encoder(WORLD.target_weights, other)


def test_positions_of_the_encoder_are_sinusoids_and_are_not_trained():
    table = sinusoids(5, 8)
    wavelengths = 10_000.0 ** (np.arange(4) / 3)
    np.testing.assert_allclose(table[3, :4], np.sin(3 / wavelengths), atol=1e-6)
    np.testing.assert_allclose(table[3, 4:], np.cos(3 / wavelengths), atol=1e-6)

    def total(params):
        return whisper.logits(SMALL, params, PROMPT.inputs, jnp.ones((3, 4), int)).sum()

    slopes = jax.jit(jax.grad(total))(WORLD.draft_weights)["encoder"]
    assert not slopes["positions"].any() and slopes["conv_0"]["kernel"].any()
