"""Equal token for token: what the same keys say, whoever drafts and whoever is beside.

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

from specjax import generate, keys, policies
from specjax.drafters import autoregressive, early_exit, nothing, random
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import coupled
from specjax.generate import Output
from specjax.inputs import make_prompt, make_request
from specjax.step import Decoder
from specjax.types import Draft, Drafter, Params, Policy, Request, Sampling
from specjax.verifiers import gumbel, named, names, token
from tests.support import sampled_mutants, sampled_texts, tiny
from tests.support.drafter_cases import BY_NAME, Case
from tests.support.one_rule import one_of

HEATS = (0.0, 0.5, 1.0, 1.5)
NEW, SLOTS = 16, 28
TEXTS = [[1, 2, 3, 4, 5], [7], [3, 4, 3, 4], [9, 2]]
COUPLED = (
    Case(
        "autoregressive, coupled",
        lambda world, gamma: autoregressive.build(world.draft, gamma, coupled),
        lambda world: world.draft_weights,
    ),
    Case(
        "early exit, coupled",
        lambda world, gamma: early_exit.build(world.shallow, world.cut, gamma, coupled),
        lambda world: world.shallow_weights,
    ),
    Case(
        "random, coupled",
        lambda world, gamma: random.build(world.target.vocab, gamma, coupled),
    ),
)
DRAFTERS = *map(BY_NAME.get, ("copying", "random", "early_exit")), *COUPLED
WORLD = tiny.transformers()
LONGEST = 3


# Texts of a gumbel verifier. One program for all drafters: which of them is asked is an
# argument. What they draft has no law, as the verifier reads none.


def committee() -> Drafter:
    """Its parameters are (which, those of each)."""
    each = [case.drafter(WORLD, 1 + i % LONGEST) for i, case in enumerate(DRAFTERS)]

    def init(params, prompt, slots: int) -> tuple:
        weights = params[1]
        return tuple(
            drafter.init(own, prompt, slots)
            for drafter, own in zip(each, weights, strict=True)
        )

    def draft(key, params, request: Request, state) -> tuple[Draft, tuple]:
        which, weights = params

        def ask(place: int) -> Callable:
            def branch(caches: tuple):
                own = state._replace(draft_cache=caches[place])
                own, cache = each[place].draft(key, weights[place], request, own)
                short = LONGEST - own.tokens.shape[1]
                tokens = jnp.pad(own.tokens, ((0, 0), (0, short)))
                return tokens, own.num, (*caches[:place], cache, *caches[place + 1 :])

            return branch

        branches = [ask(place) for place in range(len(each))]
        tokens, num, caches = jax.lax.switch(which, branches, state.draft_cache)
        return Draft(tokens, num, None), caches

    return Drafter(init, draft, LONGEST)


def hot(texts: list, seed: int = 0):
    """Each text at each of HEATS, with a key of its own."""
    several = [text for text in texts for _ in HEATS]
    prompt = make_prompt(several)
    sampling = Sampling(jnp.resize(jnp.array(HEATS), len(several)))
    return prompt, make_request(jax.random.key(seed), prompt, NEW, sampling)


BATCH = len(TEXTS) * len(HEATS)
ASKED = hot(TEXTS)


COMMITTEE, ADAPTIVE = committee(), policies.heuristic(start=2)


@functools.cache
def loop(drafter: Drafter = nothing.drafter, policy: Policy | None = None) -> Callable:
    decoder = Decoder(WORLD.target, drafter, gumbel.verifier, policy)
    return jax.jit(generate.build_loop(decoder, SLOTS))


def decode(case: Case) -> Output:
    weights = tuple(each.weights(WORLD) for each in DRAFTERS)
    params = Params(WORLD.target_weights, (DRAFTERS.index(case), weights))
    return loop(COMMITTEE, ADAPTIVE)(params, *ASKED)


@functools.cache
def plain(seed: int = 0) -> Output:
    """Without a drafter."""
    return loop()(Params(WORLD.target_weights), *hot(TEXTS, seed))


def same_texts(output: Output, other: Output) -> bool:
    return np.array_equal(output.tokens, other.tokens)


def title(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", DRAFTERS, ids=title)
def test_the_text_does_not_depend_on_the_drafter(case):
    output = decode(case)
    assert same_texts(output, plain())
    assert output.counts.accepted.sum() > 0


@pytest.mark.parametrize(
    ("name", "coupled"), [("early_exit", COUPLED[1]), ("random", COUPLED[2])]
)
def test_coupled_drafts_are_kept_more_often(name, coupled):
    rates = []
    for case in (BY_NAME[name], coupled):
        counts, sampled = decode(case).counts, np.resize(HEATS, BATCH) > 0
        rates.append(counts.accepted[sampled].sum() / counts.tested[sampled].sum())
    assert rates[1] > rates[0] + 0.02


def test_texts_differ_by_key_and_by_temperature():
    """Else their equality would say little."""
    rows = [tuple(row[:NEW]) for row in np.asarray(plain().tokens)]
    assert len(set(rows)) == len(rows)
    differ = np.any(plain().tokens != plain(seed=1).tokens, axis=1)
    np.testing.assert_array_equal(differ, np.resize(HEATS, BATCH) > 0)


# Any drafts at all: an argument says which.


def scripted(gamma: int) -> Drafter:
    """Drafts what its parameters say, at each length that a row may have: tokens
    [B, L + G] and how many of them [B, L]."""

    def draft(key, params, request: Request, state) -> tuple[Draft, tuple]:
        del key, request
        tokens, num = params
        rows = jnp.arange(state.length.size)
        at = state.length[:, None] + jnp.arange(gamma)
        return Draft(tokens[rows[:, None], at], num[rows, state.length], None), ()

    return Drafter(no_cache, draft, gamma)


SCRIPTED = scripted(LONGEST)


def test_the_text_does_not_depend_on_any_drafts():
    rng, text = np.random.default_rng(0), np.asarray(plain().tokens)
    text = np.pad(text, ((0, 0), (0, LONGEST)))
    full = np.full((BATCH, SLOTS), LONGEST, np.int32)
    ragged = rng.integers(0, LONGEST + 1, full.shape).astype(np.int32)
    nonsense = rng.integers(0, 29, text.shape).astype(np.int32)
    nearly = np.where(rng.random(text.shape) < 0.3, nonsense, text)
    kept = []
    for script in ((nonsense, full), (nearly, ragged), (nearly, full), (text, full)):
        output = loop(SCRIPTED)(Params(WORLD.target_weights, script), *ASKED)
        assert same_texts(output, plain())
        kept.append(output.counts.accepted.sum())
    assert kept[0] < kept[1] < kept[2] < kept[3]
    # Of the text itself all is kept.
    np.testing.assert_array_equal(output.counts.accepted, output.counts.tested)
    np.testing.assert_array_equal(
        output.counts.calls, [-(-NEW // (LONGEST + 1))] * BATCH
    )


# Every verifier, on tables: which of them is an argument, as in `sampled_texts`.


def keyed_by_place(key, start, gamma: int, vocab: int) -> token.Noise:
    place = jax.vmap(jax.random.key)(jnp.arange(key.size))
    return token.noise(place, start, gamma, vocab)


RULES = {name: named(name) for name in names()} | {
    "by iteration": gumbel.verifier._replace(noise=sampled_mutants.races_by_iteration),
    "by place": token.verifier._replace(noise=keyed_by_place),
}
TABLES = sampled_texts.WORLD
each_rule = pytest.mark.parametrize("rule", names())


@functools.cache
def table_loop(gamma: int) -> Callable:
    drafter, policy = nothing.drafter, None
    if gamma:
        drafter = autoregressive.build(TABLES.draft, gamma)
        policy = policies.heuristic(start=2)

    @jax.jit
    def run(which, params, prompt, request):
        rule = one_of(tuple(RULES.values()), which)
        decoder = Decoder(TABLES.target, drafter, rule, policy)
        return generate.build_loop(decoder, SLOTS)(params, prompt, request)

    return run


ON_TABLES = hot([[0, 1, 2, 3], [2], [3, 1]])
PAIR = Params(TABLES.target_weights, TABLES.draft_weights)


def on_tables(rule: str, gamma: int = 3, asked=ON_TABLES) -> Output:
    return table_loop(gamma)(list(RULES).index(rule), PAIR, *asked)


def apart(output: Output, other: Output) -> float:
    """The share of texts that differ, of the sampled ones."""
    differ = np.any(output.tokens != other.tokens, axis=1)
    return float(np.mean(differ[np.resize(HEATS, differ.size) > 0]))


def test_only_gumbel_is_pathwise():
    """Others say another text for the same keys, and so does a race that is named by
    its iteration: what the comparison is worth."""
    assert apart(on_tables("gumbel"), on_tables("gumbel", gamma=0)) == 0
    for rule in ("token", "block", "rejection", "match", "by iteration"):
        assert apart(on_tables(rule), on_tables(rule, gamma=0)) > 0.3, rule


def test_without_drafts_all_uniforms_are_spent_alike():
    """gamma = 0: the same draw from p by each rule but gumbel, which races."""
    assert autoregressive.build(TABLES.draft, 0) is nothing.drafter
    loop = jax.jit(generate.build_loop(Decoder(TABLES.target), SLOTS))
    baseline = loop(PAIR, *ON_TABLES)
    for rule in ("token", "block", "rejection", "match"):
        got = on_tables(rule, gamma=0)
        jax.tree.map(np.testing.assert_array_equal, got, baseline)
    assert apart(on_tables("gumbel", gamma=0), baseline) > 0.8


def test_a_plain_race_is_the_argmax_of_its_definition():
    """log p of the table plus the variables of each position, token after token."""
    prompt, request = ON_TABLES
    got, logits = on_tables("gumbel", gamma=0), np.asarray(TABLES.target_weights)
    tokens, heat = np.asarray(got.tokens), np.asarray(request.sampling.temperature)
    rows = np.arange(len(heat))
    for step in range(NEW):
        at = np.asarray(prompt.length) + step
        g = np.asarray(keys.gumbel(request.key, jnp.asarray(at), logits.shape[0]))
        ahead = logits[tokens[rows, at - 1]] + heat[:, None] * g
        np.testing.assert_array_equal(tokens[rows, at], ahead.argmax(1))


def chosen(tree, rows: np.ndarray):
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@each_rule
def test_a_rows_text_does_not_depend_on_its_batch(rule):
    """In another slot, beside other mates, and alone."""
    whole, batch = on_tables(rule), ON_TABLES[0].length.size
    alone = [[row] for row in range(0, batch, 5)]
    for rows in (*alone, np.random.default_rng(1).permutation(batch)):
        rows = np.array(rows)
        some = on_tables(rule, asked=chosen(ON_TABLES, rows))
        jax.tree.map(np.testing.assert_array_equal, some, chosen(whole, rows))


def test_the_check_notices_noise_that_is_named_by_place():
    order = np.roll(np.arange(ON_TABLES[0].length.size), 4)  # as hot as before
    moved = on_tables("by place", asked=chosen(ON_TABLES, order))
    assert apart(moved, chosen(on_tables("by place"), order)) > 0.8
