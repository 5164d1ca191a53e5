"""Truncation equals a sort in float64, on 10,000 rows that are made to mislead it.

Axes: R rows, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import truncation
from specjax.probs import standardize
from specjax.types import Sampling

# Rows by vocabulary: all within NEAR, all but one id, many beyond; and in stripes.
ROWS = {1: 100, 7: 3000, 129: 3000, 600: 3870, truncation.LARGE + 500: 30}
ROUNDING = 1e-6  # of top_p, by which sums in float32 may miss it
TEMPERATURES = (0.2, 0.7, 1.0, 1.5)
TOP_P = (1e-6, 0.1, 0.5, 0.9, 0.99, 0.999999, 1.0, 1.0)
MIN_P = (0.0, 0.0, 1e-4, 0.05, 0.5, 1.0)


def rows(rng, count: int, vocab: int) -> np.ndarray:
    """Returns [R, V] float32 rows of eleven kinds in turn; each row has a possible
    id."""
    z = rng.normal(size=(count, vocab)) * rng.choice([1, 4, 12], (count, 1))
    coin, kind = rng.random((count, vocab)), np.arange(count) % 11
    some = rng.integers(vocab, size=count)

    def set_rows(number: int, values: np.ndarray) -> None:
        z[kind == number] = np.broadcast_to(values, z.shape)[kind == number]

    set_rows(1, np.round(z))  # many are equal
    set_rows(2, np.float64(0.5))  # all are
    set_rows(3, np.where(coin < 0.9, -np.inf, z))
    set_rows(
        4, np.where(coin < 0.6, np.where(coin < 0.3, -0.0, 0.0), np.round(2 * z) / 2)
    )
    set_rows(5, z + 40 * (np.arange(vocab) == some[:, None]))  # one is nearly all
    set_rows(6, z * 1e-7)  # all are nearly equal
    set_rows(7, np.where(coin < 0.5, 3.0, -2.0))
    set_rows(8, np.where(coin < 0.2, np.nan, z))
    set_rows(9, np.sort(z, axis=-1))
    set_rows(10, -np.sort(-np.round(z * 4) / 4, axis=-1) * 1e6)
    here = np.arange(vocab) == some[:, None]
    return np.float32(np.where(here, np.nan_to_num(z, nan=1, neginf=1), z))


@functools.cache
def case(vocab: int) -> tuple[np.ndarray, Sampling]:
    """Returns logits [R, V] and settings [R], each of which is off in some of the
    rows."""
    rng, count = np.random.default_rng(vocab), ROWS[vocab]
    top_k = [1, 2, 5, 50, 127, 128, 129, 500, vocab, vocab, 10 * vocab]
    real = (rng.choice(list(v), count) for v in (TEMPERATURES, TOP_P, MIN_P))
    temperature, top_p, min_p = map(np.float32, real)
    top_k = np.int32(rng.choice(top_k, count))
    return rows(rng, count, vocab), Sampling(temperature, top_k, top_p, min_p)


@jax.jit
def last_kept(z, sampling: Sampling) -> tuple:
    law = standardize(z, sampling)
    return law.tau, law.tie


def kept_ids(z: np.ndarray, tau, tie) -> np.ndarray:
    """Returns [R, V] bool: which possible ids the end of a prefix keeps."""
    tau, tie = np.asarray(tau)[:, None], np.asarray(tie)[:, None]
    ids = np.arange(z.shape[-1])
    return (z > -np.inf) & ((z > tau) | ((z == tau) & (ids <= tie)))


# The oracle, and what it must be told from.

CORRECT = ""
BROKEN = (
    "of equals the larger id first",
    "-0.0 below 0.0",
    "the token that crosses top_p left out",
    "top_p over all ids",
    "top_p before temperature",
    "min_p over what is just its share left out",
    "min_p of all instead of the largest",
)


def rows_that_differ(
    kept, z: np.ndarray, sampling: Sampling, mistake: str
) -> np.ndarray:
    """Returns [R] bool: the rows in which the kept ids are not the prefix that a sort
    in float64 gives."""
    z, ids = np.where(np.isnan(z), -np.inf, z).astype(float), np.arange(z.shape[-1])
    temperature, top_k, top_p, min_p = (np.float64(s)[:, None] for s in sampling)
    order = np.argsort(-z, axis=-1, kind="stable")
    if mistake == "of equals the larger id first":
        order = ids[-1] - np.argsort(-z[:, ::-1], axis=-1, kind="stable")
    if mistake == "-0.0 below 0.0":
        below = np.where((z == 0) & np.signbit(z), -1e-300, z)
        order = np.argsort(-below, axis=-1, kind="stable")
    ranked = np.take_along_axis(z, order, axis=-1)
    log_weight = (ranked - ranked[:, :1]) / temperature
    weight = np.exp(log_weight)
    if mistake == "top_p before temperature":
        weight = np.exp(log_weight * temperature)
    size = np.minimum(top_k, (z > -np.inf).sum(-1, keepdims=True))
    mass = np.cumsum(weight, axis=-1)
    of_all = mistake == "top_p over all ids"
    last = ids[-1:] if of_all else np.int64(size) - 1
    mass = mass / np.take_along_axis(mass, np.broadcast_to(last, size.shape), axis=-1)

    def reached_places(share: np.ndarray) -> np.ndarray:
        before = (mass < share).sum(-1, keepdims=True)
        left_out = mistake == "the token that crosses top_p left out"
        return np.where(top_p < 1, np.minimum(before + 1 - left_out, size), size)

    shortest, longest = (
        reached_places(top_p - ROUNDING),
        reached_places(top_p + ROUNDING),
    )
    share = weight / weight.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        likely = log_weight >= np.log(min_p)
    if mistake == "min_p over what is just its share left out":
        likely = weight > min_p
    if mistake == "min_p of all instead of the largest":
        likely = share >= min_p
    likely = likely.sum(-1, keepdims=True)
    both = shortest, longest
    shortest, longest = (np.maximum(np.minimum(s, likely), 1) for s in both)
    in_order = np.take_along_axis(kept, order, axis=-1)
    count = in_order.sum(-1, keepdims=True)
    prefix = (in_order == (ids < count)).all(-1)
    return ~prefix | (count < shortest)[:, 0] | (count > longest)[:, 0]


@functools.cache
def kept_in_vocab(vocab: int) -> np.ndarray:
    z, sampling = case(vocab)
    tau, tie = last_kept(z, sampling)
    named = z[np.arange(len(z)), tie]  # the id that the end names is kept itself
    assert np.all((named == tau) | np.isneginf(tau))
    return kept_ids(z, tau, tie)


@pytest.mark.parametrize("vocab", ROWS)
def test_just_the_prefix_of_a_sort_in_float64_is_kept(vocab):
    assert sum(ROWS.values()) == 10_000
    wrong = rows_that_differ(kept_in_vocab(vocab), *case(vocab), CORRECT)
    assert not wrong.any(), np.flatnonzero(wrong)


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_is_seen(mistake):
    assert rows_that_differ(kept_in_vocab(129), *case(129), mistake).sum() > 10


def test_just_the_mass_is_enough_far_from_the_top_too():
    """Half of 600 equal ids reach 0.5; of the 400 that top_k keeps, 200 do."""
    count, top_k = ROWS[600], np.full(ROWS[600], 600)
    top_k[::2] = 400
    settings = np.ones(count), top_k, np.full(count, 0.5), np.zeros(count)
    kinds = np.float32, np.int32, np.float32, np.float32
    sampling = Sampling(*(kind(x) for kind, x in zip(kinds, settings, strict=True)))
    tie = last_kept(np.zeros((count, 600), np.float32), sampling)[1]
    np.testing.assert_array_equal(tie, top_k / 2 - 1)


def test_nothing_is_sorted():
    """The compiler does not sort either, which takes some uses of top_k for a sort."""
    program = last_kept.lower(*case(max(ROWS))).compile().as_text()
    assert " sort(" not in program and "while(" in program


# In every surrounding.


def sample_rows() -> tuple[np.ndarray, Sampling]:
    """Returns ten rows of each kind, some of which end near the top and some do not."""
    z, sampling = case(600)
    return z[:110], Sampling(*(setting[:110] for setting in sampling))


def test_other_rows_change_nothing():
    """A row that ends near the top is decoded with rows that do not, and with argmax
    rows."""
    z, sampling = case(600)
    near = sampling.top_k <= truncation.NEAR
    greedy = sampling._replace(temperature=np.where(near, sampling.temperature, 0))
    for both in zip(last_kept(z, sampling), last_kept(z, greedy), strict=True):
        np.testing.assert_array_equal(*(np.asarray(part)[near] for part in both))


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "mapped"])
def test_a_setting_left_out_is_one_that_limits_nothing_and_rows_may_be_mapped(name):
    def last_kept_alone(row):
        return last_kept(*jax.tree.map(lambda x: x[None], row))

    z, sampling = sample_rows()
    off = dict(top_k=np.full(110, 600), top_p=np.ones(110), min_p=np.zeros(110))
    if name == "mapped":
        off = {}
        tau, tie = (x[:, 0] for x in jax.jit(jax.vmap(last_kept_alone))((z, sampling)))
    else:
        del off[name]
        tau, tie = last_kept(z, sampling._replace(**dict.fromkeys(off)))
    assert not rows_that_differ(
        kept_ids(z, tau, tie), z, sampling._replace(**off), CORRECT
    ).any()


def test_float64_logits_are_ordered_in_float64():
    """In float32 the logits would be equal, and the first ids would be kept."""
    with jax.enable_x64(True):
        z = 1 + 1e-12 * np.arange(300.0)[None]
        for top_k, top_p in ((5, 1.0), (200, 1.0), (300, 0.0049), (250, 0.9)):
            sampling = Sampling(np.ones(1), np.int32([top_k]), np.float64([top_p]))
            tau, tie = last_kept(jnp.asarray(z), sampling)
            count = round(top_k * top_p + 0.4999)
            assert tau.dtype == np.float64
            kept = np.flatnonzero(kept_ids(z, tau, tie)[0])
            assert kept.tolist() == list(range(300 - count, 300))
