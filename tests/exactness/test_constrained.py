"""A draft changes no text of a target whose constraint depends on the whole text.

Races are drawn by position, so that a text is that of the same keys without a drafter
if, and in the mean only if, whatever a verifier reads behind any drafts is what it
reads without: the law that `test_certify.py` has it keep to.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import autoregressive, nothing
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt
from specjax.models.constrained import constrained
from specjax.step import Decoder
from specjax.types import Model, Params, TokenAutomaton
from specjax.verifiers import gumbel

V, G, NEW, ROWS, SLOTS = 5, 3, 12, 32, 24
FACTOR, OFFSET, SEED = 2654435761, 97, 41
CONFIG = gpt.Config(vocab=V, dim=8, mlp_dim=16, num_layers=2, num_heads=2)
RIGHT, STUCK, UNMOVED = range(3)


def forbidden_id(code):
    """Returns the id that is forbidden, which depends on every token of a text."""
    return (code >> 7) % V


def _begin(tokens, length):
    def step(code, place):
        moved = jnp.where(place < length, _advance(code, tokens[:, place]), code)
        return moved, None

    seed = jnp.full(length.shape, SEED, jnp.uint32)
    return jax.lax.scan(step, seed, jnp.arange(tokens.shape[1]))[0]


def _advance(code, token):
    return code * jnp.uint32(FACTOR) + jnp.uint32(OFFSET) * (token + 1).astype("uint32")


def _apply(code, logits):
    return jnp.where(jnp.arange(V) == forbidden_id(code)[..., None], -jnp.inf, logits)


RULES = TokenAutomaton(_begin, _advance, _apply)


def break_model(model: Model, how) -> Model:
    """Returns a broken model. STUCK: all drafted tokens of a call leave the state that
    the first one left. UNMOVED: the state after a token is not kept for the next
    call."""

    def apply(params, tokens, start, cache):
        features, after = model.apply(params, tokens, start, cache)
        state = features.states
        features = features._replace(
            states=jnp.where(how == STUCK, state[:, :1], state)
        )
        states = jnp.where(how == UNMOVED, cache.states, after.states)
        return features, after._replace(states=states)

    return model._replace(apply=apply)


def weights(layers: int):
    rng = np.random.default_rng(layers)
    shapes = gpt.abstract_params(CONFIG._replace(num_layers=layers))
    return jax.tree.map(
        lambda leaf: jnp.float32(rng.normal(scale=0.25, size=leaf.shape)), shapes
    )


PROMPT = make_prompt([[1, 0, 2], [4], [3, 3]] * (ROWS // 3 + 1))
PROMPT = jax.tree.map(lambda leaf: leaf[:ROWS], PROMPT)
REQUEST = make_request(jax.random.key(0), PROMPT, NEW, make_sampling(ROWS, 1.0))


@functools.partial(jax.jit, static_argnums=0)
def decode(draft: str, how, params) -> generate.Output:
    target, small = (gpt.build(CONFIG._replace(num_layers=n)) for n in (2, 1))
    drafters = {
        "none": lambda: nothing.drafter,
        "ruled": lambda: autoregressive.build(constrained(small, RULES), G),
        "free": lambda: autoregressive.build(small, G),
    }
    target = break_model(constrained(target, RULES), how)
    decoder = Decoder(target, drafters[draft](), gumbel.verifier)
    return generate.build_loop(decoder, SLOTS)(params, PROMPT, REQUEST)


@functools.cache
def texts(draft: str, how: int = RIGHT) -> np.ndarray:
    output = decode(draft, how, Params(weights(2), weights(1)))
    assert draft == "none" or 0 < output.counts.accepted.sum()
    return np.array(output.tokens)


def test_every_text_keeps_the_rules():
    for text, begin in zip(texts("none").tolist(), PROMPT.length.tolist(), strict=True):
        code = SEED
        for place in range(begin + NEW):
            assert place < begin or text[place] != forbidden_id(code)
            code = (code * FACTOR + OFFSET * (text[place] + 1)) % 2**32


# A draft without rules proposes what the target may not say.
@pytest.mark.parametrize("draft", ["ruled", "free"])
def test_a_draft_changes_no_text(draft):
    np.testing.assert_array_equal(texts(draft), texts("none"))


@pytest.mark.parametrize("how", [STUCK, UNMOVED])
def test_a_state_that_drafted_tokens_leave_behind_is_caught(how):
    same = (texts("ruled", how) == texts("none")).all(axis=1)
    assert same.mean() < 0.5
