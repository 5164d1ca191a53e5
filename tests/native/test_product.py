"""Thin products: the same numbers of a row, however many rows there are."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import native, quantized
from specjax.models.dense import Dense
from specjax.native import library, product

SHAPES = (256, 1024), (1000, 67), (129, 513)  # K, N: whole vectors, and not


@pytest.fixture(autouse=True)
def compiled():
    if problem := native.problem():
        pytest.skip(problem)


DOTS = {
    "as it is": (product.dot, lambda w: w),
    "transposed": (functools.partial(product.dot, transposed=True), lambda w: w.T),
}


def operands(rows, K, N, dtype="float32"):
    random = np.random.default_rng(K + N)
    x, w = random.standard_normal((rows, K)), random.standard_normal((K, N))
    return jnp.asarray(x, jnp.float32), jnp.asarray(w, dtype)


def is_thin(function, *arguments) -> bool:
    return "specjax_thin" in jax.jit(function).lower(*arguments).as_text()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("K", "N"), SHAPES)
@pytest.mark.parametrize("stored", DOTS)
def test_a_row_does_not_depend_on_how_many_there_are(K, N, dtype, stored):
    most = library.loaded().most_rows
    (function, as_stored), (x, w) = DOTS[stored], operands(most, K, N, dtype)
    exact = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
    w, dot = as_stored(w), jax.jit(function)
    rows, x = np.asarray(dot(x, w)), np.asarray(x)
    np.testing.assert_allclose(rows, exact, rtol=1e-5, atol=1e-4)
    assert is_thin(function, x[:1], w) and is_thin(function, x, w)
    for count in {*range(1, 8), most - 7, most - 1}:
        np.testing.assert_array_equal(dot(x[:count], w), rows[:count])
        np.testing.assert_array_equal(dot(x[-count:], w), rows[-count:])


def test_numbers_that_are_none_stay_none():
    x, w = operands(3, 256, 300)
    y = product.dot(x.at[1, 5].set(jnp.nan).at[2, 7].set(jnp.inf), w)
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()
    assert not np.isfinite(y[2]).any()


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((33, 256), (256, 1024)),
        ((2, 256), (256, 128)),  # too small to matter
    ],
)
def test_other_products_are_xlas(x, w):
    x, w = jnp.ones(x), jnp.ones(w)
    assert not is_thin(product.dot, x, w)
    np.testing.assert_array_equal(product.dot(x, w), x @ w)


def test_it_can_be_declined():
    x, w = operands(4, 256, 1024)
    dot = jax.jit(product.dot)
    thin = dot(x, w)
    with product.products(product.XLA):
        assert product.in_use() == "xla"
        np.testing.assert_array_equal(dot(x, w), jax.jit(product.plain)(x, w))
    np.testing.assert_array_equal(dot(x, w), thin)


def test_outside_of_programs_it_is_one_of_its_own():
    """`jax_disable_jit` would have it call itself for ever."""
    x, w = operands(2, 256, 1024)
    eighth = quantized.Int8(jnp.ones(w.shape, jnp.int8), jnp.ones((1, w.shape[1])))
    for weights in (w, eighth):
        with jax.disable_jit():
            alone = quantized.dot(x, weights)
        np.testing.assert_array_equal(alone, jax.jit(quantized.dot)(x, weights))


def test_other_dtypes_are_xlas():
    x, w = operands(2, 256, 1024)
    assert not is_thin(product.dot, x.astype(jnp.float16), w.astype(jnp.float16))
    halves = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    assert is_thin(product.dot, *halves)
    assert product.dot(*halves).dtype == jnp.float32


def test_compiled_for_another_device_it_is_the_plain_product():
    """Of the same operands: none of bfloat16 becomes one of float32."""
    x, w = (leaf.astype(jnp.bfloat16) for leaf in operands(2, 256, 1024))
    thin, plain = (
        jax.jit(dot).trace(x, w).lower(lowering_platforms=("cuda",)).as_text()
        for dot in (product.dot, product.plain)
    )
    assert is_thin(product.dot, x, w)
    operand = "(tensor<2x256xbf16>, tensor<256x1024xbf16>) -> tensor<2x1024xf32>"
    assert operand in plain and operand in thin


def test_a_dense_layer_takes_it():
    x, w = operands(4, 256, 1024, "bfloat16")
    dense = Dense(w.shape, jnp.bfloat16)
    variables = {"params": {"kernel": w}}
    x = x.astype(jnp.bfloat16)[None]
    assert is_thin(dense.apply, variables, x)
    y = dense.apply(variables, x)
    assert (y.dtype, y.shape) == (jnp.bfloat16, (1, 4, 1024))
    wanted = product.plain(x[0].astype(jnp.float32), w.astype(jnp.float32))
    np.testing.assert_allclose(y[0].astype(jnp.float32), wanted, rtol=1e-2, atol=0.1)


@pytest.mark.parametrize("argument", [0, 1])
@pytest.mark.parametrize("stored", DOTS)
def test_gradients_are_those_of_the_product(argument, stored):
    (dot, as_stored), (x, w) = DOTS[stored], operands(3, 256, 300)

    def thin(x, w):
        return (dot(x, as_stored(w)) ** 2).sum()

    def plain(x, w):
        return (product.plain(x, w) ** 2).sum()

    value, wanted = (jax.grad(loss, argument)(x, w) for loss in (thin, plain))
    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("stored", DOTS)
def test_it_maps_over_rows_and_over_matrices(stored):
    (dot, as_stored), (x, w) = DOTS[stored], operands(4, 256, 300)
    few, many = x.reshape(2, 2, 256), jnp.broadcast_to(x, (9, 4, 256))
    matrix, one_matrix = as_stored(w), jax.vmap(dot, (0, None))
    rows = one_matrix(few, matrix).reshape(4, -1)
    np.testing.assert_array_equal(rows, dot(x, matrix))
    assert is_thin(one_matrix, few, matrix)  # 4 rows; and here 36, too many
    assert not is_thin(one_matrix, many, matrix)
    np.testing.assert_allclose(one_matrix(many, matrix)[3], x @ w, rtol=1e-4, atol=1e-3)
    each = jax.vmap(dot)(few, jnp.stack([matrix, 2 * matrix]))
    np.testing.assert_allclose(each[1], 2 * few[1] @ w, rtol=1e-4, atol=1e-3)


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
    flags = "--xla_force_host_platform_device_count=2"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", SHARDED]
    run = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
