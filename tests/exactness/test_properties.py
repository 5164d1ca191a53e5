"""What holds for any two laws and any rule: random ones, with all that floats can do.

One compiled shape a rule; fewer ids are a pad of -inf, shorter drafts a smaller `num`.
Axes: B rows, G = gamma, V vocabulary, N drafts that can be enumerated.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax import keys, probs
from specjax.measure import lenience
from specjax.theory import closed_forms, predict
from specjax.types import Draft, Sampling, Verdict
from specjax.verifiers import gumbel, lenient, named, names

B, G, V = 32, 8, 64
NEARLY_ONE = 1 - 2**-24
RULES = names()
LEVELS = (1.0, 0.6, 0.3, 0.15)
KINDS = ("plain", "zeros", "NaN", "one-hot", "tiny", "ties")

each_rule = pytest.mark.parametrize("rule", RULES)
seeds = st.integers(0, 2**31)
kinds = st.sampled_from(KINDS)


def examples(count: int):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


# Any logits.


def logits(rng: np.random.Generator, kind: str, shape: tuple) -> np.ndarray:
    """[*shape, V] float32, of which at least one a row is finite."""
    z = rng.normal(size=(*shape, V)) * rng.choice([0.1, 2.0, 10.0], (*shape, 1))
    kept = rng.integers(V, size=(*shape, 1))
    gone = rng.random(z.shape) < {"one-hot": 1, "plain": 0}.get(kind, 0.4)
    gone |= np.arange(V) >= rng.integers(1, V + 1, (*shape, 1))
    if kind == "ties":
        z = np.round(z / 3)
    if kind == "tiny":  # laws of 1e-45 .. 1e-30: float32 has no more digits there
        z = np.where(gone, z - rng.uniform(70, 103, z.shape), z)
        gone = np.zeros_like(gone)
    z = np.where(gone, np.nan if kind == "NaN" else -np.inf, z)
    at_least = np.arange(V) == kept
    return np.where(at_least, np.nan_to_num(z, nan=1.0, neginf=1.0), z).astype("f4")


def softmax(z: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    """[B, ..., V] float64, of what is finite; at temperature 0 the first best id."""
    z = np.where(np.isfinite(z), z, -np.inf).astype(float)
    best = np.eye(z.shape[-1])[z.argmax(-1)]
    heat = temperature.astype(float).reshape(-1, *(1,) * (z.ndim - 1))
    scaled = np.exp((z - z.max(-1, keepdims=True)) / np.where(heat > 0, heat, 1))
    return np.where(heat > 0, scaled / scaled.sum(-1, keepdims=True), best)


def draws(rng: np.random.Generator, law: np.ndarray) -> np.ndarray:
    """An id of each law [..., V]."""
    below = np.cumsum(law, axis=-1)
    u = rng.random((*law.shape[:-1], 1)) * below[..., -1:]
    return (below <= u).sum(-1).astype(np.int32)


def noise(rule: str, rng: np.random.Generator, extreme: bool = False):
    """Of the rule's own shape: uniforms, or Gumbel variables made of uniforms."""
    request = jax.random.split(jax.random.key(0), B)
    start = jnp.zeros(B, jnp.int32)
    shape = jax.eval_shape(lambda k, s: named(rule).noise(k, s, G, V), request, start)

    def fill(leaf):
        u = rng.choice([0.0, NEARLY_ONE], leaf.shape) if extreme else None
        u = rng.random(leaf.shape) * NEARLY_ONE if u is None else u
        if rule == "gumbel":
            u = -np.log(-np.log(np.clip(u, 2.0**-46, NEARLY_ONE)))
        return jnp.float32(u)

    return jax.tree.map(fill, shape)


# One call.


@functools.cache
def judge(rule: str):
    """Both laws as they are, [B, G + 1, V] and [B, G, V], and the verdict."""

    @jax.jit
    def run(z_p, z_q, tokens, num, temperature, noise):
        p, q = (probs.standardize(z, Sampling(temperature)) for z in (z_p, z_q))
        draft = Draft(tokens, num, q)
        verdict = named(rule).verify(p, draft, noise, keep_residual=True)
        return probs.dense(p), probs.dense(q), verdict

    return run


def decide(rule: str, z_p, z_q, tokens, noise, num=None, temperature=None) -> Verdict:
    num = np.full(B, G, np.int32) if num is None else num
    hot = np.ones(B, np.float32) if temperature is None else temperature
    results = judge(rule)(z_p, z_q, tokens, num, hot, noise)
    return jax.tree.map(np.asarray, results)


@each_rule
@examples(30)
@given(seed=seeds, p=kinds, q=kinds, extreme=st.booleans(), drawn=st.booleans())
def test_a_verdict_is_finite_and_possible(rule, seed, p, q, extreme, drawn):
    """Laws sum to 1, nothing is NaN, and what p cannot say is never emitted, whatever
    is drafted: drawn from q or not."""
    rng = np.random.default_rng(seed)
    z_p, z_q = logits(rng, p, (B, G + 1)), logits(rng, q, (B, G))
    heat = rng.choice([0.0, 0.5, 1.0, 2.0], B).astype(np.float32)
    num = rng.integers(0, G + 1, B).astype(np.int32)
    tokens = rng.integers(V, size=(B, G)).astype(np.int32)
    if drawn:
        tokens = draws(rng, softmax(z_q, heat))
    variables = noise(rule, rng, extreme)
    *laws, verdict = decide(rule, z_p, z_q, tokens, variables, num, heat)

    for law, z in zip(laws, (z_p, z_q), strict=True):
        np.testing.assert_allclose(law, softmax(z, heat), atol=2e-6)
        np.testing.assert_allclose(law.sum(-1), 1, atol=1e-5)
    n, text = verdict.num_accepted, verdict.tokens
    assert np.all((n >= 0) & (n <= num))  # 1 <= emitted <= num + 1
    slots = np.arange(G + 1)
    emitted, kept = slots <= n[:, None], slots < n[:, None]
    assert np.all(np.where(emitted, 0, text) == 0)
    np.testing.assert_array_equal(text[kept], tokens[kept[:, :G]])
    possible = np.isfinite(z_p) & ((heat > 0)[:, None, None] | (softmax(z_p, heat) > 0))
    assert np.take_along_axis(possible, text[..., None], -1)[..., 0][emitted].all()
    chance = verdict.accept_prob
    assert np.all((chance >= 0) & (chance <= 1 + 1e-6))
    assert np.all(chance[slots[:G] >= num[:, None]] == 0)
    weights = verdict.residual
    assert np.isfinite(weights).all() and np.all(weights >= 0)
    extra = text[np.arange(B), n]
    assert np.all(weights[np.arange(B), extra] > 0)
    assert not weights[~possible[np.arange(B), n]].any()


# How much is kept of one token.

IDS = np.arange(B, dtype=np.int32)  # one drafted in each row


def pair(seed: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits [2, V] of p and q, of which the first B ids are possible at most; some are
    as likely under both."""
    rng = np.random.default_rng(seed)
    z_p, z_q = logits(rng, kind, (2,))
    z_q = np.where(rng.random(V) < 0.3, z_p, z_q)
    both = np.where(np.arange(V) < rng.integers(1, B + 1), [z_p, z_q], -np.inf)
    both[:, 0] = np.where(np.isfinite(both).any(1), both[:, 0], 0.5)
    return both.astype(np.float32)


def laws_of(both: np.ndarray) -> np.ndarray:
    """[2, B] float64: p and q."""
    return softmax(both[:, None], np.ones(2))[:, 0, :B]


def one_draft(rule: str, both: np.ndarray) -> Verdict:
    """A call with id b drafted in row b, that of the least chance rejected."""
    z_p, z_q = np.tile(both[0], (B, G + 1, 1)), np.tile(both[1], (B, G, 1))
    tokens, num = np.tile(IDS[:, None], G), np.ones(B, np.int32)
    variables = noise(rule, np.random.default_rng(0))
    if hasattr(variables, "accept"):
        variables = variables._replace(accept=np.full((B, G), NEARLY_ONE, np.float32))
    return decide(rule, z_p, z_q, tokens, variables, num)[-1]


each_pair = given(seed=seeds, kind=st.sampled_from(("plain", "zeros", "NaN", "ties")))


@pytest.mark.parametrize("rule", ["token", "block", "rejection", "match"])
@examples(30)
@each_pair
def test_the_rate_of_one_token_is_its_closed_form(rule, seed, kind):
    """Leviathan et al. (2023), Corollary 3.6 and Appendix A.2."""
    both = pair(seed, kind)
    p, q = laws_of(both)
    rate = q @ one_draft(rule, both).accept_prob[:, 0]
    beta = closed_forms.acceptance(p, q)
    inside = p > 0
    closed = {"rejection": np.min(q[inside] / p[inside]), "match": p @ q}
    assert rate == pytest.approx(closed.get(rule, beta), abs=3e-6)
    assert rate <= beta + 3e-6


# Lenience.


@functools.cache
def lenient_rates():
    """accept_prob [L, B] of the first of each row's tokens, for each of LEVELS."""

    @jax.jit
    def run(z_p, z_q, noise):
        p, q = (probs.standardize(z, Sampling(jnp.ones(B))) for z in (z_p, z_q))
        draft = Draft(jnp.asarray(IDS)[:, None], jnp.ones(B, jnp.int32), q)
        rules = [lenient.build(level) for level in LEVELS]
        each = [rule.verify(p, draft, noise).accept_prob[:, 0] for rule in rules]
        return jnp.stack(each)

    return run


def beta_l(both: np.ndarray) -> np.ndarray:
    """[L] the rate of one token at each of LEVELS, by the verifiers themselves."""
    z_p, z_q = np.tile(both[0], (B, 2, 1)), np.tile(both[1], (B, 1, 1))
    uniforms = noise("token", np.random.default_rng(0))
    uniforms = uniforms._replace(accept=uniforms.accept[:, :1])
    chance = np.asarray(lenient_rates()(z_p, z_q, uniforms), float)
    return chance @ laws_of(both)[1]


@examples(30)
@given(seed=seeds, kind=st.sampled_from(("plain", "zeros", "ties")))
def test_a_lenient_rate_is_its_closed_form(seed, kind):
    both = pair(seed, kind)
    exact = [lenience.acceptance(*laws_of(both), level) for level in LEVELS]
    np.testing.assert_allclose(beta_l(both), exact, atol=3e-6)


# Races.


agreement = jax.jit(gumbel.acceptance)


@examples(40)
@each_pair
def test_a_race_is_won_by_both_about_as_often_as_laws_allow(seed, kind):
    p, q = laws_of(pair(seed, kind))
    beta, rate = closed_forms.acceptance(p, q), float(agreement(p, q))
    assert beta / (2 - beta) - 1e-5 <= rate <= beta + 1e-5
    assert rate == pytest.approx(float(agreement(q, p)), abs=1e-5)


def test_races_are_won_by_both_at_that_rate():
    """Of 20000 positions, by the keys and the race that texts are drawn with."""
    count, (p, q) = 20_000, ([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1])

    @jax.jit
    def winners(key):
        g = keys.gumbel(jnp.broadcast_to(key, count), jnp.arange(count), 4)
        heat = Sampling(jnp.ones(1))
        laws = [probs.standardize(jnp.log(jnp.array([x])), heat) for x in (p, q)]
        own = keys.gumbel(jnp.broadcast_to(key, count), count + jnp.arange(count), 4)
        return probs.race(laws[0], g), probs.race(laws[1], g), probs.race(laws[1], own)

    y, x, apart = map(np.asarray, winners(jax.random.key(0)))
    rate, spread = agreement(*map(np.array, (p, q))), 0.5 / np.sqrt(count)
    assert abs(np.mean(y == x) - rate) < 4 * spread
    assert abs(np.mean(y == apart) - np.dot(p, q)) < 4 * spread < rate - np.dot(p, q)


# How much is kept of a draft.

SIZE, LONG = 3, 3  # ids and drafted tokens: 27 drafts, a row each
DRAFTS = np.array(list(itertools.product(range(SIZE), repeat=LONG)), np.int32)


def trees(rng: np.random.Generator, zeros: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits of p and q at each of a row's contexts: [B, G + 1, V], [B, G, V]."""

    @functools.cache
    def context(prefix: tuple) -> np.ndarray:
        z = np.full((2, V), -np.inf, np.float32)
        z[:, :SIZE] = 1.5 * rng.normal(size=(2, SIZE))
        z[:, :SIZE][rng.random((2, SIZE)) < zeros] = -np.inf
        z[:, rng.integers(SIZE)] = 0.0
        return z

    rows = np.zeros((B, G + 1, 2, V), np.float32)
    for row, draft in enumerate(DRAFTS.tolist()):
        for slot in range(LONG + 1):
            rows[row, slot] = context(tuple(draft[:slot]))
    return rows[:, :, 0], rows[:, :G, 1]


def mean_kept(rule: str, z_p: np.ndarray, z_q: np.ndarray) -> float:
    """E(n) over all drafts, by the thresholds of the rule's own verdicts."""
    tokens, num = np.zeros((B, G), np.int32), np.zeros(B, np.int32)
    tokens[: len(DRAFTS), :LONG], num[: len(DRAFTS)] = DRAFTS, LONG
    variables = noise(rule, np.random.default_rng(0))
    *_, verdict = decide(rule, z_p, z_q, tokens, variables, num)
    q = softmax(z_q, np.ones(B))[: len(DRAFTS), :LONG]
    chance = np.take_along_axis(q, DRAFTS[..., None], -1)[..., 0].prod(1)
    h = verdict.accept_prob[: len(DRAFTS), :LONG].astype(float)
    if rule == "block":  # n is the last success: n >= i unless all from i on fail
        survive = 1 - np.cumprod((1 - h)[:, ::-1], axis=1)[:, ::-1]
    else:  # before the first failure
        survive = np.cumprod(h, axis=1)
    return float(chance @ survive.sum(1))


@examples(25)
@given(seed=seeds, zeros=st.sampled_from([0.0, 0.3, 0.6]))
def test_rules_are_ordered_by_what_they_keep(seed, zeros):
    """No rule of one draft keeps more than block verification (Sun et al. 2024), and
    Algorithm 1 is never worse than rejection sampling (Appendix A.2) or a match."""
    z_p, z_q = trees(np.random.default_rng(seed), zeros)
    means = {rule: mean_kept(rule, z_p, z_q) for rule in RULES if rule != "gumbel"}
    assert means["block"] >= means["token"] - 1e-5
    assert means["token"] >= means["rejection"] - 1e-5
    assert means["token"] >= means["match"] - 1e-5


def test_the_order_is_strict():
    z_p, z_q = trees(np.random.default_rng(0), 0.0)
    means = [mean_kept(rule, z_p, z_q) for rule in ("block", "token", "rejection")]
    assert np.all(np.diff(means) < -0.01)


# Calls.


@examples(30)
@given(seed=seeds)
def test_more_acceptance_never_costs_calls(seed):
    """In the mean and in law: fewer calls are as likely or likelier."""
    rng = np.random.default_rng(seed)
    low, gammas = rng.random(20), [0, 1, 3, 8]
    high = low + (1 - low) * rng.random(20) * (rng.random(20) < 0.3)
    calls = [predict.expected_calls(accept, gammas) for accept in (low, high)]
    assert np.all(calls[1] <= calls[0] + 1e-12)
    assert calls[1][0] == calls[0][0] == 20
    for gamma in gammas:
        below = [np.cumsum(predict.calls_law(accept, gamma)) for accept in (low, high)]
        assert np.all(below[1] >= below[0] - 1e-12)
    assert np.all(np.diff(calls[0]) <= 1e-12)  # nor does a longer draft
