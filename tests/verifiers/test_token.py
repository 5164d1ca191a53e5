"""Algorithm 1 keeps the target's law with every drafter, and decides as by hand.

The statistics run the real jitted loop on Markov chains, whose laws are known exactly:
texts of four tokens in many rows against their joint law. Each has a broken twin. The
law of one verdict is enumerated in `exactness/test_certify.py`.
Axes: N rows, B rows of a small call, G = gamma, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax import probs
from specjax.types import Draft, Law, Params, Sampling, Verifier
from specjax.verifiers import token
from tests.support import goodness, mutants, sampled_texts
from tests.support.drafter_cases import BY_NAME
from tests.support.sampled_texts import WORLD

NEVER, FINE = 1e-6, 1e-3  # p-values of a test that must fail; the seeds are fixed
NEARLY_ONE = 1 - 2**-24


# The law of whole texts.


# Of each kind of draft: with laws [V], with rows of a table, without laws.
SAMPLED = ("autoregressive", "early_exit", "random", "trigram", "copying")
# The target as its own drafter is an autoregressive one of other parameters.
ITSELF = Params(WORLD.target_weights, WORLD.target_weights)
RESIDUAL, ROW = "residual is p", "bonus of the row before"


def mutant(wrong: str) -> Verifier:
    def verify(target, draft, noise):
        verdict = mutants.verify(target, draft, noise, wrong=wrong)
        return verdict._replace(residual=None)

    return Verifier(token.noise, verify)


RULES = token.verifier, mutant(RESIDUAL), mutant(ROW)


def p_value(name: str, wrong: str = "", params: Params | None = None) -> float:
    """Of texts by Algorithm 1, or one of its mutants, whose rows take turns with two
    settings."""
    case, which = BY_NAME[name], ("", RESIDUAL, ROW).index(wrong)
    decode = sampled_texts.loop(case, RULES)
    asked = goodness.ask(goodness.ROWS, seed=0)
    texts = goodness.written(decode(which, params or case.params(WORLD), *asked))
    return goodness.p_value(texts, sampled_texts.laws("tables"))


@pytest.mark.parametrize("name", SAMPLED)
def test_texts_follow_the_target_with_any_drafter(name):
    assert p_value(name) > FINE


@pytest.mark.parametrize("name", SAMPLED)
def test_the_check_notices_a_broken_verifier_with_any_drafter(name):
    assert p_value(name, RESIDUAL) < NEVER


def test_texts_follow_the_target_as_its_own_drafter():
    """It is never rejected, which hides a wrong residual, but not a wrong row."""
    assert p_value("autoregressive", params=ITSELF) > FINE
    assert p_value("autoregressive", ROW, ITSELF) < NEVER


# One call of the verifier, by hand.


B, G, V = 16, 3, 7


def one_hot(ids) -> np.ndarray:
    return np.eye(V, dtype=np.float32)[np.asarray(ids)]


@jax.jit
def law_of(p) -> Law:
    """The law with probabilities p [B, T, V], zeros included."""
    return probs.standardize(jnp.log(p), Sampling(jnp.ones(B)))


verify = jax.jit(functools.partial(token.verify, keep_residual=True))


def decide(p, q, drafted, u, num=None, sample=None):
    """The verdict on p [b, g + 1, v], q [b, g, v] (None is certainty), drafted and u
    [b, g]; filled up to one shape, so that all tests share a compilation."""
    b, g = np.shape(drafted)
    tokens, accept = np.zeros((B, G), np.int32), np.zeros((B, G), np.float32)
    tokens[:b, :g], accept[:b, :g] = drafted, u
    live = np.zeros(B, np.int32)
    live[:b] = g if num is None else num
    law = None if q is None else law_of(fill(q, G))
    pair = np.full((B, 2), 0.5) if sample is None else sample
    noise = token.Noise(jnp.asarray(accept), jnp.asarray(pair, jnp.float32))
    draft = Draft(jnp.asarray(tokens), jnp.asarray(live), law)
    verdict = jax.tree.map(np.asarray, verify(law_of(fill(p, G + 1)), draft, noise))
    return jax.tree.map(lambda leaf: leaf[:b], verdict)


def fill(p, width: int) -> np.ndarray:
    p = np.asarray(p, np.float32)
    filled = one_hot(np.zeros((B, width), int))
    filled[: p.shape[0], : p.shape[1]] = np.pad(
        p, ((0, 0), (0, 0), (0, V - p.shape[2]))
    )
    return filled


def random_laws(seed: int, shape, zeros: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    p = rng.gamma(0.5, size=shape) * (rng.random(shape) >= zeros)
    empty = p.sum(-1, keepdims=True) == 0
    p = np.where(empty, one_hot(rng.integers(V, size=shape[:-1])), p)
    return p / p.sum(-1, keepdims=True)


def test_greedy_goldens():
    """vLLM's cases, in our filling: 0 where nothing is, and n says how much is."""
    p = one_hot([[1, 2, 3, 4], [1, 5, 3, 4], [2, 0, 1, 1], [3, 1, 1, 1]])
    drafted = np.array([[1, 2, 3], [1, 2, 3], [2, 1, 1], [5, 5, 5]])
    for q in (one_hot(drafted), None):
        for u in (0.0, 0.5, NEARLY_ONE):
            verdict = decide(p, q, drafted, u, num=[3, 3, 2, 0])
            wanted = [[1, 2, 3, 4], [1, 5, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]
            assert verdict.tokens.tolist() == wanted
            assert verdict.num_accepted.tolist() == [3, 1, 1, 0]


def test_the_law_of_one_step_by_hand():
    """beta = sum min(p, q) = .85, and the residual is uniform on the last three."""
    p, q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.55, 0.25, 0.15, 0.05])
    ids = np.arange(4)[:, None]
    verdict = decide(np.tile(p, (4, 2, 1)), np.tile(q, (4, 1, 1)), ids, 0.99)
    accept = verdict.accept_prob[:, 0].astype(np.float64)
    np.testing.assert_allclose(accept, np.minimum(1, p / q), rtol=1e-5)
    assert verdict.num_accepted.tolist() == [0, 1, 1, 1]
    residual = verdict.residual[0, :4].astype(np.float64)
    residual /= residual.sum()
    np.testing.assert_allclose(residual, [0, 1 / 3, 1 / 3, 1 / 3], atol=1e-6)
    assert q @ accept == pytest.approx(0.85, rel=1e-5)
    np.testing.assert_allclose(q * accept + (1 - q @ accept) * residual, p, atol=1e-6)
    # After a full acceptance the extra token is a draw from p, not from a residual.
    np.testing.assert_allclose(verdict.residual[1:, :4], np.tile(p, (3, 1)), atol=1e-6)


def test_the_ratio_is_compared_strictly():
    """u q < p: accepted just below the ratio 1/2, rejected just above it."""
    p, q = [[[0.25, 0.75], [0.5, 0.5]]] * 2, [[[0.5, 0.5]]] * 2
    verdict = decide(p, q, [[0], [0]], [[0.4999], [0.5001]])
    assert verdict.num_accepted.tolist() == [1, 0]
    # At u = 0 a ratio of 0 would pass a test that is not strict.
    verdict = decide([[[0.0, 1.0], [0.5, 0.5]]], q[:1], [[0]], 0.0)
    assert verdict.num_accepted.tolist() == [0]
    assert verdict.tokens[0, 0] == 1


def oracle(p, q, drafted, num, u):
    """Algorithm 1 for one row, as the paper has it: n and the rest."""
    n = 0
    while n < num and u[n] * q[n, drafted[n]] < p[n, drafted[n]]:
        n += 1
    rest = np.maximum(p[n] - q[n], 0) if n < num else p[n]
    return n, (rest / rest.sum() if rest.sum() > 1e-6 else p[n])


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**31),
    zeros=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    certain=st.booleans(),
    same=st.booleans(),
    extreme=st.booleans(),
)
def test_properties(seed, zeros, certain, same, extreme):
    """Ragged drafts, zeros, one-hot rows and extreme uniforms, against the oracle."""
    rng = np.random.default_rng(seed)
    p = random_laws(seed, (B, G + 1, V), zeros)
    q = p[:, :G] if same else random_laws(seed + 1, (B, G, V), zeros)
    drafted = np.array([[rng.choice(V, p=row) for row in rows] for rows in q], np.int32)
    if certain:
        q = one_hot(drafted)
    num = rng.integers(0, G + 1, B)
    u = rng.choice([0.0, NEARLY_ONE], (B, G)) if extreme else rng.random((B, G))
    u = np.float32(u)
    sample = np.float32(rng.random((B, 2)) * NEARLY_ONE)
    verdict = decide(p, None if certain else q, drafted, u, num, sample)

    for row in range(B):
        n, tokens = verdict.num_accepted[row], verdict.tokens[row]
        assert 0 <= n <= num[row]
        np.testing.assert_array_equal(tokens[:n], drafted[row, :n])
        assert 0 <= tokens[n] < V and not tokens[n + 1 :].any()
        emitted = tokens[: n + 1]
        assert np.all(p[row, np.arange(n + 1), emitted] > 0)
        wanted, rest = oracle(p[row], q[row], drafted[row], num[row], u[row])
        at = np.arange(G)
        ratio = p[row, at, drafted[row]] / q[row, at, drafted[row]]
        if np.all(np.abs(u[row] - ratio) > 1e-5):  # else rounding decides
            assert n == wanted
            weights = verdict.residual[row]
            np.testing.assert_allclose(weights / weights.sum(), rest, atol=1e-4)
            assert weights[tokens[n]] > 0
        chance = np.where(at < num[row], np.minimum(ratio, 1), 0)
        np.testing.assert_allclose(verdict.accept_prob[row], chance, atol=1e-5)


def test_a_rejection_by_rounding_draws_from_p():
    """q a hair above p everywhere: nothing is left to draw from but p itself."""
    logits = jnp.log(jnp.array([[[0.5, 0.3, 0.2, 0.0]] * 2]))
    p = probs.standardize(logits, Sampling(jnp.ones(1)))
    q = probs.first(p, 1)
    q = q._replace(lse=q.lse - 1e-5)
    draft = Draft(jnp.array([[1]]), jnp.array([1]), q)
    noise = token.Noise(jnp.array([[1 - 2**-24]]), jnp.array([[0.0, 0.6]]))
    verdict = verify(p, draft, noise)
    np.testing.assert_array_equal(verdict.num_accepted, [0])
    np.testing.assert_allclose(verdict.residual, [[0.5, 0.3, 0.2, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(verdict.tokens, [[1, 0]])  # 0.6 is in [0.5, 0.8)
