"""Matrices of a checkpoint in eight bits: as they are stored, or rounded once read.

One of floats at a time is in memory.
"""

from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.checkpoints import archive
from specjax.checkpoints.archive import Archive, Source
from specjax.quantized import Dynamic, Int8, rounding

# The names of such weights, where others have their dtype; of the latter activations
# are rounded too, see `quantized.Dynamic`.
INT8, DYNAMIC = NAMES = "int8", "int8_dynamic"
FLOAT32 = np.dtype("float32")  # of all that is no large matrix, and of activations
_rounded = jax.jit(rounding.quantize, static_argnums=1)


def activations(dtype: Any) -> str:
    """What a model computes in whose weights have this dtype, or one of `NAMES`."""
    return str(FLOAT32 if str(dtype) in NAMES else archive.usable(dtype))


def fill(
    held: Archive,
    sources: dict[str, Source],
    shapes: Any,
    dtype: str,
    sharding: Any = None,
) -> Any:
    """`archive.fill`, large matrices in eight bits if dtype is one of `NAMES`."""
    if dtype not in NAMES:
        return archive.fill(held, sources, shapes, dtype, sharding)
    if sharding is not None:
        raise ValueError(
            "int8 weights lie on one device: name a float dtype, or no sharding"
        )
    flat = {}
    for name, leaf in flatten_dict(shapes, sep="/").items():
        if rounding.is_quantized(leaf.shape):
            read = matrix(held, sources[name], name, leaf.shape)
            flat[name] = Dynamic.from_int8(read) if dtype == DYNAMIC else read
        else:
            read = archive.reader(held, sources[name], leaf.shape, FLOAT32)
            flat[name] = jax.device_put(read(archive.whole(leaf.shape)))
    return unflatten_dict(flat, sep="/")


def matrix(held: Archive, source: Source, name: str, shape: tuple[int, ...]) -> Int8:
    """A parameter [K, N], or a table [N, K], by `quantized.rounding`'s rule."""
    inputs = rounding.input_axis(name)
    parts = stored(held, source, inputs)
    if parts is None:
        read = archive.reader(held, source, shape, FLOAT32)
        parts = _rounded(read(archive.whole(shape)), inputs)
    return Int8(*jax.block_until_ready(jax.device_put(parts)))


def stored(
    held: Archive, source: Source, inputs: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """The very numbers and scales of the file, None where it has no such ones."""
    raw, scale = held.unscaled, source.name + rounding.SCALE
    if raw is None or scale not in raw.arrays or source != Source(source.name):
        return None
    array, of_scale = raw.arrays[source.name], raw.arrays[scale]
    wanted = tuple(1 if axis == inputs else n for axis, n in enumerate(array.shape))
    if array.dtype != np.int8 or of_scale.shape != wanted:
        return None
    scales = raw.read(scale, archive.whole(wanted)).astype(FLOAT32)
    if not np.isfinite(scales).all():
        return None  # told where it is read as floats
    return raw.read(source.name, archive.whole(array.shape)), scales
