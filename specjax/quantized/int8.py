"""Eight-bit weights in place of an array of a model: q s, with a scale s per output.

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

from specjax.native.embed import take_rows

FLOAT32 = jnp.dtype("float32")


array = functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("values", "scale"),
    meta_fields=("dtype",),
)


@array
@dataclass(frozen=True, eq=False)
class Int8:
    """A matrix of integers times scales, stored as one byte per weight.

    `dot` multiplies by it as by the array `values * scale`, and `[tokens]` reads rows
    of that array. Anything else that takes arrays receives the whole array.

    values: int8, [K, N].
    scale: float32, of the same shape but with size 1 along the axis of inputs: [1, N],
      or [N, 1] for a table [N, K], in which an output is a row.
    dtype: the dtype that it is read as, that of the activations.
    """

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
        """Returns the same numbers in another float dtype, to be read."""
        return replace(self, dtype=jnp.dtype(dtype))

    def __getitem__(self, index: Any) -> Array:
        """Returns a part of the array; an index of rows reads only those rows."""
        if isinstance(index, tuple):
            scale = jnp.broadcast_to(self.scale, self.shape)[index]
        else:
            scale = self.scale[0] if len(self.scale) == 1 else self.scale[index]
        if isinstance(index, jax.Array) and jnp.issubdtype(index.dtype, jnp.integer):
            values = take_rows(self.values, index)
        else:
            values = self.values[index]
        return (values * scale).astype(self.dtype)

    def __jax_array__(self) -> Array:
        return (self.values * self.scale).astype(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # the array is always a new one
        return np.asarray(self.__jax_array__(), dtype)


@array
@dataclass(frozen=True, eq=False)
class Dynamic(Int8):
    """The same matrix, with products that round activations too and sum integers.

    See `dynamic_product`. values: those of a matrix [K, N] have its shape but the
    memory order of its transpose, so that the numbers of an output are contiguous.
    """

    @classmethod
    def from_int8(cls, matrix: Int8) -> "Dynamic":
        values = matrix.values
        if matrix.scale.shape[0] == 1:
            values = jnp.asarray(values).T.reshape(values.shape)
        return cls(values, matrix.scale, matrix.dtype)

    @property
    def outputs(self) -> Array:
        """The matrix with a row for each output, [N, K], without a copy."""
        if self.scale.shape[0] == 1:
            return self.values.reshape(self.shape[::-1])
        return self.values

    def plain(self) -> Int8:
        """Returns the weights as `Int8`, in their usual order."""
        turned = self.scale.shape[0] == 1
        values = self.outputs.T if turned else self.values
        return Int8(values, self.scale, self.dtype)

    def __getitem__(self, index: Any) -> Array:
        return self.plain()[index]

    def __jax_array__(self) -> Array:
        return self.plain().__jax_array__()


def can_concatenate(matrices: Sequence[Array | Int8]) -> bool:
    """Returns whether `concatenate` can join matrices: either all or none must be
    eight-bit."""
    kinds = {type(it) if isinstance(it, Int8) else None for it in matrices}
    return len(kinds) == 1


def concatenate(matrices: Sequence[Any]) -> Any:
    """Joins matrices [K, N] by columns; eight-bit ones need a scale per output."""
    if not isinstance(matrices[0], Int8):
        return jnp.concatenate(matrices, 1)
    if isinstance(matrices[0], Dynamic):
        return Dynamic.from_int8(concatenate([matrix.plain() for matrix in matrices]))
    values, scales = zip(*((it.values, it.scale) for it in matrices), strict=True)
    return Int8(
        values=jnp.concatenate(values, 1),
        scale=jnp.concatenate(scales, 1),
        dtype=matrices[0].dtype,
    )
