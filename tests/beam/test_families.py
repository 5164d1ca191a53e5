"""Beam search of every family of models, alone and with a draft of its kind."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.beam import search, settings
from specjax.beam.hypotheses import Limits
from specjax.beam.settings import BeamConfig
from specjax.types import Params, Prompt
from tests.support import beam_worlds, model_cases, slow
from tests.support.model_cases import CASES, B, Case

CONFIG = BeamConfig(width=3, gamma=2, draft_width=5, length_penalty=0.8)
MOST, LENGTHS, END = 6, (5, 1, 3), 7


@functools.cache
def whole_text_logits(case: Case):
    """Returns (row, text) -> logits [V] of a whole text, without a cache."""
    size = max(LENGTHS) + MOST
    run = jax.jit(functools.partial(case.whole, case.config))
    weights, inputs = case.world().target_weights, case.inputs()

    def logits(row: int, text) -> np.ndarray:
        padded = np.zeros((B, size), np.int32)
        padded[row, : len(text)] = text
        return np.asarray(run(weights, padded, inputs))[row, len(text) - 1]

    return logits


@pytest.mark.parametrize(
    "case",
    slow.mark_slow_unless(lambda case: case.name in ("gpt", "t5"), CASES),
    ids=lambda case: case.name,
)
def test_texts_are_those_of_the_definition(case):
    """Prompts have different lengths; a call of a tree and a call of a whole text round
    differently."""
    world = case.world()
    length = np.ones(B, int) if case.name == "t5" else np.array(LENGTHS)
    prompt = Prompt(jnp.asarray(model_cases.TOKENS), jnp.int32(length), case.inputs())
    divisor = settings.divisors(CONFIG.length_penalty, MOST)
    limits = Limits(jnp.full(B, MOST), jnp.full((B, 1), END), jnp.asarray(divisor))
    expected = [
        beam_worlds.search_by_definition(
            functools.partial(whole_text_logits(case), row),
            model_cases.TEXTS[row][: length[row]],
            width=CONFIG.width,
            most=MOST,
            ends=[END],
            length_penalty=CONFIG.length_penalty,
        )
        for row in range(B)
    ]
    params = Params(world.target_weights, world.draft_weights)
    target, draft = world.target, world.draft
    if case.portion is not None:  # caches of windows have room for all beams
        target = draft = case.module.build(case.config, 100)
    for drafter in (None, draft):
        run = jax.jit(search.build(target, drafter, CONFIG))
        got = jax.device_get(run(params, prompt, limits))
        for row, (texts, steps) in enumerate(expected):
            each = zip(got.tokens[row], got.length[row], strict=True)
            assert [tuple(ids[:n]) for ids, n in each] == [x.tokens for x in texts]
            scores = [text.score for text in texts]
            np.testing.assert_allclose(got.score[row], scores, atol=1e-4)
            assert got.steps[row] == steps
    assert got.calls.sum() < got.steps.sum()
