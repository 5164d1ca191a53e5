"""Laws, draws and keys by compiled code: near their definitions, keys to the bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import keys, native, probs
from specjax.models import lowering
from specjax.models.cache import KeyValues
from specjax.native import library
from specjax.native.embed import take_rows
from specjax.types import Draft, Reduced, Sampling
from specjax.verifiers import block, token, traversal

B, G = 3, 4
SIZES = 5, 523, 9001  # ids: less than a block, no multiple of a vector, several parts
HEATS = np.array([0.0, 1.0, 0.4], np.float32)
LENGTHS = np.array([5, 2, 9], np.int32)
KINDS = "dense", "reduced", "certain"
TRIES = 20


@pytest.fixture(autouse=True)
def compiled():
    if problem := library.compiled_library().problem:
        pytest.skip(problem)


def both(function, *arguments):
    """Returns the results of a function by compiled code, and by its definition."""
    run = jax.jit(lambda *given: function(*given))
    assert "specjax_rows" in str(jax.make_jaxpr(run)(*arguments))
    here = run(*arguments)
    with native.products(native.XLA):
        run = jax.jit(lambda *given: function(*given))
        assert "specjax_rows" not in str(jax.make_jaxpr(run)(*arguments))
        return jax.tree.map(np.asarray, (here, run(*arguments)))


def logits(seed, count, vocab):
    z = np.random.default_rng(seed).normal(0, 3, (B, count, vocab)).astype(np.float32)
    z[0, 0, 1], z[1, 0, 2] = -np.inf, np.nan
    return z


def law(z):
    return probs.standardize(z, Sampling(jnp.asarray(HEATS)))


def uniforms(seed, *shape):
    return np.random.default_rng(seed).random((TRIES, *shape)).astype(np.float32)


@pytest.mark.parametrize("rule", [block, traversal.build(False)])
def test_places_after_the_draft_are_not_read(rule):
    """There a drafter may leave any number."""
    target, draft = law(logits(0, G + 1, 523)), law(logits(1, G, 523))
    tokens, num = np.full((B, G), 7, np.int32), np.array([1, 0, 2], np.int32)
    for row, count in enumerate(num):
        tokens[row, count:] = (2**31 - 1, -(2**31), 10**9, -1)[count:]
    parent = np.tile(np.arange(-1, G - 1, dtype=np.int32), (B, 1))
    noise = token.Noise(jnp.full((B, G), 0.5), jnp.full((B, 2), 0.5))

    def verdict(tokens, parent):
        drafted = Draft(tokens, num, draft, None if rule is block else parent)
        return rule.verify(target, drafted, noise)

    far = np.where(np.arange(G) < num[:, None], parent, 10**6 + parent)
    clean = np.where(np.arange(G) < num[:, None], tokens, 0)
    got, wanted = verdict(tokens, far), verdict(clean, parent)
    for new, old in zip(got[:2], wanted[:2], strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("vocab", SIZES)
def test_scalars_of_laws_are_those_of_the_definition(vocab):
    here, wanted = both(lambda z: law(z)[1:6], logits(0, G, vocab))
    for new, old in zip(here, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=2e-6)


def test_a_row_without_a_finite_logit_is_seen():
    """`finite.guard` looks at the largest logit."""
    bad = np.full((B, 1, 300), -np.inf, np.float32)
    bad[1], bad[2, 0, 7] = np.nan, np.inf
    here, wanted = both(lambda z: law(z).top, bad)
    assert not np.isfinite(here).any()
    np.testing.assert_array_equal(here, wanted)


@pytest.mark.parametrize("vocab", SIZES)
def test_draws_are_those_of_the_definition(vocab):
    def draw(z, u):
        of = jax.tree.map(lambda x: x[:, 0], law(z))
        return jax.lax.map(lambda each: probs.sample(of, each), u)

    here, wanted = both(draw, logits(1, 1, vocab), uniforms(0, B, 2))
    np.testing.assert_array_equal(here, wanted)
    assert len(np.unique(here)) > B  # not the argmax alone


@pytest.mark.parametrize("vocab", SIZES)
def test_siblings_come_in_the_order_of_the_definition(vocab):
    def siblings(z, g):
        return jax.lax.map(lambda each: probs.sample_distinct(law(z), each, 7), g)

    g = np.random.default_rng(2).gumbel(size=(TRIES, B, 2, vocab)).astype(np.float32)
    here, wanted = both(siblings, logits(3, 2, vocab), g)
    np.testing.assert_array_equal(here, wanted)


def trial(kind, vocab):
    """A target's logits, and a draft with three, two and no real tokens."""
    random = np.random.default_rng(4)
    few = vocab // 3 if kind == "reduced" else vocab
    ids = np.sort(random.choice(vocab, few, replace=False)).astype(np.int32)
    tokens = random.choice(ids, (B, G)).astype(np.int32)
    z, zq = logits(5, G + 1, vocab), logits(6, G, few)

    def sides(z, zq):
        if kind == "certain":
            return law(z), Draft(tokens, jnp.asarray([3, 2, 0]), None)
        place = np.full(vocab, few, np.int32)
        place[ids] = np.arange(few)
        some = Reduced(zq, *map(jnp.asarray, (ids, place)))
        drawn = law(some if kind == "reduced" else zq)
        return law(z), Draft(tokens, jnp.asarray([3, 2, 0]), drawn)

    return sides, z, zq


@pytest.mark.parametrize("vocab", SIZES[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_are_those_of_the_definition(kind, vocab):
    sides, z, zq = trial(kind, vocab)

    def verdicts(z, zq, accept, u):
        def of(each):
            noise = token.Noise(*each)
            by_rule = [rule.verify(*sides(z, zq), noise) for rule in (token, block)]
            chances = [verdict.accept_prob for verdict in by_rule]
            return [(it.num_accepted, it.tokens) for it in by_rule], chances

        return jax.lax.map(of, (accept, u))

    accept, u = uniforms(7, B, G), uniforms(8, B, 2)
    (here, chances), (wanted, near) = both(verdicts, z, zq, accept, u)
    jax.tree.map(np.testing.assert_array_equal, here, wanted)
    for new, old in zip(chances, near, strict=True):
        np.testing.assert_allclose(new, old, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replaced", [False, True])
def test_verdicts_on_trees_are_those_of_the_definition(kind, replaced):
    sides, z, zq = trial(kind, SIZES[1])
    zq[:, 2] = zq[:, 0]  # of siblings, whose law is one
    parent = jnp.array([[-1, 0, -1, 1]] * B)
    rule = traversal.build(replaced)

    def verdicts(z, zq, accept, u):
        target, draft = sides(z, zq)
        draft = draft._replace(parent=parent)

        def of(each):
            it = rule.verify(target, draft, token.Noise(*each))
            return (it.num_accepted, it.path, it.tokens), it.accept_prob

        return jax.lax.map(of, (accept, u))

    accept, u = uniforms(12, B, G), uniforms(13, B, 2)
    (here, chances), (wanted, near) = both(verdicts, z, zq, accept, u)
    jax.tree.map(np.testing.assert_array_equal, here, wanted)
    np.testing.assert_allclose(chances, near, atol=1e-5)


def test_keys_and_uniforms_are_jaxs_to_the_bit():
    def draw(key, lengths):
        each = keys.iteration(key, lengths)
        names = [(keys.ACCEPT, 0), (keys.ACCEPT, 1), (keys.SAMPLE, 0)]
        of_draft = keys.purpose(each, keys.DRAFT)
        return (
            keys.uniforms_by_name(each, names),
            keys.uniforms(of_draft, jnp.arange(G), (2,)),
            keys.uniform(each, 2, (3,)),
            jax.random.key_data(of_draft),
        )

    given = keys.root_key(np.arange(B), np.array([0, 1, 2**32 - 1])), LENGTHS
    jax.tree.map(np.testing.assert_array_equal, *both(draw, *given))


def test_gumbel_variables_are_jaxs_up_to_rounding():
    draw = functools.partial(keys.draw_gumbel, vocab=SIZES[-1])
    here, wanted = both(draw, keys.root_key(np.arange(B)))
    np.testing.assert_allclose(here, wanted, rtol=5e-7, atol=5e-7)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_rows_of_a_table_and_slots_of_a_path_are_copied(dtype):
    random = np.random.default_rng(9)

    def numbers(*shape):
        return jnp.asarray(random.integers(-99, 99, shape), dtype)

    def move(table, tokens, cache, start, path):
        return take_rows(table, tokens), lowering.keep(cache, start, path)

    cache = [KeyValues(numbers(B, 2, 6, 40), numbers(B, 2, 40, 6))]
    path = np.array([[0, 1, 2, 3], [1, 4, 6, 7], [0, 2, 3, 9]], np.int32)
    tokens = np.array([[0, 16, 3], [-1, 2, 5]], np.int32)
    given = numbers(17, 9), tokens, cache, LENGTHS, path
    jax.tree.map(np.testing.assert_array_equal, *both(move, *given))


def test_a_laws_bits_do_not_depend_on_the_call():
    z = logits(10, G, SIZES[-1])
    whole = law(z)
    for b in range(B):
        heat = Sampling(jnp.asarray(HEATS[b : b + 1]))
        alone = probs.standardize(z[b : b + 1, 1:2], heat)
        for new, old in zip(alone[1:6], whole[1:6], strict=True):
            np.testing.assert_array_equal(new[0, 0], old[b, 1])


def test_in_batches_and_under_jaxs_check_of_keys_they_are_their_definitions():
    key = keys.root_key(np.arange(B))
    one_by_one = jax.vmap(lambda key: keys.uniform(key[None], 1)[0])(key)
    np.testing.assert_array_equal(one_by_one, keys.uniform(key, 1))
    with jax.debug_key_reuse(True):
        checked = jax.make_jaxpr(lambda key: keys.uniform(key, 1))(key)
    assert "specjax_rows" not in str(checked)


def test_gradients_pass_laws_as_they_pass_their_definition():
    z = logits(11, 1, 40)[2:]
    one = Sampling(jnp.ones(1))

    def normalizer(z):
        of = probs.standardize(z, one)
        return (of.lse + of.top).sum()

    gradient = jax.grad(normalizer)(z)
    np.testing.assert_allclose(gradient[0], jax.nn.softmax(z[0]), rtol=1e-4, atol=1e-6)
