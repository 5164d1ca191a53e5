"""Weights in eight bits stand for the array that they are, and products read them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import native, quantized
from specjax.models import lowering
from specjax.models.dense import Dense
from specjax.native import library, product
from specjax.quantized import Int8, int8_product

SHAPES = (256, 1024), (1000, 67), (129, 513)  # K, N: whole vectors, and not


@pytest.fixture
def compiled():
    if problem := native.problem():
        pytest.skip(problem)
    assert library.loaded_int8().problem is None


def operands(rows, K, N):
    """x [rows, K], and weights [K, N] with a scale for each of N outputs."""
    random = np.random.default_rng(K + N)
    x = jnp.asarray(random.standard_normal((rows, K)), jnp.float32)
    values = jnp.asarray(random.integers(-127, 128, (K, N)), jnp.int8)
    scale = jnp.asarray(random.uniform(0.001, 0.01, (1, N)), jnp.float32)
    return x, Int8(values, scale)


def turned(w: Int8) -> Int8:
    return Int8(w.values.T, w.scale.T, w.dtype)


DOTS = {
    "as it is": (quantized.dot, lambda w: w),
    "transposed": (functools.partial(quantized.dot, transposed=True), turned),
}


def exact(x, w) -> np.ndarray:
    return np.asarray(x, np.float64) @ (np.float64(w.values) * np.float64(w.scale))


def is_thin(function, *arguments) -> bool:
    return "specjax_thin_int8" in jax.jit(function).lower(*arguments).as_text()


@pytest.mark.parametrize(("K", "N"), SHAPES)
@pytest.mark.parametrize("stored", DOTS)
def test_a_row_does_not_depend_on_how_many_there_are(compiled, K, N, stored):
    most = library.loaded_int8().most_rows
    (function, as_stored), (x, w) = DOTS[stored], operands(most, K, N)
    wanted, w, dot = exact(x, w), as_stored(w), jax.jit(function)
    rows, x = np.asarray(dot(x, w)), np.asarray(x)
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-4)
    assert is_thin(function, x[:1], w) and is_thin(function, x, w)
    for count in {*range(1, 8), most - 7, most - 1}:
        np.testing.assert_array_equal(dot(x[:count], w), rows[:count])
        np.testing.assert_array_equal(dot(x[-count:], w), rows[-count:])


@pytest.mark.parametrize("stored", DOTS)
@pytest.mark.parametrize(("rows", "K", "N"), [(33, 256, 1024), (2, 256, 128)])
def test_of_many_rows_or_a_small_matrix_it_is_xlas(stored, rows, K, N):
    (function, as_stored), (x, w) = DOTS[stored], operands(rows, K, N)
    assert not is_thin(function, x, as_stored(w))
    y = function(x[None], as_stored(w))
    assert (y.dtype, y.shape) == (jnp.float32, (1, rows, N))
    np.testing.assert_allclose(y[0], exact(x, w), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("stored", DOTS)
def test_a_scale_of_inputs_serves_too(rows, stored):
    (function, as_stored), (x, w) = DOTS[stored], operands(rows, 256, 300)
    w = Int8(w.values, jnp.linspace(0.001, 0.01, 256)[:, None])
    y = function(x, as_stored(w))
    np.testing.assert_allclose(y, exact(x, w), rtol=1e-5, atol=1e-4)


def test_it_can_be_declined(compiled):
    x, w = operands(4, 256, 1024)
    with native.products(native.XLA):
        assert not is_thin(quantized.dot, x, w)
        plain = quantized.dot(x, w)
    np.testing.assert_allclose(quantized.dot(x, w), plain, rtol=1e-5, atol=1e-4)


def test_without_a_library_it_is_xlas_and_that_is_told(monkeypatch, caplog):
    x, w = operands(4, 256, 1000)
    nothing = library.Library("no such compiler")
    monkeypatch.setattr(int8_product, "loaded_int8", lambda: nothing)
    monkeypatch.setattr(product, "most_rows", lambda: 8)  # the other one is there
    product._warn.cache_clear()
    assert not is_thin(quantized.dot, x, w)
    np.testing.assert_allclose(quantized.dot(x, w), exact(x, w), rtol=1e-5, atol=1e-4)
    [record] = caplog.records
    assert "no such compiler" in record.getMessage()
    product._warn.cache_clear()


def test_compiled_for_another_device_it_reads_bytes(compiled):
    x, w = operands(2, 256, 1024)
    for dtype, kind in ("float32", "f32"), ("bfloat16", "bf16"):
        traced = jax.jit(quantized.dot).trace(x.astype(dtype), w)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        assert "specjax_thin" not in text
        assert f"(tensor<256x1024xi8>) -> tensor<256x1024x{kind}>" in text


def test_bfloat16_is_read_exactly(compiled):
    x, w = operands(5, 256, 1024)
    x = x.astype(jnp.bfloat16)
    assert is_thin(quantized.dot, x, w)
    assert not is_thin(quantized.dot, x.astype(jnp.float16), w)
    np.testing.assert_allclose(quantized.dot(x, w), exact(x, w), rtol=1e-5, atol=1e-4)


def test_it_maps_over_rows_and_over_matrices(compiled):
    x, w = operands(4, 256, 300)
    of_rows, many = jax.vmap(quantized.dot, (0, None)), jnp.stack([x] * 9)
    assert is_thin(of_rows, x.reshape(2, 2, -1), w)  # 4 rows; and here 36, too many
    assert not is_thin(of_rows, many, w)
    rows = of_rows(x.reshape(2, 2, -1), w).reshape(4, -1)
    np.testing.assert_array_equal(rows, quantized.dot(x, w))
    np.testing.assert_allclose(of_rows(many, w)[3], exact(x, w), rtol=1e-5, atol=1e-4)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), w)
    each = jax.vmap(quantized.dot)(x.reshape(2, 2, -1), both).reshape(4, -1)
    np.testing.assert_allclose(each, exact(x, w), rtol=1e-5, atol=1e-4)


def test_it_reads_as_the_array_that_it_is():
    w = operands(1, 60, 70)[1]
    whole = np.float32(w.values) * np.asarray(w.scale)
    assert (w.shape, w.ndim, w.size, w.dtype) == ((60, 70), 2, 4200, jnp.float32)
    np.testing.assert_array_equal(np.asarray(w), whole)
    np.testing.assert_array_equal(jnp.asarray(w), whole)
    tokens = jnp.array([[3, 1], [59, 3]])
    for index in tokens, 5, slice(2, 9), (slice(None), tokens), (4, 5):
        np.testing.assert_array_equal(w[index], whole[index])
        np.testing.assert_array_equal(turned(w)[index], whole.T[index])
    half = w.astype("bfloat16")
    assert half.dtype == half[tokens].dtype == jnp.asarray(half).dtype == jnp.bfloat16
    assert half.values is w.values


def test_a_dense_layer_takes_it():
    x, w = operands(4, 256, 1024)
    dense = Dense(w.shape, jnp.float32, use_bias=True)
    y = dense.apply({"params": {"kernel": w, "bias": jnp.ones(1024)}}, x[None])
    np.testing.assert_allclose(y[0], exact(x, w) + 1, rtol=1e-5, atol=1e-4)


def test_products_of_a_text_are_joined_where_all_are_in_eight_bits():
    x, w = operands(4, 64, 70)
    kernels = w, w.astype("float32"), Int8(w.values[:, :9], w.scale[:, :9])
    joined, wanted = quantized.beside(kernels), [exact(x, it) for it in kernels]
    assert joined.shape == (64, 149)
    np.testing.assert_array_equal(joined, np.concatenate(kernels, 1))
    mixed = *kernels[:2], jnp.asarray(kernels[2])
    for case in kernels, mixed:
        for y, expected in zip(lowering.products(x, case), wanted, strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    assert quantized.alike(kernels) and not quantized.alike(mixed)
    run = jax.jit(lambda x, *kernels: lowering.products(x, kernels))
    for case, launched in (kernels, 1), (mixed, 3):
        text = run.trace(x, *case).lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("stablehlo.dot_general") == launched
