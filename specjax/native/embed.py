"""`take_rows(table, tokens)`: the rows of an embedding, on a CPU by compiled code.

XLA's gather of a few rows wakes its threads, which takes ten times as long as to copy
them. Axes: V rows of the table, E features.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax.native import operation

MOST = 32  # tokens of a call
DTYPES = "float32", "bfloat16", "int8"


class RowOperands(NamedTuple):
    """The operands of rows of a table [V, E] for tokens [...]."""

    table: Array
    tokens: Array


def take_rows(table: Array, tokens: Array) -> Array:
    """Returns `table[tokens]`, [..., E]."""
    few = isinstance(table, jax.Array) and 1 <= tokens.size <= MOST and table.ndim == 2
    few = few and table.dtype.name in DTYPES and table.size > 0
    if few and jax.sharding.get_abstract_mesh().empty and operation.in_use():
        return operation.run(TAKE, RowOperands(table, tokens))[0]
    return table[tokens]


def _take(of: RowOperands) -> Sequence[Array]:
    return [of.table[of.tokens]]


def _shapes(of: RowOperands) -> list[jax.ShapeDtypeStruct]:
    shape = *of.tokens.shape, of.table.shape[1]
    return [jax.ShapeDtypeStruct(shape, of.table.dtype)]


def _native(of: RowOperands) -> Sequence[Array]:
    """Calls rows_take of handlers_rows.cc."""
    tokens = of.tokens.astype(jnp.int32)
    return jax.ffi.ffi_call("specjax_rows_take", _shapes(of))(of.table, tokens)


TAKE = operation.Operation("take_rows", _take, _native, _shapes)
