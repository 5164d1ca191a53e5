"""Section 2.2 as one law: against a float64 oracle, by hand, and at its edges.

Axes: B rows, T tokens, V vocabulary.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax import probs
from specjax.inputs import make_sampling
from specjax.types import BLOCK, Law, Sampling, Table

NEARLY_ONE = 1 - 2**-24  # the largest float32 below 1
B, V = 8, 11


@jax.jit
def distribution(logits, sampling):
    """logits [B, V] -> [B, V]."""
    return probs.dense(probs.standardize(logits, sampling))


def one_row(logits, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0) -> np.ndarray:
    """The distribution of at most V logits, filled up to share a compilation."""
    size = len(logits)
    filled = np.pad(np.float32(logits), (0, V - size), constant_values=-np.inf)
    sampling = settings_of(temperature, V if top_k is None else top_k, top_p, min_p)
    return np.asarray(distribution(jnp.tile(filled, (B, 1)), sampling))[0, :size]


def settings_of(temperature, top_k, top_p, min_p) -> Sampling:
    """All four settings, each a number or one a row."""
    whole = np.broadcast_to(np.int32(top_k), B)
    real = (np.broadcast_to(np.float32(x), B) for x in (temperature, top_p, min_p))
    temperature, top_p, min_p = map(jnp.asarray, real)
    return Sampling(temperature, jnp.asarray(whole), top_p, min_p)


def oracle(z, temperature, top_k, top_p, min_p) -> tuple[np.ndarray, bool]:
    """The distribution of one row [V] in float64, step by step, and whether it is
    clear: in float32 a mass next to top_p, or a ratio next to min_p, may fall wrongly.
    """
    z = np.asarray(z, np.float64)
    order = np.lexsort((np.arange(z.size), -z))
    if temperature == 0:
        return np.eye(z.size)[order[0]], True
    weight = np.exp((z - z.max()) / temperature)
    order = order[:top_k]
    mass = np.cumsum(weight[order]) / weight[order].sum()
    clear = np.all(np.abs(mass - top_p) > 1e-5) or top_p == 1
    if top_p < 1:
        order = order[: np.searchsorted(mass, top_p) + 1]
    ratio = weight[order] / weight[order[0]]
    clear &= np.all(np.abs(ratio - min_p) > 1e-5) or min_p == 0
    order = order[ratio >= min_p]
    kept = np.zeros(z.size)
    kept[order] = weight[order]
    return kept / kept.sum(), bool(clear)


# By hand.


TIES, HALF = [1, 3, 3, 0, 3], np.log(np.float32(0.5))
KEPT = [
    # Before dividing by the temperature two would be enough.
    ([2, 1.5, 1, 0, -1], dict(temperature=2.0, top_p=0.6), [0, 1, 2]),
    ([0, 1, 1, 2, 1], dict(top_k=1), [3]),
    ([0, 1, 1, 2, 1], dict(top_k=3), [1, 2, 3]),  # exactly k, ties to the lower id
    # Of (.5, .3, .2) two remain as (.625, .375), and .6 is reached by the first.
    (np.log([0.5, 0.3, 0.2]), dict(top_k=2, top_p=0.6), [0]),
    (np.log([0.5, 0.3, 0.2]), dict(top_k=3, top_p=0.6), [0, 1]),
    # The token that crosses top_p is kept.
    (np.log([0.3, 0.2, 0.5]), dict(top_p=1e-9), [2]),
    (np.log([0.3, 0.2, 0.5]), dict(top_p=0.49), [2]),
    (np.log([0.3, 0.2, 0.5]), dict(top_p=0.51), [0, 2]),
    (np.log([0.3, 0.2, 0.5]), dict(top_p=0.79), [0, 2]),
    (np.log([0.3, 0.2, 0.5]), dict(top_p=0.81), [0, 1, 2]),
    ([0, 0, 0, 0], dict(top_p=0.4), [0, 1]),
    ([0, 0, 0, 0], dict(top_p=0.5), [0, 1]),  # just the mass is enough
    # min_p is a share of the largest, and just that share is kept.
    ([HALF, 0, 0, -3], dict(min_p=1.0), [1, 2]),
    ([HALF, 0, 0, -3], dict(min_p=0.5), [0, 1, 2]),
    (np.log([0.1, 0.5, 0.26, 0.14]), dict(min_p=0.5), [1, 2]),
    # After the temperature: at T = 2 the shares are the square roots, .53 and .45.
    (np.log([0.1, 0.5, 0.26, 0.14]), dict(temperature=2.0, min_p=0.5), [1, 2, 3]),
    (TIES, dict(temperature=0.0), [1]),
    (TIES, dict(temperature=0.0, top_k=3, top_p=0.9), [1]),
]


@pytest.mark.parametrize(("logits", "setting", "kept"), KEPT)
def test_what_is_kept_by_hand(logits, setting, kept):
    law = one_row(logits, **setting)
    assert np.flatnonzero(law).tolist() == kept
    temperature = setting.get("temperature", 1.0) or 1.0
    weights = np.exp(np.asarray(logits, float)[kept] / temperature)
    np.testing.assert_allclose(law[kept], weights / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize("temperature", [1e-1, 1e-2, 1e-4])
def test_a_small_temperature_tends_to_argmax_and_shares_among_equals(temperature):
    law = one_row([1, 3.0, 2.5, 0, 2], temperature=temperature)
    assert law[1] == pytest.approx(1, abs=np.exp(-0.4 / temperature))
    law = one_row(TIES, temperature=temperature)
    np.testing.assert_allclose(law, np.array([0, 1, 1, 0, 1]) / 3, atol=2e-3)


def test_settings_that_limit_nothing_change_nothing():
    z = 2 * jax.random.normal(jax.random.key(0), (B, V))
    plain = jax.jit(lambda z: probs.dense(probs.standardize(z, make_sampling(B, 0.7))))
    np.testing.assert_array_equal(plain(z), distribution(z, settings_of(0.7, V, 1, 0)))
    more = settings_of(0.7, V + 5, 1, 0)
    np.testing.assert_array_equal(plain(z), distribution(z, more))


def test_each_row_has_its_own_settings():
    """Greedy, top-k, top-p, min-p and plain rows in one batch are as they are alone."""
    z = 2 * jax.random.normal(jax.random.key(1), (B, V))
    each = settings_of(
        [0, 1, 1, 1, 1, 0.5, 2, 0],
        [V, 3, V, V, V, 4, 2, 3],
        [1, 1, 0.5, 1, 1, 0.9, 0.3, 0.1],
        [0, 0, 0, 0.3, 0, 0.1, 0, 0.5],
    )
    together = np.asarray(distribution(z, each))
    for row in range(B):
        alone = jax.tree.map(lambda x, row=row: jnp.full(B, x[row]), each)
        np.testing.assert_array_equal(together[row], distribution(z, alone)[row])
    sizes = np.count_nonzero(together, axis=1)
    assert (sizes[0], sizes[1], sizes[4], sizes[6], sizes[7]) == (1, 3, V, 1, 1)


# Against the oracle.


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**31),
    ties=st.booleans(),
    banned=st.sampled_from([0.0, 0.3, 0.9]),
    dtype=st.sampled_from([jnp.float32, jnp.bfloat16]),
)
def test_random_laws_agree_with_the_oracle(seed, ties, banned, dtype):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(B, V))
    z = np.round(2 * z) / 2 if ties else z
    z[:, 1:][rng.random((B, V - 1)) < banned] = -np.inf  # at least one id is possible
    each = (
        rng.choice([0.0, 0.3, 0.7, 1.0, 2.0], B).astype(np.float32),
        rng.integers(1, V + 1, B),
        rng.choice([0.1, 0.5, 0.77, 0.95, 1.0], B).astype(np.float32),
        rng.choice([0.0, 0.05, 0.3, 1.0], B).astype(np.float32),
    )
    z = jnp.asarray(z, dtype)
    got = np.asarray(distribution(z, settings_of(*each)))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-5)
    for row, setting in enumerate(zip(*each, strict=True)):
        wanted, clear = oracle(np.asarray(z[row], np.float32), *setting)
        if clear:
            np.testing.assert_array_equal(got[row] > 0, wanted > 0)
            np.testing.assert_allclose(got[row], wanted, atol=2e-5)


# A law is where its distribution is read from.


dense = jax.jit(probs.dense)


@functools.cache
def some_laws() -> Law:
    """[B, 3] laws of V ids with every kind of setting, ties and impossible ids."""
    z = (2 * jax.random.normal(jax.random.key(2), (B, 3, V))).round()
    z = z.at[:, :, 4].set(-jnp.inf)
    each = settings_of(
        [0, 1, 1, 1, 0.5, 1, 2, 0],
        [V, 3, V, V, 4, V, 6, 2],
        [1, 1, 0.6] * 2 + [1, 1],
        0,
    )
    return jax.jit(probs.standardize)(z, each)


def test_a_law_keeps_the_logits_as_they_are():
    z = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    law = probs.standardize(z, make_sampling(2, 0.5, top_k=2))
    assert law.logits is z
    assert {leaf.shape for leaf in law[1:5]} == {(2,)}


def shared_table(places: int) -> tuple[Table, np.ndarray]:
    """Five contexts that differ from a common row; and the same as dense rows."""
    rng = np.random.default_rng(places)
    base, offset = rng.normal(size=V), rng.normal(size=5)
    ids = np.array([rng.permutation(V + 2)[:places] for _ in range(5)])
    logits = rng.normal(size=(5, places))
    rows = base + offset[:, None]
    for row in range(5):
        used = ids[row] < V  # an unused place names no id
        rows[row, ids[row][used]] = logits[row][used]
    arrays = base, offset, ids.astype(np.int32).reshape(5, places), logits
    table = Table(
        *(jnp.asarray(a, None if a.dtype == np.int32 else float) for a in arrays)
    )
    return table, np.float32(rows)


@functools.cache
def law_and_rows(places: int | None) -> tuple[Law, np.ndarray]:
    """A law, of a shared table if it has places, and its rows as of dense logits."""
    if places is None:
        return some_laws(), np.asarray(dense(some_laws()))
    table, rows = shared_table(places)
    row = jnp.asarray(np.random.default_rng(0).integers(0, 5, (B, 3)), jnp.int32)
    logits = probs.table_rows(table, row)
    np.testing.assert_allclose(logits, rows[row], atol=1e-6)
    each = settings_of([0, 1, 1, 0.5] * 2, [V, 3, V, 4] * 2, [1, 1, 0.6, 1] * 2, 0)
    law = jax.jit(probs.standardize)(logits, each)
    return law._replace(logits=table, row=row), np.asarray(dense(law))


@pytest.mark.parametrize("places", [None, 0, 4])
def test_a_law_is_read_by_ids_by_tokens_and_whole(places):
    law, whole = law_and_rows(places)
    same = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=0)
    np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-5)
    same(dense(law), whole)
    ids = jnp.broadcast_to(jnp.arange(V), (B, 3, V))
    same(jax.jit(jax.vmap(probs.at, (None, 2), 2))(law, ids), whole)
    same(dense(probs.first(law, 2)), whole[:, :2])
    index = np.arange(B) % 3
    taken = probs.take(law, index)
    assert places is None or taken.logits is law.logits  # a table is not copied
    same(dense(taken), whole[np.arange(B), index])


# Drawing.

pick = jax.jit(probs.pick)
SIZES = [1, BLOCK, BLOCK + 1, 2 * BLOCK + 88]


@pytest.mark.parametrize("vocab", SIZES)
def test_an_impossible_id_is_never_drawn(vocab):
    rows = 64
    rng = np.random.default_rng(vocab)
    weights = rng.random((rows, vocab)) * (rng.random((rows, vocab)) < 0.05)
    weights[: rows // 2] *= 10.0 ** rng.integers(-9, 9, (rows // 2, vocab))
    weights[:, 0] *= rng.random(rows) < 0.5
    weights[weights.sum(1) == 0, rng.integers(vocab)] = 1e-3
    weights = np.float32(weights)
    for u in itertools.product((0.0, 0.5, NEARLY_ONE), repeat=2):
        ids = np.asarray(pick(weights, np.tile(np.float32(u), (rows, 1))))
        assert np.all((ids >= 0) & (ids < vocab))
        assert np.all(weights[np.arange(rows), ids] > 0)


@pytest.mark.parametrize("vocab", SIZES)
def test_the_smallest_uniform_draws_the_first_id_and_the_largest_the_last(vocab):
    rng = np.random.default_rng(vocab)
    weights = np.float32(rng.random((64, vocab)) < 0.3)
    weights[weights.sum(1) == 0, vocab // 2] = 1
    last = vocab - 1 - weights[:, ::-1].argmax(1)
    for u, wanted in ((0.0, weights.argmax(1)), (NEARLY_ONE, last)):
        got = pick(weights, np.full((64, 2), u, np.float32))
        np.testing.assert_array_equal(got, wanted)


def test_a_uniform_on_a_border_belongs_to_the_next_id():
    """Cumulative weight must exceed u: one convention, for kernels to share. One that
    was rounded up to 1 draws the last possible id."""
    quarters, halves = np.zeros((2, BLOCK + 1), np.float32)
    quarters[[0, 1, 3]] = 1, 2, 1
    halves[[3, BLOCK - 2]] = 0.5
    ends = (quarters, 0.25, 1), (quarters, 0.75, 3), (halves, 1.0, BLOCK - 2)
    for weights, u, wanted in ends:
        ids = pick(np.tile(weights, (64, 1)), np.full((64, 2), u, np.float32))
        np.testing.assert_array_equal(ids, np.full(64, wanted))


def test_weights_need_not_sum_to_one():
    weights = jnp.float32(np.random.default_rng(0).random((64, BLOCK + 1)))
    u = jax.random.uniform(jax.random.key(0), (64, 2))
    for factor in (2.0**-40, 2.0**40):
        np.testing.assert_array_equal(pick(factor * weights, u), pick(weights, u))


def frequencies_fit(draw) -> float:
    """The p-value of 20,000 draws from a law over two blocks and a part of a third."""
    rng = np.random.default_rng(3)
    vocab, count = 2 * BLOCK + 88, 20_000
    weights = rng.gamma(0.7, size=vocab) * (rng.random(vocab) < 0.5)
    weights[[0, BLOCK - 1, BLOCK, vocab - 1]] = 20, 0, 20, 20
    u = jax.random.uniform(jax.random.key(3), (count, 2))
    ids = draw(jnp.broadcast_to(jnp.float32(weights), (count, vocab)), u)
    observed = np.bincount(np.asarray(ids), minlength=vocab)
    if observed[weights == 0].any():
        return 0.0
    expected = weights / weights.sum() * count
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    return scipy.stats.chisquare(observed, expected).pvalue


def test_frequencies_follow_the_weights():
    assert frequencies_fit(pick) > 1e-3


def test_the_check_notices_one_uniform_for_both_steps():
    assert frequencies_fit(lambda w, u: pick(w, u[:, :1].repeat(2, axis=1))) < 1e-6


def test_the_check_notices_blocks_drawn_alike():
    """A block by its number instead of its weight."""

    def draw(weights, u):
        start = jnp.minimum(jnp.int32(3 * u[:, :1]), 2) * BLOCK
        here = jnp.arange(weights.shape[1])[None] // BLOCK * BLOCK == start
        return pick(jnp.where(here, weights, 0), u)

    assert frequencies_fit(draw) < 1e-6


def test_a_sample_is_a_pick_from_the_distribution():
    law = probs.take(some_laws(), jnp.zeros(B, int))
    u = jax.random.uniform(jax.random.key(4), (B, 2))
    got = probs.sample(law, u)
    assert got.dtype == jnp.int32
    np.testing.assert_array_equal(got, pick(dense(law), u))


@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 1.0])
def test_a_low_temperature_costs_no_digits(temperature):
    """Laws of logits far from zero still sum to 1, and `at` still agrees."""
    logits = 30 + 3 * temperature * jax.random.normal(jax.random.key(0), (B, V))
    law = jax.jit(probs.standardize)(logits, make_sampling(B, temperature))
    whole, row, best = np.asarray(dense(law)), np.arange(B), np.argmax(logits, axis=-1)
    np.testing.assert_allclose(whole.sum(-1), np.ones(B), atol=1e-6)
    np.testing.assert_allclose(probs.at(law, best), whole[row, best], rtol=1e-6)
