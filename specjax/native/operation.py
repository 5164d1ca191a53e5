"""`run(operation, operands)`: compiled code on a CPU, and an equal function in jnp
elsewhere.

An operation is defined by its twin. A program calls the twin on another device, in
batches (`jax.vmap`) and for gradients; on a CPU it calls the compiled code, which
returns the same numbers up to rounding.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from specjax.native.product import max_rows


class Operation(NamedTuple):
    """A function of arrays in two forms. Each takes a pytree and returns a sequence.

    Attributes:
      name: in a printed program.
      twin: (operands) -> arrays; the definition.
      native: (operands) -> arrays, by a call of compiled code.
      shapes: (operands) -> shapes and dtypes of these arrays, of operands that may be
        shapes alone.
    """

    name: str
    twin: Callable[[Any], Sequence[Any]]
    native: Callable[[Any], Sequence[Any]]
    shapes: Callable[[Any], list[jax.ShapeDtypeStruct]]


def run(operation: Operation, operands: Any) -> list[Any]:
    """Returns the result of an operation on a pytree of arrays, whose static parts are
    hashable."""
    leaves, tree = jax.tree.flatten(operands)
    return rows_p.bind(*leaves, operation=operation, tree=tree)


def in_use() -> bool:
    """Returns whether programs that are traced now call compiled operations: on a CPU,
    outside of a mesh, unless they are switched off as products are."""
    return bool(max_rows())


def _apply_twin(*leaves: Any, operation: Operation, tree: Any) -> Sequence[Any]:
    return operation.twin(jax.tree.unflatten(tree, leaves))


def _native(*leaves: Any, operation: Operation, tree: Any) -> Sequence[Any]:
    return operation.native(jax.tree.unflatten(tree, leaves))


rows_p = Primitive("specjax_rows")
rows_p.multiple_results = True
_compiled = jax.jit(rows_p.bind, static_argnames=("operation", "tree"))


@rows_p.def_impl
def _run_eagerly(*leaves: Any, **static: Any) -> list[Any]:
    with jax.disable_jit(False):  # else it would call itself for ever
        return _compiled(*leaves, **static)


@rows_p.def_abstract_eval
def _abstract(*leaves: Any, operation: Operation, tree: Any) -> list[Any]:
    shapes = operation.shapes(jax.tree.unflatten(tree, leaves))
    return [jax.core.ShapedArray(shape.shape, shape.dtype) for shape in shapes]


def _batch(leaves: Any, axes: Any, **static: Any) -> tuple[list[Any], list[int]]:
    twin = functools.partial(_apply_twin, **static)
    batched = jax.vmap(lambda *leaves: tuple(twin(*leaves)), tuple(axes))(*leaves)
    return list(batched), [0] * len(batched)


def _differentiate(leaves: Any, tangents: Any, **static: Any) -> tuple[Any, Any]:
    twin = functools.partial(_apply_twin, **static)
    return jax.jvp(twin, leaves, tuple(map(ad.instantiate_zeros, tangents)))


batching.primitive_batchers[rows_p] = _batch
ad.primitive_jvps[rows_p] = _differentiate
for _on, _rule in (None, _apply_twin), ("cpu", _native):
    mlir.register_lowering(
        rows_p, mlir.lower_fun(_rule, multiple_results=True), platform=_on
    )
