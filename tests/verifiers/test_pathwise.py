"""Pathwise rules give the same tokens for the same keys, with any draft.

No statistics: texts of `verifiers.gumbel` are those of the same keys without a drafter,
and rows of any verifier do not know of each other.
Axes: B rows, L buffer, G = gamma, V vocabulary.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, keys, policies, probs
from specjax.drafters import autoregressive, early_exit, nothing, random
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import draw_coupled, draw_independent
from specjax.generate import Output
from specjax.inputs import make_prompt, make_request
from specjax.step import Decoder
from specjax.types import Draft, Drafter, Params, Request, Sampling, Verifier
from specjax.verifiers import gumbel, names
from tests.support.sampled_mutants import PLACE, VERDICTS, WORLD, Noise, decide_by

HEATS = (0.0, 1.0, 1.5, 2.0)
NEW, SLOTS, GAMMA = 16, 28, 3
TEXTS = [[0, 1, 2, 3], [2], [3, 1], [1, 1, 0]]
BATCH = len(TEXTS) * len(HEATS)
PAIR = Params(WORLD.target_weights, WORLD.draft_weights)
# Which of them decides is an argument of one program, as in `sampled_mutants`.
# On a chain the rules for trees are two of these.
CHAINS = [name for name in names() if name in VERDICTS]
RULES = {name: (VERDICTS.index(name), Noise()) for name in CHAINS} | {
    "by iteration": (VERDICTS.index("gumbel"), Noise(by_iteration=True)),
    "by place": (VERDICTS.index("token"), Noise(PLACE)),
}


def texts_at_heats(seed: int = 0):
    """Returns each text at each of HEATS, with a key of its own."""
    several = [text for text in TEXTS for _ in HEATS]
    prompt = make_prompt(several)
    sampling = Sampling(jnp.resize(jnp.array(HEATS), len(several)))
    return prompt, make_request(jax.random.key(seed), prompt, NEW, sampling)


ASKED = texts_at_heats()


def run(drafter: Drafter, rule: Verifier, *arguments, policy=None) -> Output:
    decoder = Decoder(WORLD.target, drafter, rule, policy)
    return generate.build_loop(decoder, SLOTS)(*arguments)


@functools.cache
def table_loop(gamma: int) -> Callable:
    drafter = autoregressive.build(WORLD.draft, gamma)
    policy = policies.heuristic(start=2) if gamma else None

    @jax.jit
    def decode(which, *arguments):
        return run(drafter, decide_by(*which, coins=3), *arguments, policy=policy)

    return decode


def decode_tables(rule: str, gamma: int = GAMMA, asked=ASKED) -> Output:
    return table_loop(gamma)(RULES[rule], PAIR, *asked)


def decode_without_draft() -> Output:
    """Returns the texts of a race without drafts."""
    return decode_tables("gumbel", gamma=0)


def share_that_differs(output: Output, other: Output) -> float:
    """Returns the share of the sampled texts that differ."""
    differ = np.any(output.tokens != other.tokens, axis=1)
    return float(np.mean(differ[np.resize(HEATS, differ.size) > 0]))


def test_texts_differ_by_key_and_by_temperature():
    """Otherwise their equality would say little."""
    other = decode_tables("gumbel", 0, texts_at_heats(seed=1))
    differ = np.any(decode_without_draft().tokens != other.tokens, axis=1)
    np.testing.assert_array_equal(differ, np.resize(HEATS, BATCH) > 0)
    rows = [tuple(row) for row in np.asarray(decode_without_draft().tokens)]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    "build",
    [
        lambda draw: early_exit.build(WORLD.shallow, WORLD.cut, GAMMA, draw),
        lambda draw: random.build(WORLD.target.vocab, GAMMA, draw),
    ],
    ids=["early exit", "random"],
)
def test_coupled_drafts_are_kept_more_often(build):
    """The text is the same with either draft."""

    @jax.jit
    def decode(which, *arguments):
        def draw(*asked):
            each = [drawn(*asked) for drawn in (draw_independent, draw_coupled)]
            return lambda logits, slot: jax.lax.switch(which, each, logits, slot)

        return run(build(draw), gumbel.verifier, *arguments)

    rates = []
    for which in range(2):
        output = decode(which, Params(WORLD.target_weights, PAIR.draft), *ASKED)
        assert np.array_equal(output.tokens, decode_without_draft().tokens)
        counts, sampled = output.counts, np.resize(HEATS, BATCH) > 0
        rates.append(counts.accepted[sampled].sum() / counts.tested[sampled].sum())
    assert rates[1] > rates[0] + 0.02


def test_the_text_does_not_depend_on_any_drafts():
    """An argument gives the drafts at each length that a row may have: tokens [B, L +
    G], and their number [B, L]."""

    def draft(key, params, request: Request, state) -> tuple[Draft, tuple]:
        tokens, num = params
        rows = jnp.arange(state.length.size)
        at = state.length[:, None] + jnp.arange(GAMMA)
        return Draft(tokens[rows[:, None], at], num[rows, state.length], None), ()

    rng, text = np.random.default_rng(0), np.asarray(decode_without_draft().tokens)
    text = np.pad(text, ((0, 0), (0, GAMMA)))
    full = np.full((BATCH, SLOTS), GAMMA, np.int32)
    ragged = rng.integers(0, GAMMA + 1, full.shape).astype(np.int32)
    nonsense = rng.integers(0, 4, text.shape).astype(np.int32)
    nearly = np.where(rng.random(text.shape) < 0.3, nonsense, text)
    kept, scripted = [], Drafter(no_cache, draft, GAMMA)
    decode = jax.jit(functools.partial(run, scripted, gumbel.verifier))
    for script in ((nonsense, full), (nearly, ragged), (nearly, full), (text, full)):
        output = decode(Params(WORLD.target_weights, script), *ASKED)
        assert np.array_equal(output.tokens, decode_without_draft().tokens)
        kept.append(output.counts.accepted.sum())
    assert kept[0] < kept[1] < kept[2] < kept[3]
    # Of the text itself all is kept.
    np.testing.assert_array_equal(output.counts.accepted, output.counts.tested)
    np.testing.assert_array_equal(output.counts.calls, [-(-NEW // (GAMMA + 1))] * BATCH)


def test_only_gumbel_is_pathwise():
    """Other rules write another text for the same keys, and so does a race that is
    named by its iteration; so the comparison is meaningful."""
    assert share_that_differs(decode_tables("gumbel"), decode_without_draft()) == 0
    for rule in ("token", "block", "rejection", "match", "by iteration"):
        assert (
            share_that_differs(decode_tables(rule), decode_tables(rule, gamma=0)) > 0.3
        ), rule


def test_without_drafts_all_uniforms_are_spent_alike():
    """With gamma = 0, each rule but gumbel, which races, draws in the same way from
    p."""
    assert autoregressive.build(WORLD.draft, 0) is nothing.drafter
    baseline = generate.autoregressive(WORLD.target, SLOTS)
    baseline = baseline(Params(WORLD.target_weights), *ASKED)
    for rule in ("token", "block", "rejection", "match"):
        got = decode_tables(rule, gamma=0)
        jax.tree.map(np.testing.assert_array_equal, got, baseline)
    assert share_that_differs(decode_without_draft(), baseline) > 0.8


def test_a_plain_race_is_the_argmax_of_its_definition():
    """Each token is the argmax of log p of the table plus the variables of its
    position."""
    (prompt, request), logits = ASKED, np.asarray(WORLD.target_weights)
    tokens, heat = (
        np.asarray(decode_without_draft().tokens),
        np.asarray(request.sampling.temperature),
    )
    rows = np.arange(len(heat))
    for step in range(NEW):
        at = np.asarray(prompt.length) + step
        g = np.asarray(keys.gumbel(request.key, jnp.asarray(at), logits.shape[0]))
        ahead = logits[tokens[rows, at - 1]] + heat[:, None] * g
        np.testing.assert_array_equal(tokens[rows, at], ahead.argmax(1))


def take_rows(tree, rows: np.ndarray):
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@pytest.mark.parametrize("rule", CHAINS)
def test_a_rows_text_does_not_depend_on_its_batch(rule):
    """The row is decoded in another slot, with other rows, and alone."""
    whole = decode_tables(rule)
    alone = [[row] for row in range(0, BATCH, 5)]
    for rows in (*alone, np.random.default_rng(1).permutation(BATCH)):
        rows = np.array(rows)
        some = decode_tables(rule, asked=take_rows(ASKED, rows))
        jax.tree.map(np.testing.assert_array_equal, some, take_rows(whole, rows))


def test_the_check_notices_noise_that_is_named_by_place():
    order = np.roll(np.arange(BATCH), 4)  # as hot as before
    moved = decode_tables("by place", asked=take_rows(ASKED, order))
    assert share_that_differs(moved, take_rows(decode_tables("by place"), order)) > 0.8


def test_races_are_won_by_both_at_that_rate():
    """The rate is `gumbel.acceptance`, for 20000 positions with the keys and the race
    of texts."""
    count, (p, q) = 20_000, ([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1])

    @jax.jit
    def winners(key):
        g = keys.gumbel(jnp.broadcast_to(key, count), jnp.arange(count), 4)
        heat = Sampling(jnp.ones(1))
        laws = [probs.standardize(jnp.log(jnp.array([x])), heat) for x in (p, q)]
        own = keys.gumbel(jnp.broadcast_to(key, count), count + jnp.arange(count), 4)
        return probs.race(laws[0], g), probs.race(laws[1], g), probs.race(laws[1], own)

    y, x, apart = map(np.asarray, winners(jax.random.key(0)))
    rate, spread = gumbel.acceptance(*map(jnp.array, (p, q))), 0.5 / np.sqrt(count)
    assert abs(np.mean(y == x) - rate) < 4 * spread
    assert abs(np.mean(y == apart) - np.dot(p, q)) < 4 * spread < rate - np.dot(p, q)
