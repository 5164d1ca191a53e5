"""A Whisper encodes a window once for target and draft."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax.drafters import autoregressive
from specjax.inputs import make_prompt
from specjax.models import whisper
from specjax.models.whisper import sinusoids
from specjax.step import Decoder
from specjax.types import Params
from tests.support import tiny_whisper
from tests.support.model_cases import write_greedy
from tests.support.tiny_whisper import SMALL, TARGET

WORLD = tiny_whisper.world()
PROMPT = make_prompt([[3, 12], [5], [0, 28, 1]])._replace(inputs=tiny_whisper.sounds(3))


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
    pair = Decoder(WORLD.target, autoregressive.build(WORLD.draft, 3))
    drafted = write_greedy(pair, Params(*ruined), PROMPT._replace(inputs=heard), new=12)
    alone = write_greedy(
        Decoder(WORLD.target), Params(WORLD.target_weights), PROMPT, new=12
    )
    np.testing.assert_array_equal(drafted.tokens, alone.tokens)
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
