"""`dot(x, w)`: a product of at most eight rows in one pass over the matrix, on a CPU.

A primitive of JAX's own kind, so that it batches, differentiates and shards as products
do. Elsewhere than on a CPU, and for one row or more than eight, it is XLA's product: of
one row that streams the weights too, and there is nothing to gain.
Axes: M rows, K features in, N features out.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from specjax.native.library import problem

THIN, XLA = "thin", "xla"
# `with products(XLA):` traces every product as XLA's; part of what `jax.jit` goes by.
products = jax.make_user_context(THIN)

MOST_ROWS = 8
LEAST = 1 << 16  # numbers of a matrix that are worth a call
WEIGHTS = "float32", "bfloat16"


def dot(x: Array, w: Array) -> Array:
    """x [..., K] times w [K, N], summed in float32: [..., N] float32."""
    rows = math.prod(x.shape[:-1])
    if not 2 <= rows <= MOST_ROWS or not serves(x, w) or not used():
        return plain(x, w)
    out = thin_p.bind(x.astype(jnp.float32).reshape(rows, -1), w)
    return out.reshape(*x.shape[:-1], -1)


def used() -> bool:
    """Whether products of few rows are thin here: asked for, on a CPU, and compiled."""
    wanted = products.value == THIN and jax.default_backend() == "cpu"
    return wanted and problem() is None


def serves(x: Array, w: Array) -> bool:
    """Whether there is code for these operands, and enough for it to do."""
    exact = x.dtype == jnp.float32 or x.dtype == w.dtype
    return exact and w.ndim == 2 and w.size >= LEAST and w.dtype.name in WEIGHTS


def dot_general(x, w, dimension_numbers, precision=None, preferred_element_type=None):
    """`dot` as `flax.linen.Dense` calls it; any other product is JAX's own."""
    if dimension_numbers != (((x.ndim - 1,), (0,)), ((), ())) or w.ndim != 2:
        return jax.lax.dot_general(
            x, w, dimension_numbers, precision, preferred_element_type
        )
    return dot(x, w).astype(preferred_element_type or x.dtype)


def plain(x: Array, w: Array) -> Array:
    """The product as XLA computes it, [..., N] float32."""
    return jnp.dot(x, w, preferred_element_type=jnp.float32)


# The primitive: x [M, K] float32, w [K, N] -> [M, N] float32.

thin_p = Primitive("specjax_thin_product")
thin_p.def_impl(jax.jit(thin_p.bind))


@thin_p.def_abstract_eval
def _shape(x, w):
    return jax.core.ShapedArray((x.shape[0], w.shape[1]), jnp.float32)


def _on_cpu(context, x, w):
    weights = context.avals_in[1].dtype.name
    return jax.ffi.ffi_lowering(f"specjax_thin_{weights}")(context, x, w)


mlir.register_lowering(thin_p, mlir.lower_fun(plain, multiple_results=False))
mlir.register_lowering(thin_p, _on_cpu, platform="cpu")

# Linear in each operand; gradients have many rows, or are no product with w's columns.
ad.defbilinear(
    thin_p,
    lambda cotangent, x, w: plain(cotangent, w.T),
    lambda cotangent, x, w: plain(x.T, cotangent).astype(w.aval.dtype),
)


def _batch(operands, axes):
    """More rows if w is one for all, else a product for each w."""
    (x, w), (at_x, at_w) = operands, axes
    if at_w is None:
        x = jnp.moveaxis(x, at_x, 0)
        return dot(x, w), 0
    return jax.vmap(plain, (at_x, at_w))(x, w), 0


batching.primitive_batchers[thin_p] = _batch
