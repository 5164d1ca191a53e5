"""Weights in eight bits represent their array, in products and when read; products of
whole numbers have the same bits in any order and with any code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, native, quantized, zoo
from specjax.models import gpt, lowering, tree_mask
from specjax.native import library, product
from specjax.quantized import Dynamic, Int8, dynamic_product
from tests.support import slow, tiny

SHAPES = (256, 1024), (129, 513), (1536, 40)  # K, N: whole vectors, and not
ROWS = 40  # more than any thin product of floats has
as_stored = pytest.mark.parametrize("turned", [False, True])


def inputs(K, rows=ROWS, spread=30):
    """Returns rows of many magnitudes, 2 to the power of up to `spread`."""
    random = np.random.default_rng(K)
    sizes = np.exp2(random.integers(-spread, spread + 1, (rows, 1)))
    return jnp.asarray(random.standard_normal((rows, K)) * sizes, jnp.float32)


def weights(K, N, turned=False) -> Int8:
    """Returns weights [K, N] with a scale for each of N outputs, or turned, a table [N,
    K]."""
    random = np.random.default_rng(K + N)
    values = jnp.asarray(random.integers(-128, 128, (K, N)), jnp.int8)
    scale = jnp.asarray(random.uniform(0.001, 0.01, (1, N)), jnp.float32)
    return Int8(values.T, scale.T) if turned else Int8(values, scale)


def to_array(w: Int8) -> np.ndarray:
    return np.float32(w.values) * np.asarray(w.scale)


def assert_close(y, x, w):
    exact = np.asarray(x, np.float64) @ to_array(w).astype(np.float64)
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-4)


@as_stored
@pytest.mark.parametrize("kind", [Int8, Dynamic])
def test_it_reads_as_the_array_that_it_is(kind, turned):
    w = weights(60, 70, turned)
    whole, it = to_array(w), Dynamic.from_int8(w) if kind is Dynamic else w
    about = it.shape, it.ndim, it.size, it.dtype, it.values.nbytes
    assert about == (whole.shape, 2, 4200, jnp.float32, 4200)
    np.testing.assert_array_equal(np.asarray(it), whole)
    np.testing.assert_array_equal(jnp.asarray(it), whole)
    tokens = jnp.array([[3, 1], [59, 3]])
    for index in tokens, 5, slice(2, 9), (slice(None), tokens), (4, 5):
        np.testing.assert_array_equal(it[index], whole[index])
    last = len(whole) - 1  # the last position that it knows
    beyond = tree_mask.embed_positions(it, jnp.array([3, last + 1, 99]))
    np.testing.assert_array_equal(beyond, whole[[3, last, last]])
    half = it.astype("bfloat16")
    assert type(half) is kind and half.values is it.values
    assert half.dtype == half[tokens].dtype == jnp.asarray(half).dtype == jnp.bfloat16


def test_products_of_a_text_are_joined_where_all_are_in_eight_bits():
    x, w = inputs(64, 3, 0), weights(64, 70)
    kernels = w, w.astype("float32"), Int8(w.values[:, :9], w.scale[:, :9])
    joined = np.concatenate(kernels, 1)
    np.testing.assert_array_equal(quantized.concatenate(kernels), joined)
    dynamic = [*map(Dynamic.from_int8, kernels)]
    np.testing.assert_array_equal(quantized.concatenate(dynamic), joined)
    mixed = *kernels[:2], jnp.asarray(kernels[2])
    assert quantized.can_concatenate(kernels) and not quantized.can_concatenate(mixed)
    assert not quantized.can_concatenate([w, dynamic[0]])
    run = jax.jit(lambda x, *kernels: lowering.products(x, kernels))
    for case, launched in (kernels, 1), (mixed, 3):
        for y, kernel in zip(lowering.products(x, case), kernels, strict=True):
            assert_close(y, x, kernel)
        text = run.trace(x, *case).lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("stablehlo.dot_general") == launched


# Of floats.


@pytest.mark.parametrize("rows", [3, 40])
def test_a_scale_of_inputs_serves_floats_alone(rows):
    x = inputs(256, rows, 0)
    w = Int8(weights(256, 300).values, x[0, :, None] / 100)
    assert_close(quantized.dot(x, w), x, w)
    turned = Int8(w.values.T, w.scale.T)
    assert_close(quantized.dot(x, turned, transposed=True), x, w)
    with pytest.raises(ValueError, match="outputs of a table must be its rows"):
        quantized.dot(x, Dynamic.from_int8(turned), transposed=True)


def test_without_a_library_it_is_xlas_and_that_is_told(monkeypatch, caplog):
    x, w = inputs(256, 3, 0), weights(256, 1000)
    nothing = library.Library("no such compiler")
    monkeypatch.setattr(product, "compiled_library", lambda: nothing)
    product.warn_once.cache_clear()
    assert "specjax_thin" not in jax.jit(quantized.dot).lower(x, w).as_text()
    assert_close(quantized.dot(x, w), x, w)
    [record] = caplog.records
    assert "no such compiler" in record.getMessage()
    product.warn_once.cache_clear()


# Of whole numbers.


@pytest.fixture(params=native.CHOICES)
def products(request):
    if request.param == native.THIN and native.problem():
        pytest.skip(native.problem())
    with native.products(request.param):
        yield request.param


def count_operations(x, w: Int8, turned):
    """Computes each product in wide integers and floats, as the docstrings say."""
    x, values, scale = np.asarray(x), np.int64(w.values), np.float32(w.scale)
    if turned:
        values, scale = values.T, scale.T
    levels = min(2**15 - 1, (2**31 - 1) // (128 * len(values)))
    above = np.frexp(np.abs(x).max(1, keepdims=True))[1]  # 2 ** above > |x|
    of_row = np.exp2(above - np.floor(np.log2(levels))).astype(np.float32)
    sums = np.rint(x / of_row).astype(np.int64) @ values
    assert np.abs(sums).max() < 2**31
    return sums.astype(np.float32) * of_row * scale


@as_stored
@pytest.mark.parametrize(("K", "N"), slow.mark_slow_after(2, SHAPES))
def test_every_sum_is_exact_however_many_rows_there_are(K, N, turned, products):
    x, w = inputs(K), weights(K, N, turned)
    wanted, dynamic = count_operations(x, w, turned), Dynamic.from_int8(w)

    def times(x, w):
        return quantized.dot(x, w, transposed=turned)

    run = jax.jit(times)
    thin = "specjax_thin_int8_dynamic" in run.lower(x, dynamic).as_text()
    assert thin == (products == native.THIN)
    np.testing.assert_array_equal(run(x, dynamic), wanted)
    for count in 1, 5, 8, 33:
        np.testing.assert_array_equal(run(x[:count], dynamic), wanted[:count])
        np.testing.assert_array_equal(run(x[-count:], dynamic), wanted[-count:])
    mapped = jax.vmap(times, (0, None))(x.reshape(4, -1, K), dynamic)
    np.testing.assert_array_equal(mapped.reshape(wanted.shape), wanted)


def test_the_largest_sum_is_held(products):
    for K in 500, 1536, 60_000:
        w = Int8(jnp.full((K, 4), -128, jnp.int8), jnp.ones((1, 4)))
        y = quantized.dot(jnp.full((1, K), -1.0), Dynamic.from_int8(w))
        np.testing.assert_array_equal(y, np.full((1, 4), 128.0 * K))


def test_numbers_that_are_none_stay_none_and_small_ones_are_nothing(products):
    x, w = inputs(256), Dynamic.from_int8(weights(256, 300))
    odd = x.at[1, 5].set(jnp.nan).at[2, 7].set(jnp.inf).at[3].set(0).at[4].set(1e-42)
    y = np.asarray(quantized.dot(odd, w))
    assert np.isnan(y[1:3]).all() and not y[3:5].any()
    np.testing.assert_array_equal(y[5:], quantized.dot(x, w)[5:])


def test_it_is_nearly_the_product_that_rounds_weights_alone():
    x, w = inputs(1536), weights(1536, 40)
    x = x / jnp.abs(x).max(1, keepdims=True)
    y, near = quantized.dot(x, Dynamic.from_int8(w)), quantized.dot(x, w)
    error = np.abs(y - near).max() / np.abs(near).max()
    assert 0 < error < 1e-3


def test_it_is_loaded_by_its_name_with_the_weights_of_int8(tmp_path):
    config, file = gpt.Config(128, 32, 128, 1, 2), tmp_path / "mine.safetensors"
    zoo.save(file, config, tiny.weights(config, 0), bits=8)
    plain, dynamic = (checkpoints.load(file, x) for x in ("int8", "int8_dynamic"))
    assert type(dynamic.params["embedding"]) is Dynamic
    assert (dynamic.dtype, dynamic_product.row_bits(32)) == ("int8_dynamic", 14)
    for name, matrix in plain.params["layers_0"]["mlp"].items():
        there = dynamic.params["layers_0"]["mlp"][name]["kernel"]
        np.testing.assert_array_equal(there, matrix["kernel"])
