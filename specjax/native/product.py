"""`dot(x, w)`: a product of a few rows in one pass over the matrix, on a CPU.

It is a JAX primitive, so it batches and differentiates as products do; a sharded matrix
is gathered for it. It serves up to 32 rows with AVX-512, else up to 16. For more
rows, where arithmetic takes most of the time, and on other devices, it is XLA's
product. Axes: M rows, K features in, N features out.
"""

import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from specjax.native.library import compiled_library
from specjax.runtime import mesh

THIN, XLA = CHOICES = "thin", "xla"
# `with products(XLA):` traces every product as XLA's; `jax.jit` compiles again for it.
products = jax.make_user_context(THIN)

MOST_ROWS = 32  # on any processor
LEAST = 1 << 16  # the smallest matrix that is worth a call, in numbers
WEIGHTS = "float32", "bfloat16"


def dot(x: Array, w: Array, transposed: bool = False) -> Array:
    """Returns x [..., K] times w [K, N], summed in float32: [..., N] float32.

    transposed: w is [N, K].
    """
    rows = math.prod(x.shape[:-1])
    few = 1 <= rows <= MOST_ROWS and serves(x, w) and rows <= max_rows()
    # Flat, because XLA's gradient of a batch of matrices takes twice as long on a CPU.
    flat = x.reshape(rows, x.shape[-1])
    if few:
        out = thin_p.bind(flat, w, transposed=transposed)
    else:
        out = _xla_product(flat, w, transposed)
    return out.reshape(*x.shape[:-1], out.shape[-1])


def max_rows() -> int:
    """Returns the most rows that a thin product may have here.

    It is 0 if thin products are switched off, the device is not a CPU, a mesh is in
    use, or there is no library.
    """
    if mesh.layout.value is not None:  # a thin product would gather its matrix
        return 0
    if products.value != THIN or jax.default_backend() != "cpu":
        return 0
    if why := compiled_library().problem:
        warn_once(why)
    return compiled_library().most_rows


def in_use() -> str:
    """Returns the kind of products that decode here, as records name it: "thin" or
    "xla"."""
    return THIN if max_rows() else XLA


@functools.cache
def warn_once(why: str) -> None:
    """Logs once per process why XLA multiplies few rows."""
    logging.getLogger("specjax").warning("specjax: XLA multiplies few rows: %s", why)


def serves(x: Array, w: Array) -> bool:
    """Returns whether there is compiled code for these operands, and the matrix is
    large enough."""
    exact = x.dtype == jnp.float32 or x.dtype == w.dtype
    return exact and w.ndim == 2 and w.size >= LEAST and w.dtype.name in WEIGHTS


def xla_product(x: Array, w: Array) -> Array:
    """Returns the product as XLA computes it, [..., N] float32."""
    return jnp.dot(x, w, preferred_element_type=jnp.float32)


def primitive(name: str, plain: Callable, matrix: int) -> Primitive:
    """Returns a primitive that multiplies x [M, K] by weights, giving [M, N] float32.

    On another device than a CPU it is `plain` of the same operands. Outside of a
    program it is a program by itself.

    Args:
      name: the name of the compiled function.
      plain: the product by XLA, with the same arguments.
      matrix: the position of the operand with the shape of the weights, [K, N] or,
        transposed, [N, K].
    """
    product = Primitive(f"specjax_{name}_product")
    compiled = jax.jit(product.bind, static_argnames="transposed")

    def run_eagerly(*operands: Array, transposed: bool) -> Array:
        with jax.disable_jit(False):  # else it would call itself for ever
            return compiled(*operands, transposed=transposed)

    def shape(*operands: Any, transposed: bool) -> tuple[int, int]:
        return operands[0].shape[0], operands[matrix].shape[not transposed]

    def abstract(*operands: Any, transposed: bool) -> jax.core.ShapedArray:
        sizes = shape(*operands, transposed=transposed)
        return jax.core.ShapedArray(sizes, jnp.float32)

    def call_thin(x: Array, *weights: Any, transposed: bool) -> Any:
        kind = "" if weights[0].dtype == jnp.int8 else f"_{weights[0].dtype.name}"
        target = f"specjax_{name}{kind}" + ("_transposed" if transposed else "")
        sizes = shape(x, *weights, transposed=transposed)
        out = jax.ShapeDtypeStruct(sizes, jnp.float32)
        return jax.ffi.ffi_call(target, out)(x.astype(jnp.float32), *weights)

    product.def_impl(run_eagerly)
    product.def_abstract_eval(abstract)
    for on, rule in (None, plain), ("cpu", call_thin):
        lowering = mlir.lower_fun(rule, multiple_results=False)
        mlir.register_lowering(product, lowering, platform=on)
    return product


def _xla_product(x: Array, w: Any, transposed: bool) -> Array:
    return xla_product(x, w.T if transposed else w)


thin_p = primitive("thin", _xla_product, 1)

# The product is linear in each operand. Gradients have many rows, or are not products
# with the columns of w, so XLA computes them.


def _transpose_x(cotangent: Any, x: Any, w: Any, transposed: bool) -> Array:
    return xla_product(cotangent, w if transposed else w.T).astype(x.aval.dtype)


def _transpose_w(cotangent: Any, x: Any, w: Any, transposed: bool) -> Array:
    left, right = (cotangent, x) if transposed else (x, cotangent)
    return xla_product(left.T, right).astype(w.aval.dtype)


ad.defbilinear(thin_p, _transpose_x, _transpose_w)


def register_batching(primitive: Primitive, many: Callable, plain: Callable) -> None:
    """Defines how a product of (x, *weights, transposed) batches.

    If the weights are the same for the whole batch, the batch becomes more rows of
    `many`; otherwise each entry is a product by `plain`.
    """

    def batch(operands: Any, axes: Any, transposed: bool) -> tuple[Array, int]:
        (x, *weights), (at_x, *at) = operands, axes
        if any(axis is not None for axis in at):
            each = functools.partial(plain, transposed=transposed)
            return jax.vmap(each, axes)(*operands), 0
        x = jnp.moveaxis(x, at_x, 0)
        y = many(x.reshape(-1, x.shape[-1]), *weights, transposed)
        return y.reshape(*x.shape[:-1], -1), 0

    batching.primitive_batchers[primitive] = batch


register_batching(thin_p, dot, _xla_product)
