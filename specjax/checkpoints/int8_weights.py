"""Matrices of a checkpoint in eight bits: stored so, or rounded when they are read.

At most one matrix of floats is in memory at a time.
"""

from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.checkpoints import archive
from specjax.checkpoints.archive import Archive, Source
from specjax.quantized import Dynamic, Int8, rounding

# The names of such weights in place of a dtype; the latter rounds activations too, see
# `quantized.Dynamic`.
INT8, DYNAMIC = NAMES = "int8", "int8_dynamic"
FLOAT32 = np.dtype("float32")  # of all that is not a large matrix, and of activations
_rounded = jax.jit(rounding.quantize, static_argnums=1)


def activations(dtype: Any) -> str:
    """Returns the dtype that a model computes in if its weights have this dtype, or one
    of `NAMES`. Raises ValueError for a dtype that weights cannot have."""
    return str(FLOAT32 if str(dtype) in NAMES else archive.float_dtype(dtype))


def round_params(params: Any, dtype: str) -> Any:
    """Returns parameters of float32 with their large matrices in eight bits, by one of
    `NAMES`."""
    flat = flatten_dict(params, sep="/")
    for name, leaf in flat.items():
        if rounding.is_quantized(leaf.shape):
            rounded = Int8(*_rounded(leaf, rounding.input_axis(name)))
            flat[name] = Dynamic.from_int8(rounded) if dtype == DYNAMIC else rounded
    return unflatten_dict(flat, sep="/")


def fill(
    held: Archive,
    sources: dict[str, Source],
    shapes: Any,
    *,
    dtype: str,
    sharding: Any = None,
) -> Any:
    """Returns the parameters as `archive.fill` does, large matrices in eight bits if
    dtype is one of `NAMES`. Raises ValueError for such matrices on several devices."""
    if dtype not in NAMES:
        return archive.fill(held, sources, shapes, dtype=dtype, sharding=sharding)
    if sharding is not None:
        raise ValueError(
            "int8 weights lie on one device: name a float dtype, or no sharding"
        )
    flat = {}
    for name, leaf in flatten_dict(shapes, sep="/").items():
        if rounding.is_quantized(leaf.shape):
            flat[name] = matrix(
                held, sources[name], name=name, shape=leaf.shape, dtype=dtype
            )
        else:
            shape = leaf.shape
            read = archive.reader(held, sources[name], shape=shape, dtype=FLOAT32)
            flat[name] = jax.device_put(read(archive.full_index(shape)))
    return unflatten_dict(flat, sep="/")


def matrix(
    held: Archive, source: Source, *, name: str, shape: tuple[int, ...], dtype: str
) -> Int8:
    """Returns a parameter [K, N], or a table [N, K], by the rule of
    `quantized.rounding`.

    A matrix that is stored with a row for each output is rounded as it is stored: no
    floats are transposed, and a `Dynamic` keeps this order.
    """
    inputs = rounding.input_axis(name)
    parts = stored_parts(held, source, inputs)
    turned = parts is None and source.transpose and inputs == 0
    if parts is None:
        source = source._replace(transpose=source.transpose and not turned)
        stored = shape[::-1] if turned else shape
        read = archive.reader(held, source, shape=stored, dtype=FLOAT32)
        parts = _rounded(read(archive.full_index(stored)), 1 if turned else inputs)
    values, scale = jax.block_until_ready(jax.device_put(parts))
    if turned and dtype == DYNAMIC:
        return Dynamic(values.reshape(shape), scale.T)
    rounded = Int8(values.T, scale.T) if turned else Int8(values, scale)
    return Dynamic.from_int8(rounded) if dtype == DYNAMIC else rounded


def stored_parts(
    held: Archive, source: Source, inputs: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the integers and scales of the file, as they are stored; None where it
    has none for this axis."""
    raw, scale = held.unscaled, source.name + rounding.SCALE
    if raw is None or scale not in raw.arrays or source != Source(source.name):
        return None
    array, of_scale = raw.arrays[source.name], raw.arrays[scale]
    wanted = tuple(1 if axis == inputs else n for axis, n in enumerate(array.shape))
    if array.dtype != np.int8 or of_scale.shape != wanted:
        return None
    scales = raw.read(scale, archive.full_index(wanted)).astype(FLOAT32)
    if not np.isfinite(scales).all():
        return None  # reported where it is read as floats
    return raw.read(source.name, archive.full_index(array.shape)), scales
