"""Products of whole numbers: the same to the last bit in any order, by any code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, native, quantized, zoo
from specjax.models import gpt
from specjax.quantized import Dynamic, Int8, dynamic_product
from tests.support import tiny

SHAPES = (256, 1024), (129, 513), (1536, 40)  # K, N: whole vectors, and not
ROWS = 40  # more than any thin product of floats has


def operands(K, N, turned=False):
    """x of rows of all sizes, and weights [K, N] or, turned, a table [N, K]."""
    random = np.random.default_rng(K + N)
    sizes = np.exp2(random.integers(-30, 30, (ROWS, 1)))
    x = jnp.asarray(random.standard_normal((ROWS, K)) * sizes, jnp.float32)
    values = jnp.asarray(random.integers(-128, 128, (K, N)), jnp.int8)
    scale = jnp.asarray(random.uniform(0.001, 0.01, (1, N)), jnp.float32)
    w = Int8(values.T, scale.T) if turned else Int8(values, scale)
    return x, w, Dynamic.of(w)


def counted(x, w: Int8, turned):
    """What the words say, in numbers that hold every sum."""
    x, values, scale = np.asarray(x), np.int64(w.values), np.float32(w.scale)
    if turned:
        values, scale = values.T, scale.T
    levels = min(2**15 - 1, (2**31 - 1) // (128 * len(values)))
    above = np.frexp(np.abs(x).max(1, keepdims=True))[1]  # 2 ** above > |x|
    of_row = np.exp2(above - np.floor(np.log2(levels))).astype(np.float32)
    sums = np.rint(x / of_row).astype(np.int64) @ values
    assert np.abs(sums).max() < 2**31
    return sums.astype(np.float32) * of_row * scale


def times(turned):
    return lambda x, w: quantized.dot(x, w, transposed=turned)


@pytest.fixture(params=native.CHOICES)
def products(request):
    if request.param == native.THIN and native.problem():
        pytest.skip(native.problem())
    with native.products(request.param):
        yield request.param


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("K", "N"), SHAPES)
def test_every_sum_is_exact_however_many_rows_there_are(K, N, turned, products):
    x, w, dynamic = operands(K, N, turned)
    wanted = counted(x, w, turned)
    run = jax.jit(times(turned))
    thin = "specjax_thin_int8_dynamic" in run.lower(x, dynamic).as_text()
    assert thin == (products == native.THIN)
    np.testing.assert_array_equal(run(x, dynamic), wanted)
    for count in 1, 5, 8, 33:
        np.testing.assert_array_equal(run(x[:count], dynamic), wanted[:count])
        np.testing.assert_array_equal(run(x[-count:], dynamic), wanted[-count:])
    mapped = jax.vmap(times(turned), (0, None))(x.reshape(4, -1, K), dynamic)
    np.testing.assert_array_equal(mapped.reshape(wanted.shape), wanted)


def test_the_largest_sum_is_held(products):
    for K in 500, 1536, 60_000:
        w = Int8(jnp.full((K, 4), -128, jnp.int8), jnp.ones((1, 4)))
        y = quantized.dot(jnp.full((1, K), -1.0), Dynamic.of(w))
        np.testing.assert_array_equal(y, np.full((1, 4), 128.0 * K))


def test_numbers_that_are_none_stay_none_and_small_ones_are_nothing(products):
    x, _, w = operands(256, 300)
    odd = x.at[1, 5].set(jnp.nan).at[2, 7].set(jnp.inf).at[3].set(0).at[4].set(1e-42)
    y = np.asarray(quantized.dot(odd, w))
    assert np.isnan(y[1:3]).all() and not y[3:5].any()
    np.testing.assert_array_equal(y[5:], quantized.dot(x, w)[5:])


def test_it_is_nearly_the_product_that_rounds_weights_alone():
    x, w, dynamic = operands(1536, 40)
    x = x / jnp.abs(x).max(1, keepdims=True)
    y, near = quantized.dot(x, dynamic), quantized.dot(x, w)
    error = np.abs(y - near).max() / np.abs(near).max()
    assert 0 < error < 1e-3


@pytest.mark.parametrize("turned", [False, True])
def test_it_reads_as_the_array_that_it_is(turned):
    _, w, dynamic = operands(60, 70, turned)
    assert (dynamic.shape, dynamic.values.nbytes) == (w.shape, w.values.nbytes)
    np.testing.assert_array_equal(dynamic, w)
    tokens = jnp.array([[3, 1], [59, 3]])
    for index in tokens, 5, slice(2, 9), (4, 5):
        np.testing.assert_array_equal(dynamic[index], w[index])
    half = dynamic.astype("bfloat16")
    assert type(half) is Dynamic and half[tokens].dtype == jnp.bfloat16
    if not turned:
        joined = quantized.beside([dynamic, dynamic])
        np.testing.assert_array_equal(joined, quantized.beside([w, w]))
    assert not quantized.alike([w, dynamic])


def test_a_scale_of_inputs_is_refused():
    x, _, w = operands(64, 64)
    with pytest.raises(ValueError, match="outputs of a table are its rows"):
        quantized.dot(x, w, transposed=True)


def test_it_is_loaded_by_its_name_with_the_weights_of_int8(tmp_path):
    config = gpt.Config(128, 32, 128, 1, 2)
    zoo.save(tmp_path / "mine.safetensors", config, tiny.weights(config, 0), bits=8)
    kinds = {Int8: "int8", Dynamic: "int8_dynamic"}
    plain, dynamic = (
        checkpoints.load(tmp_path / "mine.safetensors", kind) for kind in kinds.values()
    )
    leaf = dynamic.params["embedding"]
    assert (type(leaf), dynamic.dtype) == (Dynamic, "int8_dynamic")
    assert dynamic_product.bits(32) == 14

    def held(model, name):
        return np.asarray(model.params["layers_0"]["mlp"][name]["kernel"])

    for name in plain.params["layers_0"]["mlp"]:
        np.testing.assert_array_equal(held(dynamic, name), held(plain, name))
