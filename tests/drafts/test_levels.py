"""A model that drafts and has its own draft keeps its laws and its tokens, and ends
where it should.

Axes: B rows, G = gamma, V vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, probs
from specjax.drafters import autoregressive, copying, suffix
from specjax.drafters.rollout import draw_coupled
from specjax.drafts import levels
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Params
from specjax.verifiers import gumbel
from tests.support import tiny
from tests.support.drafted import build_whole_text_logits, drafts_by_step

PROMPT = make_prompt([[1, 3, 3, 4, 5, 6, 9], [7], [3, 4, 3, 4]])
GAMMA, SLOTS = 4, 18


def largest_difference() -> float:
    """Returns the largest distance between the laws of drafts and those of the model
    above, after steps in which the target rejected tokens and ended drafts of each
    length."""
    world = tiny.transformers()
    model = world.draft._replace(slots=SLOTS)
    drafter = levels.build(model, copying.build(2), GAMMA)
    params = Params(world.target_weights, Params(world.draft_weights, None))
    steps = drafts_by_step(Decoder(world.target, drafter), params, PROMPT, steps=4)
    found, kept = 0.0, set()
    for now, after in zip(steps, [*steps[1:], None], strict=True):
        laws = np.asarray(probs.dense(now.draft.law))
        nums = now.draft.num.tolist()
        texts = now.texts()
        ids = now.draft.tokens.tolist()
        every = [[*text, *row] for text, row in zip(texts, ids, strict=True)]
        logits = build_whole_text_logits(world.draft)(
            world.draft_weights, make_prompt(every).tokens
        )
        wanted = np.asarray(jax.nn.softmax(logits))
        for row, (text, num) in enumerate(zip(texts, nums, strict=True)):
            assert num == min(max(SLOTS + 1 - len(text), 0), GAMMA)
            own = wanted[row, len(text) - 1 :][:num]
            found = max(found, np.abs(laws[row, :num] - own).max(initial=0.0))
            if after is not None:
                kept.add(len(after.texts()[row]) - len(text) - 1)
    assert kept >= {0, GAMMA} and len(kept) > 2
    return found


def test_each_token_has_the_law_of_the_model_whatever_drafted_for_it():
    assert largest_difference() < 1e-5


def test_a_token_that_is_not_read_again_shows_in_the_laws(monkeypatch):
    """If the last token of a draft is not read again, a rejected token of the lower
    draft stays in its place."""
    read = levels.read_again
    monkeypatch.setattr(levels, "read_again", lambda model, count: read(model, 0))
    assert largest_difference() > 1e-2


@pytest.mark.slow
def test_coupled_levels_draft_what_their_model_drafts_alone():
    """The noise of a position decides its token, so lower drafts change only the number
    of calls."""
    world = tiny.tables(10)
    lower = autoregressive.build(world.shallow, 2, draw_coupled, behind=3)
    both = levels.build(world.draft, lower, GAMMA, draw_coupled)
    alone = autoregressive.build(world.draft, GAMMA, draw_coupled)
    weights = Params(world.draft_weights, world.shallow_weights)
    drafted = []
    for drafter, params in ((both, weights), (alone, world.draft_weights)):
        decoder = Decoder(world.target, drafter, gumbel.verifier)
        steps = drafts_by_step(
            decoder, Params(world.target_weights, params), PROMPT, steps=3
        )
        drafted.append([(now.texts(), now.draft.tokens.tolist()) for now in steps])
    assert drafted[0] == drafted[1]


def test_a_damaged_level_is_found_at_any_depth():
    world = tiny.tables(10)
    lowest = autoregressive.build(world.draft, 2, behind=4)
    lower = levels.build(world.draft, lowest, 2, level=2)
    decoder = Decoder(world.target, levels.build(world.draft, lower, 3))
    good, bad = world.draft_weights, jnp.full_like(world.draft_weights, jnp.nan)
    request = make_request(jax.random.key(0), PROMPT, 6, make_sampling(3, 1.0))
    run = generate.build(decoder, 20)
    for damaged in (False, True):
        params = Params(good, Params(good, bad if damaged else good))
        params = Params(world.target_weights, params)
        if not damaged:
            run(params, PROMPT, request)
            continue
        with pytest.raises(FloatingPointError, match="the draft's logits are all NaN"):
            run(params, PROMPT, request)


def test_levels_that_do_not_fit_are_refused():
    world = tiny.transformers()
    head = world.draft._replace(observe=lambda params, cache, call: cache)
    with pytest.raises(ValueError, match="a head reads its target's hidden states"):
        levels.build(head, copying.build(2), 3)
    for lower, message in (
        (suffix.build(4, paths=2), "is a tree, and its levels verify chains"),
        (autoregressive.build(head, 2), "is a head, and no level gives it hidden"),
        (copying.build(2)._replace(vocab=5), "has a vocabulary of 5, the level above"),
    ):
        with pytest.raises(ValueError, match=message):
            levels.build(world.draft, lower, 3)
    with pytest.raises(ValueError, match="gamma must be at least 0"):
        levels.build(world.draft, copying.build(2), -1)
    short = world.draft._replace(portion=5)
    with pytest.raises(ValueError, match="draft at most 4"):
        levels.build(short, copying.build(2), 3)
