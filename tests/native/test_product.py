"""Thin products give the same numbers for a row, with any number of rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import native, quantized
from specjax.models.dense import Dense, multiply
from specjax.native import library, product
from specjax.quantized import Int8
from tests.support import devices

SHAPES = (256, 1024), (1000, 67), (129, 513)  # K, N: whole vectors, and not
WEIGHTS = "float32", "bfloat16", "int8"
NEAR = dict(rtol=1e-5, atol=1e-4)
of_weights = pytest.mark.parametrize("dtype", WEIGHTS)
as_stored = pytest.mark.parametrize("turned", [False, True])


@pytest.fixture(autouse=True)
def compiled():
    if problem := native.problem():
        pytest.skip(problem)


def operands(rows, K, N, dtype="float32", turned=False):
    """Returns x [rows, K], the weights [K, N], or turned, and their product."""
    random = np.random.default_rng(K + N)
    x = jnp.asarray(random.standard_normal((rows, K)), jnp.float32)
    if dtype == "int8":
        values = jnp.asarray(random.integers(-127, 128, (K, N)), jnp.int8)
        scale = jnp.asarray(random.uniform(0.001, 0.01, (1, N)), jnp.float32)
        exact = np.float64(values) * np.float64(scale)
        w = Int8(values.T, scale.T) if turned else Int8(values, scale)
    else:
        w = jnp.asarray(random.standard_normal((K, N)), dtype)
        exact, w = np.asarray(w, np.float64), w.T if turned else w
    return x, w, np.asarray(x, np.float64) @ exact


def dot(turned: bool):
    return functools.partial(quantized.dot, transposed=turned)


def is_thin(function, *arguments) -> bool:
    return "specjax_thin" in jax.jit(function).lower(*arguments).as_text()


@of_weights
@as_stored
@pytest.mark.parametrize(("K", "N"), SHAPES)
def test_a_row_does_not_depend_on_how_many_there_are(K, N, turned, dtype):
    most = library.compiled_library().most_rows
    x, w, wanted = operands(most, K, N, dtype, turned)
    times = jax.jit(dot(turned))
    rows, x = np.asarray(times(x, w)), np.asarray(x)
    np.testing.assert_allclose(rows, wanted, **NEAR)
    name = f"specjax_thin_{dtype}" + "_transposed" * turned
    assert f"{name}(" in jax.jit(dot(turned)).lower(x[:1], w).as_text()
    for count in {*range(1, 8), most - 7, most - 1}:
        np.testing.assert_array_equal(times(x[:count], w), rows[:count])
        np.testing.assert_array_equal(times(x[-count:], w), rows[-count:])


def test_numbers_that_are_none_stay_none():
    x, w, _ = operands(3, 256, 300)
    y = product.dot(x.at[1, 5].set(jnp.nan).at[2, 7].set(jnp.inf), w)
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()
    assert not np.isfinite(y[2]).any()


@of_weights
@as_stored
@pytest.mark.parametrize(("rows", "K", "N"), [(33, 256, 1024), (2, 256, 128)])
def test_of_many_rows_or_a_small_matrix_it_is_xlas(turned, rows, K, N, dtype):
    x, w, wanted = operands(rows, K, N, dtype, turned)
    assert not is_thin(dot(turned), x, w)
    y = dot(turned)(x[None], w)
    assert (y.dtype, y.shape) == (jnp.float32, (1, rows, N))
    np.testing.assert_allclose(y[0], wanted, **NEAR)


@of_weights
def test_outside_of_programs_it_is_one_of_its_own(dtype):
    """With `jax_disable_jit` it would otherwise call itself without end."""
    x, w, _ = operands(2, 256, 1024, dtype)
    with jax.disable_jit():
        alone = quantized.dot(x, w)
    np.testing.assert_array_equal(alone, jax.jit(quantized.dot)(x, w))


@of_weights
def test_other_dtypes_are_xlas(dtype):
    x, w, wanted = operands(2, 256, 1024, dtype)
    other = w if dtype == "int8" else w.astype(jnp.float16)
    assert not is_thin(quantized.dot, x.astype(jnp.float16), other)
    x = x.astype(jnp.bfloat16)
    assert is_thin(quantized.dot, x, w) == (dtype != "float32")
    y = quantized.dot(x, w)
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, wanted, rtol=0.02, atol=0.4)


def test_compiled_for_another_device_it_is_the_plain_product():
    """The operands are the same: no bfloat16 operand becomes float32."""
    x, w, _ = operands(2, 256, 1024, "bfloat16")
    x, bytes_ = x.astype(jnp.bfloat16), operands(2, 256, 1024, "int8")[1]
    thin, plain, int8 = (
        jax.jit(times).trace(x, of).lower(lowering_platforms=("cuda",)).as_text()
        for times, of in (
            (product.dot, w),
            (product.xla_product, w),
            (quantized.dot, bytes_),
        )
    )
    assert is_thin(product.dot, x, w)
    operand = "(tensor<2x256xbf16>, tensor<256x1024xbf16>) -> tensor<2x1024xf32>"
    assert operand in plain and operand in thin
    assert "specjax_thin" not in int8
    assert "(tensor<256x1024xi8>) -> tensor<256x1024xbf16>" in int8


def test_a_factor_of_a_layers_product_comes_before_its_rounding():
    """In float16 the product without the factor would be infinite."""
    by = Dense((64, 8), jnp.float16)
    weights = {"params": {"kernel": jnp.ones((64, 8))}}

    def multiply_scaled(module, x):
        return multiply(x, module, factor=jnp.full((1, 1), 1e-3))[0]

    y = by.apply(weights, jnp.full((1, 64), 2000, jnp.float16), method=multiply_scaled)
    np.testing.assert_array_equal(y, np.full((1, 8), 128, np.float16))


@as_stored
@pytest.mark.parametrize("argument", [0, 1])
def test_gradients_are_those_of_the_product(argument, turned):
    x, w, _ = operands(3, 256, 300)

    def loss(times, x, w):
        return (times(x, w) ** 2).sum()

    def thin(x, w):
        return dot(turned)(x, w.T if turned else w)

    value, wanted = (
        jax.grad(functools.partial(loss, times), argument)(x, w)
        for times in (thin, product.xla_product)
    )
    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@as_stored
def test_it_maps_over_rows_and_over_matrices(turned, dtype):
    x, w, wanted = operands(4, 256, 300, dtype, turned)
    few, many = x.reshape(2, 2, 256), jnp.broadcast_to(x, (9, 4, 256))
    one_matrix = jax.vmap(dot(turned), (0, None))
    rows = one_matrix(few, w).reshape(4, -1)
    np.testing.assert_array_equal(rows, dot(turned)(x, w))
    assert is_thin(one_matrix, few, w)  # 4 rows; and here 36, too many
    assert not is_thin(one_matrix, many, w)
    np.testing.assert_allclose(one_matrix(many, w)[3], wanted, rtol=1e-4, atol=1e-3)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), w)
    each = jax.vmap(dot(turned))(few, both).reshape(4, -1)
    np.testing.assert_allclose(each, wanted, rtol=1e-4, atol=1e-3)


SHARDED = """
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from specjax.native import product

random = np.random.default_rng(0)
x, w = (random.standard_normal(s, np.float32) for s in ((2, 256), (256, 1024)))
mesh = jax.make_mesh((2,), ("model",))
for spec in ((None, "model"), ("model", None), ()):
    placed = jax.device_put(w, NamedSharding(mesh, PartitionSpec(*spec)))
    assert len(placed.sharding.device_set) == 2
    np.testing.assert_array_equal(jax.jit(product.dot)(x, placed), product.dot(x, w))
"""


@pytest.mark.slow
def test_a_matrix_over_two_devices_gives_the_same():
    devices.run_python("-c", SHARDED, devices=2)
