"""`dot(x, w)`: a product of a few rows in one pass over the matrix, on a CPU.

A primitive of JAX's own kind, so that it batches and differentiates as products do; a
sharded matrix is gathered for it. Few are up to 32 rows with AVX-512, else up to eight.
Of more, where arithmetic is what takes time, and elsewhere than on a CPU, it is XLA's
product.
Axes: M rows, K features in, N features out.
"""

import functools
import logging
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from specjax.native.library import loaded

THIN, XLA = CHOICES = "thin", "xla"
# `with products(XLA):` traces every product as XLA's; part of what `jax.jit` goes by.
products = jax.make_user_context(THIN)

MOST_ROWS = 32  # of any processor
LEAST = 1 << 16  # numbers of a matrix that are worth a call
WEIGHTS = "float32", "bfloat16"


def dot(x: Array, w: Array, transposed: bool = False) -> Array:
    """x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    rows = math.prod(x.shape[:-1])
    few = 1 <= rows <= MOST_ROWS and serves(x, w) and rows <= most_rows()
    # Of a batch of matrices XLA's gradient on a CPU would take twice as long.
    flat = x.reshape(rows, x.shape[-1])
    if few:
        out = thin_p.bind(flat, w, transposed=transposed)
    else:
        out = _plain(flat, w, transposed)
    return out.reshape(*x.shape[:-1], out.shape[-1])


def most_rows() -> int:
    """How many rows a thin product has here at most; 0 where it is not asked for, the
    device is no CPU, or there is no library."""
    if products.value != THIN or jax.default_backend() != "cpu":
        return 0
    if why := loaded().problem:
        _warn(why)
    return loaded().most_rows


def in_use() -> str:
    """Which products decode here, as records say it: "thin" or "xla"."""
    return THIN if most_rows() else XLA


@functools.cache
def _warn(why: str) -> None:
    """Once in a process."""
    logging.getLogger("specjax").warning("specjax: XLA multiplies few rows: %s", why)


def serves(x: Array, w: Array) -> bool:
    """Whether there is code for these operands, and enough for it to do."""
    exact = x.dtype == jnp.float32 or x.dtype == w.dtype
    return exact and w.ndim == 2 and w.size >= LEAST and w.dtype.name in WEIGHTS


def plain(x: Array, w: Array) -> Array:
    """The product as XLA computes it, [..., N] float32."""
    return jnp.dot(x, w, preferred_element_type=jnp.float32)


def primitive(name: str, plain: Callable, matrix: int) -> Primitive:
    """x [M, K] times weights, of which operand `matrix` - 1 is [K, N] or, transposed,
    [N, K] -> [M, N] float32; compiled for another device than the CPU at hand, `plain`
    of the same operands. Outside of a program it is a program of its own."""
    made = Primitive(f"specjax_{name}_product")
    bound = jax.jit(made.bind, static_argnames="transposed")

    def alone(*operands: Array, transposed: bool) -> Array:
        with jax.disable_jit(False):  # as it would call itself
            return bound(*operands, transposed=transposed)

    def shape(*operands, transposed: bool) -> tuple[int, int]:
        return operands[0].shape[0], operands[matrix].shape[not transposed]

    def abstract(*operands, transposed: bool):
        sizes = shape(*operands, transposed=transposed)
        return jax.core.ShapedArray(sizes, jnp.float32)

    def thin(x, *weights, transposed: bool):
        kind = "" if weights[0].dtype == jnp.int8 else f"_{weights[0].dtype.name}"
        target = f"specjax_{name}{kind}" + ("_transposed" if transposed else "")
        sizes = shape(x, *weights, transposed=transposed)
        out = jax.ShapeDtypeStruct(sizes, jnp.float32)
        return jax.ffi.ffi_call(target, out)(x.astype(jnp.float32), *weights)

    made.def_impl(alone)
    made.def_abstract_eval(abstract)
    for on, rule in (None, plain), ("cpu", thin):
        lowering = mlir.lower_fun(rule, multiple_results=False)
        mlir.register_lowering(made, lowering, platform=on)
    return made


def _plain(x, w, transposed):
    return plain(x, w.T if transposed else w)


thin_p = primitive("thin", _plain, 1)

# Linear in each operand; gradients have many rows, or are no product with w's columns.


def _by_x(cotangent, x, w, transposed):
    return plain(cotangent, w if transposed else w.T).astype(x.aval.dtype)


def _by_w(cotangent, x, w, transposed):
    left, right = (cotangent, x) if transposed else (x, cotangent)
    return plain(left.T, right).astype(w.aval.dtype)


ad.defbilinear(thin_p, _by_x, _by_w)


def batched(primitive: Primitive, many: Callable, plain: Callable) -> None:
    """Lets a product of (x, *weights, transposed) batch: by `many`, as more rows, if
    the weights are one for all; else by `plain`, a product for each."""

    def batch(operands, axes, transposed):
        (x, *weights), (at_x, *at) = operands, axes
        if any(axis is not None for axis in at):
            each = functools.partial(plain, transposed=transposed)
            return jax.vmap(each, axes)(*operands), 0
        x = jnp.moveaxis(x, at_x, 0)
        y = many(x.reshape(-1, x.shape[-1]), *weights, transposed)
        return y.reshape(*x.shape[:-1], -1), 0

    batching.primitive_batchers[primitive] = batch


batched(thin_p, dot, _plain)
