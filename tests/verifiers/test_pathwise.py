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

from specjax import generate, keys, policies, probs
from specjax.drafters import autoregressive, early_exit, nothing, random
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import coupled
from specjax.generate import Output
from specjax.inputs import make_prompt, make_request, pad
from specjax.step import Decoder
from specjax.types import Draft, Drafter, Params, Request, Sampling
from specjax.verifiers import gumbel, lenient, named, names, token
from tests.exactness import test_properties
from tests.exactness.test_properties import NEARLY_ONE, decide
from tests.support import sampled_mutants, sampled_texts, tiny, tiny_t5
from tests.support.drafter_cases import BY_NAME, CASES, Case
from tests.support.tiny_t5 import quick_jit

HEATS = (0.0, 0.5, 1.0, 1.5)
NEW, SLOTS = 16, 28
TEXTS = [[1, 2, 3, 4, 5], [7], [3, 4, 3, 4], [9, 2]]
SOURCES = [[5, 9, 2, 17, 11, 3], [7, 7, 20], [4], [12, 25, 6, 8]]
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
EVERY = (*CASES, *COUPLED)
FEW = (BY_NAME["copying"], COUPLED[0])
WORLDS = {"transformers": (tiny.transformers, EVERY), "t5": (tiny_t5.world, FEW)}
LONGEST = 3


# Texts of a gumbel verifier. One program for all drafters: which of them is asked is an
# argument. What they draft has no law, as the verifier reads none.


def gamma_of(case: Case) -> int:
    return 1 + EVERY.index(case) % LONGEST


def committee(world: tiny.World, cases: tuple[Case, ...]) -> Drafter:
    """Its parameters are (which, those of each)."""
    each = [case.drafter(world, gamma_of(case)) for case in cases]

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


def hot(texts: list, sources: list | None = None, seed: int = 0):
    """Each text at each of HEATS, with a key of its own."""
    several = [text for text in texts for _ in HEATS]
    prompt = make_prompt(several)
    if sources is not None:
        inputs = pad([source for source in sources for _ in HEATS])
        prompt = prompt._replace(inputs=inputs)
    sampling = Sampling(jnp.resize(jnp.array(HEATS), len(several)))
    return prompt, make_request(jax.random.key(seed), prompt, NEW, sampling)


BATCH = len(TEXTS) * len(HEATS)
ASKED = {"transformers": hot(TEXTS), "t5": hot([[0]] * 4, SOURCES)}


@functools.cache
def decoder(world: str):
    make, cases = WORLDS[world]
    policy = policies.heuristic(start=2)
    parts = committee(make(), cases), gumbel.verifier, policy
    return quick_jit(generate.build_loop(Decoder(make().target, *parts), SLOTS))


@functools.cache
def without_a_drafter(world: str):
    parts = Decoder(WORLDS[world][0]().target, verifier=gumbel.verifier)
    return quick_jit(generate.build_loop(parts, SLOTS))


def decode(world: str, case: Case | None, asked=None) -> Output:
    """By one drafter, or without any."""
    make, cases = WORLDS[world]
    asked, target = asked or ASKED[world], make().target_weights
    if case is None:
        return without_a_drafter(world)(Params(target), *asked)
    weights = tuple(one.weights(make()) for one in cases)
    return decoder(world)(Params(target, (cases.index(case), weights)), *asked)


@functools.cache
def plain(world: str) -> Output:
    return decode(world, None)


def same_texts(one: Output, other: Output) -> bool:
    return np.array_equal(one.tokens, other.tokens)


def title(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", EVERY, ids=title)
def test_the_text_does_not_depend_on_the_drafter(case):
    got = decode("transformers", case)
    assert same_texts(got, plain("transformers"))
    assert got.counts.accepted.sum() > 0


@pytest.mark.parametrize("case", FEW, ids=title)
def test_nor_does_that_of_an_encoder_decoder(case):
    got = decode("t5", case)
    assert same_texts(got, plain("t5"))
    assert got.counts.drafted.sum() > 0


def test_coupled_drafts_are_kept_more_often():
    pairs = ("random", COUPLED[2]), ("early_exit", COUPLED[1])
    for name, case in pairs:
        rates = []
        for one in (BY_NAME[name], case):
            counts = decode("transformers", one).counts
            sampled = np.resize(HEATS, BATCH) > 0
            rates.append(counts.accepted[sampled].sum() / counts.tested[sampled].sum())
        assert rates[1] > rates[0] + 0.02


def test_texts_differ_by_key_and_by_temperature():
    """Else their equality would say little."""
    one, other = plain("transformers"), decode("transformers", None, hot(TEXTS, seed=1))
    rows = [tuple(row[:NEW]) for row in np.asarray(one.tokens)]
    assert len(set(rows)) == len(rows)
    differ = np.any(one.tokens != other.tokens, axis=1)
    np.testing.assert_array_equal(differ, np.resize(HEATS, BATCH) > 0)


@pytest.mark.parametrize("case", [COUPLED[0]], ids=title)
def test_nor_on_the_batch(case):
    """Rows in another order, and beside mates of other texts, lengths and limits."""
    whole, (prompt, request) = decode("transformers", case), ASKED["transformers"]
    order = np.random.default_rng(0).permutation(BATCH)
    moved = jax.tree.map(lambda leaf: leaf[order], (prompt, request))
    got = decode("transformers", case, moved)
    np.testing.assert_array_equal(got.tokens, np.asarray(whole.tokens)[order])

    stays, other = jnp.arange(BATCH) % 3 == 0, jnp.arange(BATCH)[::-1]
    mixed = jax.tree.map(
        lambda leaf: leaf[jnp.where(stays, jnp.arange(BATCH), other)], (prompt, request)
    )
    limit = jnp.where(stays, mixed[1].limit, mixed[1].start + 3)
    got = decode("transformers", case, (mixed[0], mixed[1]._replace(limit=limit)))
    np.testing.assert_array_equal(got.tokens[stays], whole.tokens[stays])
    assert not np.array_equal(got.tokens, whole.tokens)


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


@functools.cache
def obedient() -> Callable:
    world = tiny.transformers()
    parts = Decoder(world.target, scripted(LONGEST), gumbel.verifier)
    return quick_jit(generate.build_loop(parts, SLOTS))


def obey(tokens, num) -> Output:
    params = Params(tiny.transformers().target_weights, (tokens, num))
    return obedient()(params, *ASKED["transformers"])


def test_the_text_does_not_depend_on_any_drafts():
    rng, said = np.random.default_rng(0), np.asarray(plain("transformers").tokens)
    said = np.pad(said, ((0, 0), (0, LONGEST)))
    full = np.full((BATCH, SLOTS), LONGEST, np.int32)
    ragged = rng.integers(0, LONGEST + 1, full.shape).astype(np.int32)
    nonsense = rng.integers(0, 29, said.shape).astype(np.int32)
    nearly = np.where(rng.random(said.shape) < 0.3, nonsense, said)
    kept = []
    for tokens, num in ((nonsense, full), (nearly, ragged), (nearly, full)):
        got = obey(tokens, num)
        assert same_texts(got, plain("transformers"))
        kept.append(got.counts.accepted.sum())
    assert kept[0] < kept[1] < kept[2]

    got = obey(said, full)  # the text itself: all is kept
    assert same_texts(got, plain("transformers"))
    np.testing.assert_array_equal(got.counts.accepted, got.counts.tested)
    np.testing.assert_array_equal(got.counts.calls, [-(-NEW // (LONGEST + 1))] * BATCH)


# Every verifier, on tables: which of them is an argument, as in `sampled_texts`.


def keyed_by_place(key, start, gamma: int, vocab: int) -> token.Noise:
    place = jax.vmap(jax.random.key)(jnp.arange(key.size))
    return token.noise(place, start, gamma, vocab)


RULES = {name: named(name) for name in names()} | {
    "lenient, l = 1": lenient.build(1.0),
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

    @quick_jit
    def run(which, params, prompt, request):
        rule = sampled_texts.one_of(tuple(RULES.values()), which)
        parts = Decoder(TABLES.target, drafter, rule, policy)
        return generate.build_loop(parts, SLOTS)(params, prompt, request)

    return run


ON_TABLES = hot([[0, 1, 2, 3], [2], [3, 1]])
PAIR = Params(TABLES.target_weights, TABLES.draft_weights)


def on_tables(rule: str, gamma: int = 3, params=PAIR, asked=ON_TABLES) -> Output:
    return table_loop(gamma)(list(RULES).index(rule), params, *asked)


def apart(one: Output, other: Output) -> float:
    """The share of texts that differ, of the sampled ones."""
    differ = np.any(one.tokens != other.tokens, axis=1)
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
    loop = quick_jit(generate.build_loop(Decoder(TABLES.target), SLOTS))
    baseline = loop(PAIR, *ON_TABLES)
    for rule in ("token", "block", "rejection", "match", "lenient, l = 1"):
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


@each_rule
def test_a_rows_text_does_not_depend_on_its_batch(rule):
    """In another slot, beside other mates, and alone."""
    whole, batch = on_tables(rule), ON_TABLES[0].length.size
    for row in range(0, batch, 5):
        only = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], ON_TABLES)
        alone = on_tables(rule, asked=only)
        jax.tree.map(
            lambda one, all_, row=row: np.testing.assert_array_equal(one[0], all_[row]),
            alone,
            whole,
        )
    order = np.random.default_rng(1).permutation(batch)
    moved = on_tables(rule, asked=jax.tree.map(lambda leaf: leaf[order], ON_TABLES))
    jax.tree.map(
        lambda one, all_: np.testing.assert_array_equal(one, np.asarray(all_)[order]),
        moved,
        whole,
    )


def test_the_check_notices_noise_that_is_named_by_place():
    order = np.roll(np.arange(ON_TABLES[0].length.size), 4)  # as hot as before
    moved = jax.tree.map(lambda leaf: leaf[order], ON_TABLES)
    got, whole = on_tables("by place", asked=moved), on_tables("by place")
    whole = jax.tree.map(lambda leaf: leaf[order], whole)
    assert apart(got, whole) > 0.8


def test_lenience_of_1_is_the_token_verifier():
    jax.tree.map(
        np.testing.assert_array_equal, on_tables("lenient, l = 1"), on_tables("token")
    )


@each_rule
def test_the_target_as_its_own_drafter_is_never_wrong(rule):
    """But for rules that ask for the target's own sample, which drafts drawn apart meet
    by chance, and the argmax always."""
    itself = Params(TABLES.target_weights, TABLES.target_weights)
    counts = on_tables(rule, params=itself).counts
    all_kept = np.asarray(counts.accepted == counts.tested)
    if rule in ("match", "gumbel"):
        greedy = np.resize(HEATS, all_kept.size) == 0
        assert all_kept[greedy].all() and all_kept[~greedy].mean() < 0.5
    else:
        assert all_kept.all() and counts.accepted.min() > NEW / 2


@each_rule
def test_a_drafter_of_other_ids_is_always_wrong(rule):
    target, draft = np.array(TABLES.target_weights), np.array(TABLES.draft_weights)
    target[:, 2:], draft[:, :2] = -np.inf, -np.inf
    got = on_tables(rule, params=Params(jnp.asarray(target), jnp.asarray(draft)))
    assert not got.counts.accepted.any() and got.counts.tested.all()
    np.testing.assert_array_equal(got.counts.calls, [NEW] * got.length.size)


# One call.


def two_laws(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    b, g, v = test_properties.B, test_properties.G, test_properties.V
    both = rng.normal(scale=2, size=(2, b, g + 1, v)).astype(np.float32)
    return both[0], both[1][:, :g], rng


@each_rule
def test_equal_laws_keep_the_whole_draft(rule):
    """At the largest coins. Drafts of gumbel race with the same variables; a match is
    one of equal tokens only, which independent draws are at times."""
    z, _, rng = two_laws(0)
    given = test_properties.noise(rule, rng)
    q = test_properties.softmax(z[:, :-1], np.ones(len(z)))
    tokens = test_properties.draws(rng, q)
    if rule == "gumbel":
        tokens = (z + given)[:, :-1].argmax(-1).astype(np.int32)
    if hasattr(given, "accept"):
        given = given._replace(accept=np.full_like(given.accept, NEARLY_ONE))
    p, _, verdict = decide(rule, z, z[:, :-1], tokens, given)
    if rule == "match":
        y = probs.pick(jnp.reshape(p, (-1, p.shape[-1])), given.sample.reshape(-1, 2))
        same = tokens == np.reshape(y, (len(z), -1))[:, :-1]
        n = np.cumprod(same, axis=1).sum(1)
        assert 0 < n.sum() < n.size * tokens.shape[1] / 2
        np.testing.assert_array_equal(verdict.num_accepted, n)
    else:
        np.testing.assert_array_equal(verdict.num_accepted, [tokens.shape[1]] * len(z))


@each_rule
def test_laws_apart_leave_the_target_itself(rule):
    """At the smallest coins. What is left to draw from is p, or, where a rule has drawn
    already, an id of p."""
    z_p, z_q, rng = two_laws(1)
    half = np.arange(z_p.shape[-1]) < 32
    z_p, z_q = np.where(half, z_p, -np.inf), np.where(half, -np.inf, z_q)
    given = test_properties.noise(rule, rng)
    if hasattr(given, "accept"):
        given = given._replace(accept=np.zeros_like(given.accept))
    tokens = z_q.argmax(-1).astype(np.int32)
    p, _, verdict = decide(rule, z_p, z_q, tokens, given)
    assert not verdict.num_accepted.any()
    left = verdict.residual / verdict.residual.sum(1, keepdims=True)
    if rule in ("match", "gumbel"):
        assert np.all(left.max(1) == 1) and np.all(p[:, 0][left == 1] > 0)
    else:
        np.testing.assert_allclose(left, p[:, 0], atol=1e-6)


def test_a_race_does_not_know_the_names_of_ids():
    """Renamed ids and variables win under their new names; without the variables, or
    by an inverse CDF, others do."""
    z, _, rng = two_laws(2)
    order = rng.permutation(z.shape[-1])
    g = rng.gumbel(size=z.shape).astype(np.float32)
    u = jnp.asarray(rng.random((z[:, 0].shape[0], 2)), jnp.float32)
    settings = Sampling(jnp.resize(jnp.array(HEATS), len(z)))

    @quick_jit
    def run(z, g):
        law = probs.standardize(z, settings)
        first = jnp.zeros(len(z), jnp.int32)
        return probs.race(law, g), probs.sample(probs.take(law, first), u)

    (won, drawn), (renamed, drawn_anew) = run(z, g), run(z[..., order], g[..., order])
    np.testing.assert_array_equal(order[renamed], won)
    assert np.any(order[run(z[..., order], g)[0]] != won)
    assert np.any(order[drawn_anew] != drawn)
