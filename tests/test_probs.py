"""The laws of Section 2.2 agree with a float64 reference, with results by hand, and in
extreme cases.

What is kept of 10,000 rows is `test_truncation.py`'s.
Axes: B rows, T tokens, V vocabulary.
"""

import argparse
import contextlib
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import probs
from specjax.decode_config import check_setting, setting_type
from specjax.exactness.fixtures import reference, shared_table
from specjax.exactness.goodness import g_test
from specjax.inputs import make_sampling
from specjax.speech import segments
from specjax.types import BLOCK, Law, Reduced, Sampling

NEARLY_ONE = 1 - 2**-24  # the largest float32 below 1
B, V = 8, 11


@jax.jit
def distribution(logits, sampling):
    """Returns the distributions [B, V] of logits [B, V]."""
    return probs.dense(probs.standardize(logits, sampling))


def one_row(logits, temperature: float) -> np.ndarray:
    """Returns the distribution of at most V logits, padded so that all share a
    compilation."""
    size = len(logits)
    filled = np.pad(np.float32(logits), (0, V - size), constant_values=-np.inf)
    sampling = make_settings(temperature, V, 1.0, 0.0)
    return np.asarray(distribution(jnp.tile(filled, (B, 1)), sampling))[0, :size]


def make_settings(temperature, top_k, top_p, min_p) -> Sampling:
    """Returns all four settings, each a number or one per row."""
    whole = np.broadcast_to(np.int32(top_k), B)
    real = (np.broadcast_to(np.float32(x), B) for x in (temperature, top_p, min_p))
    temperature, top_p, min_p = map(jnp.asarray, real)
    return Sampling(temperature, jnp.asarray(whole), top_p, min_p)


@pytest.mark.parametrize("heat", [0.0, 0.7])
def test_a_law_of_some_ids_is_that_of_all_with_the_others_impossible(heat):
    ids = np.array([1, 2, 4, 5, 7, 10], np.int32)
    place = np.full(V, ids.size, np.int32)
    place[ids] = np.arange(ids.size)
    known = jnp.asarray(ids), jnp.asarray(place)
    random = np.random.default_rng(3)
    z = random.integers(-2, 3, (B, 5, ids.size)).astype(np.float32)  # many are equal
    whole = np.full((B, 5, V), -np.inf, np.float32)
    whole[..., ids] = z
    gumbel = jnp.asarray(random.gumbel(size=(B, 5, V)))
    u = random.random((B, 2), np.float32)
    every = jnp.asarray(random.integers(0, V, (B, 5)))

    @jax.jit
    def read_law(logits, sampling):
        law = probs.standardize(logits, sampling)
        one = probs.take(law, jnp.arange(B) % 5)
        shown = (
            probs.dense(law),
            probs.dense(probs.first_tokens(law, 3)),
            probs.dense(one),
        )
        return *shown, probs.at(law, every), probs.race(law, gumbel), law.tie

    for setting in ((V, 1.0, 0.0), (4, 0.8, 0.0), (V, 1.0, 0.4)):
        sampling = make_settings(heat, *setting)
        some = read_law(Reduced(jnp.asarray(z), *known), sampling)
        for mine, of_all in zip(some[:-1], read_law(whole, sampling)[:-1], strict=True):
            np.testing.assert_allclose(mine, of_all, rtol=1e-6)
        assert np.isin(some[-1], ids).all()
    law = probs.standardize(Reduced(jnp.asarray(z[:, 0]), *known), sampling)
    law_of_all = probs.standardize(jnp.asarray(whole[:, 0]), sampling)
    drawn = probs.sample(law, u)
    assert (probs.at(law_of_all, drawn) > 0).all()
    cumulative = np.cumsum(probs.dense(law), -1)  # all in one block: by u[:, 1]
    assert (drawn == np.argmax(cumulative > u[:, 1:], axis=-1)).all()


TIES = [1, 3, 3, 0, 3]


@pytest.mark.parametrize("temperature", [1e-1, 1e-2, 1e-4, probs.LEAST])
def test_a_small_temperature_tends_to_argmax_and_shares_among_equals(temperature):
    law = one_row([1, 3.0, 2.5, 0, 2], temperature=temperature)
    assert law[1] == pytest.approx(1, abs=np.exp(-0.4 / temperature))
    law = one_row(TIES, temperature=temperature)
    np.testing.assert_allclose(law, np.array([0, 1, 1, 0, 1]) / 3, atol=2e-3)


@pytest.mark.parametrize("temperature", [-1, 0, 1e-40, 1.17e-38, 1.18e-38, 1e4, 1.1e4])
def test_a_temperature_is_taken_or_refused_everywhere(temperature):
    """It may be a number, one per row, a flag, or the temperatures of a recording."""
    rows = Sampling(jnp.full(2, temperature, jnp.float32))
    recording = segments.Thresholds(temperatures=(temperature,))
    taken = temperature == 0 or probs.LEAST <= temperature <= probs.MOST
    for check in (
        lambda: check_setting("temperature", temperature),
        lambda: probs.check(rows, 2),
        lambda: setting_type("temperature")(str(temperature)),
        lambda: segments.check(recording),
    ):
        refused = pytest.raises((ValueError, argparse.ArgumentTypeError))
        with contextlib.nullcontext() if taken else refused:
            check()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["any", "ties", "few"])
def test_random_laws_are_those_of_the_reference(kind, dtype):
    rng = np.random.default_rng(0)
    for _ in range(12):
        z = 3 * rng.normal(size=(B, V))
        z = np.round(2 * z) / 2 if kind == "ties" else z
        z[:, 1:][rng.random((B, V - 1)) < 0.8 * (kind == "few")] = -np.inf
        each = (
            rng.choice([0.0, 0.3, 0.7, 1.0, 2.0], B).astype(np.float32),
            rng.integers(1, V + 1, B),
            rng.choice([0.1, 0.5, 0.77, 0.95, 1.0], B).astype(np.float32),
            rng.choice([0.0, 0.05, 0.3, 1.0], B).astype(np.float32),
        )
        z = jnp.asarray(z, dtype)
        got, z = distribution(z, make_settings(*each)), np.asarray(z, np.float32)
        rows = zip(z, *each, strict=True)
        wanted = [reference(row, Sampling(*setting)) for row, *setting in rows]
        np.testing.assert_array_equal(np.asarray(got) > 0, np.array(wanted) > 0)
        np.testing.assert_allclose(got, wanted, atol=2e-5)


# A law is where its distribution is read from.


dense = jax.jit(probs.dense)


MIXED = make_settings(
    [0, 1, 1, 1, 0.5, 1, 2, 0],
    [V, 3, V, V, 4, V, 6, 2],
    [1, 1, 0.6] * 2 + [1, 1],
    0,
)


def some_laws() -> Law:
    """Returns [B, 3] laws of V ids with every kind of setting, ties and impossible
    ids."""
    z = (2 * jax.random.normal(jax.random.key(2), (B, 3, V))).round()
    return jax.jit(probs.standardize)(z.at[:, :, 4].set(-jnp.inf), MIXED)


def test_a_law_keeps_the_logits_as_they_are():
    z = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    law = probs.standardize(z, make_sampling(2, 0.5, top_k=2))
    assert law.logits is z
    assert {leaf.shape for leaf in law[1:5]} == {(2,)}


def make_table_law() -> Law:
    """Returns the laws of rows that share a table."""
    rng = np.random.default_rng(0)
    rows, row = rng.normal(size=(5, V)).astype("f4"), rng.integers(0, 5, (B, 3))
    table = jax.tree.map(jnp.asarray, shared_table(rows))
    logits = probs.table_rows(table, jnp.asarray(row))
    np.testing.assert_allclose(logits, rows[row], atol=1e-6)
    law = jax.jit(probs.standardize)(logits, MIXED)
    shared = law._replace(logits=table, row=jnp.asarray(row))
    np.testing.assert_allclose(dense(shared), dense(law), rtol=1e-6)
    return shared


@pytest.mark.parametrize("law", [some_laws, make_table_law])
def test_a_law_is_read_by_ids_by_tokens_and_whole(law):
    law = law()
    whole = np.asarray(dense(law))
    same = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=0)
    np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-5)
    ids = jnp.broadcast_to(jnp.arange(V), (B, 3, V))
    same(jax.jit(jax.vmap(probs.at, (None, 2), 2))(law, ids), whole)
    same(dense(probs.first_tokens(law, 2)), whole[:, :2])
    index = np.arange(B) % 3
    taken = probs.take(law, index)
    assert taken.logits is law.logits or law.row is None  # a table is not copied
    same(dense(taken), whole[np.arange(B), index])


# Drawing.

pick = jax.jit(probs.pick)
SIZES = [1, BLOCK, BLOCK + 1, 2 * BLOCK + 88]


@pytest.mark.parametrize("vocab", SIZES)
def test_an_impossible_id_is_never_drawn(vocab):
    """Among the possible ids, the smallest uniform draws the first and the largest the
    last."""
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
    weights = np.float32(weights > 0)
    last = vocab - 1 - weights[:, ::-1].argmax(1)
    for u, wanted in ((0.0, weights.argmax(1)), (NEARLY_ONE, last)):
        got = pick(weights, np.full((rows, 2), u, np.float32))
        np.testing.assert_array_equal(got, wanted)


def test_a_uniform_on_a_border_belongs_to_the_next_id():
    """The cumulative weight must exceed u: a convention that all kernels share. A
    uniform that was rounded up to 1 draws the last possible id."""
    quarters, halves = np.zeros((2, BLOCK + 1), np.float32)
    quarters[[0, 1, 3]] = 1, 2, 1
    halves[[3, BLOCK - 2]] = 0.5
    ends = (quarters, 0.25, 1), (quarters, 0.75, 3), (halves, 1.0, BLOCK - 2)
    for weights, u, wanted in ends:
        ids = pick(np.tile(weights, (64, 1)), np.full((64, 2), u, np.float32))
        np.testing.assert_array_equal(ids, np.full(64, wanted))


def frequencies_fit(draw) -> float:
    """Returns the p-value of 20,000 draws from a law over two blocks and a part of a
    third."""
    rng = np.random.default_rng(3)
    vocab, count = 2 * BLOCK + 88, 20_000
    weights = rng.gamma(0.7, size=vocab) * (rng.random(vocab) < 0.5)
    weights[[0, BLOCK - 1, BLOCK, vocab - 1]] = 20, 0, 20, 20
    u = jax.random.uniform(jax.random.key(3), (count, 2))
    ids = draw(jnp.broadcast_to(jnp.float32(weights), (count, vocab)), u)
    observed = np.bincount(np.asarray(ids), minlength=vocab)
    return g_test(observed, weights / weights.sum())


def sample_block_number(weights, u):
    """Samples a block by its number instead of its weight, which is wrong."""
    start = jnp.minimum(jnp.int32(3 * u[:, :1]), 2) * BLOCK
    here = jnp.arange(weights.shape[1])[None] // BLOCK * BLOCK == start
    return pick(jnp.where(here, weights, 0), u)


def test_frequencies_follow_the_weights_and_broken_draws_are_noticed():
    assert frequencies_fit(pick) > 1e-3
    assert frequencies_fit(lambda w, u: pick(w, u[:, :1].repeat(2, axis=1))) < 1e-6
    assert frequencies_fit(sample_block_number) < 1e-6


@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 1.0])
def test_a_low_temperature_costs_no_digits(temperature):
    """Laws of logits far from zero still sum to 1, and `at` agrees with them."""
    logits = 30 + 3 * temperature * jax.random.normal(jax.random.key(0), (B, V))
    law = jax.jit(probs.standardize)(logits, make_sampling(B, temperature))
    whole, row, best = np.asarray(dense(law)), np.arange(B), np.argmax(logits, axis=-1)
    np.testing.assert_allclose(whole.sum(-1), np.ones(B), atol=1e-6)
    np.testing.assert_allclose(probs.at(law, best), whole[row, best], rtol=1e-6)
