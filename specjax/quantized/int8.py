"""Weights in eight bits, where a model has an array: q s, with a scale s an output.

Axes: K features in, N features out.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

FLOAT32 = jnp.dtype("float32")


array = functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("values", "scale"),
    meta_fields=("dtype",),
)


@array
@dataclass(frozen=True, eq=False)
class Int8:
    """A matrix of whole numbers times scales, read a byte a weight. `dot` multiplies by
    it as by the array `values * scale`, and `[tokens]` reads rows of that; whatever
    else takes arrays is given all of it. values: int8, [K, N]. scale: float32, of its
    shape but for 1 along the axis of inputs: [1, N], or [N, 1] of a table [N, K] of
    which an output is a row. dtype: what it is read as, the activations'."""

    values: Array
    scale: Array
    dtype: np.dtype = FLOAT32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def size(self) -> int:
        return self.values.size

    def astype(self, dtype: Any) -> "Int8":
        """The same numbers, read as another float."""
        return replace(self, dtype=jnp.dtype(dtype))

    def __getitem__(self, index: Any) -> Array:
        """A part of the array: of rows, no others are read."""
        if isinstance(index, tuple):
            scale = jnp.broadcast_to(self.scale, self.shape)[index]
        else:
            scale = self.scale[0] if len(self.scale) == 1 else self.scale[index]
        return (self.values[index] * scale).astype(self.dtype)

    def __jax_array__(self) -> Array:
        return (self.values * self.scale).astype(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # it is always new
        return np.asarray(self.__jax_array__(), dtype)


@array
@dataclass(frozen=True, eq=False)
class Dynamic(Int8):
    """The same array, whose products round activations too, row by row, and sum whole
    numbers: see `dynamic_product`. values: of a matrix [K, N] they have its shape, and
    the order of its transpose, an output's numbers side by side."""

    @classmethod
    def of(cls, matrix: Int8) -> "Dynamic":
        values = matrix.values
        if matrix.scale.shape[0] == 1:
            values = jnp.asarray(values).T.reshape(values.shape)
        return cls(values, matrix.scale, matrix.dtype)

    @property
    def outputs(self) -> Array:
        """A row for each output, [N, K]: no copy."""
        if self.scale.shape[0] == 1:
            return self.values.reshape(self.shape[::-1])
        return self.values

    def plain(self) -> Int8:
        """The weights alone, in their own order."""
        turned = self.scale.shape[0] == 1
        values = self.outputs.T if turned else self.values
        return Int8(values, self.scale, self.dtype)

    def __getitem__(self, index: Any) -> Array:
        return self.plain()[index]

    def __jax_array__(self) -> Array:
        return self.plain().__jax_array__()


def alike(matrices: Sequence[Array | Int8]) -> bool:
    """Whether all or none are in eight bits, so that `beside` can join them."""
    kinds = {type(it) if isinstance(it, Int8) else None for it in matrices}
    return len(kinds) == 1


def beside(matrices: Sequence[Array | Int8]) -> Array | Int8:
    """Matrices [K, N], with a scale an output if any, as the columns of a wider."""
    if not isinstance(matrices[0], Int8):
        return jnp.concatenate(matrices, 1)
    if isinstance(matrices[0], Dynamic):
        return Dynamic.of(beside([matrix.plain() for matrix in matrices]))
    values, scales = zip(*((it.values, it.scale) for it in matrices), strict=True)
    joined = (jnp.concatenate(parts, 1) for parts in (values, scales))
    return Int8(*joined, matrices[0].dtype)
