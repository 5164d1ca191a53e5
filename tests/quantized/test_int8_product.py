"""Weights in eight bits stand for the array that they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import quantized
from specjax.models import branching, lowering
from specjax.native import library, product
from specjax.quantized import Int8, int8_product


def operands(K, N):
    """x [3, K], and weights [K, N] with a scale for each of N outputs."""
    random = np.random.default_rng(K + N)
    x = jnp.asarray(random.standard_normal((3, K)), jnp.float32)
    values = jnp.asarray(random.integers(-127, 128, (K, N)), jnp.int8)
    scale = jnp.asarray(random.uniform(0.001, 0.01, (1, N)), jnp.float32)
    return x, Int8(values, scale)


def turned(w: Int8) -> Int8:
    return Int8(w.values.T, w.scale.T, w.dtype)


def close(y, x, w):
    exact = np.asarray(x, np.float64) @ (np.float64(w.values) * np.float64(w.scale))
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [3, 40])
def test_a_scale_of_inputs_serves_too(rows):
    x, w = operands(256, 300)
    x, w = jnp.resize(x, (rows, 256)), Int8(w.values, x[0, :, None] / 100)
    close(quantized.dot(x, w), x, w)
    close(quantized.dot(x, turned(w), transposed=True), x, w)


def test_without_a_library_it_is_xlas_and_that_is_told(monkeypatch, caplog):
    x, w = operands(256, 1000)
    nothing = library.Library("no such compiler")
    monkeypatch.setattr(int8_product, "loaded_int8", lambda: nothing)
    monkeypatch.setattr(product, "most_rows", lambda: 8)  # the other one is there
    product._warn.cache_clear()
    assert "specjax_thin" not in jax.jit(quantized.dot).lower(x, w).as_text()
    close(quantized.dot(x, w), x, w)
    [record] = caplog.records
    assert "no such compiler" in record.getMessage()
    product._warn.cache_clear()


def test_it_reads_as_the_array_that_it_is():
    w = operands(60, 70)[1]
    whole = np.float32(w.values) * np.asarray(w.scale)
    assert (w.shape, w.ndim, w.size, w.dtype) == ((60, 70), 2, 4200, jnp.float32)
    np.testing.assert_array_equal(np.asarray(w), whole)
    np.testing.assert_array_equal(jnp.asarray(w), whole)
    tokens = jnp.array([[3, 1], [59, 3]])
    for index in tokens, 5, slice(2, 9), (slice(None), tokens), (4, 5):
        np.testing.assert_array_equal(w[index], whole[index])
        np.testing.assert_array_equal(turned(w)[index], whole.T[index])
    beyond = branching.known(w, jnp.array([3, 60, 99]))  # the last position it knows
    np.testing.assert_array_equal(beyond, whole[[3, 59, 59]])
    half = w.astype("bfloat16")
    assert half.dtype == half[tokens].dtype == jnp.asarray(half).dtype == jnp.bfloat16
    assert half.values is w.values


def test_products_of_a_text_are_joined_where_all_are_in_eight_bits():
    x, w = operands(64, 70)
    kernels = w, w.astype("float32"), Int8(w.values[:, :9], w.scale[:, :9])
    np.testing.assert_array_equal(quantized.beside(kernels), np.concatenate(kernels, 1))
    mixed = *kernels[:2], jnp.asarray(kernels[2])
    assert quantized.alike(kernels) and not quantized.alike(mixed)
    run = jax.jit(lambda x, *kernels: lowering.products(x, kernels))
    for case, launched in (kernels, 1), (mixed, 3):
        for y, kernel in zip(lowering.products(x, case), kernels, strict=True):
            close(y, x, kernel)
        text = run.trace(x, *case).lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("stablehlo.dot_general") == launched
