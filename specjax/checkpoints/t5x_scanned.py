"""T5X's scalable_t5 checkpoints: all layers of a stack in one array, heads on an axis.

With `scan_layers`, layer i of `encoder/encoder/mlp/wo/kernel` is number i along
`param_scan_axis`, 1 by default: [mlp, layer, E]. With or without it, kernels of
attention are [E, H, D] and [H, D, E]. Both are opened here as T5X's other models have
them: `encoder/layers_i/mlp/wo/kernel` [mlp, E], and [E, H D].
"""

import math
import re
from typing import NamedTuple

import jax
import numpy as np

from specjax.checkpoints.archive import Archive, Index

STACKED = re.compile(r"(encoder|decoder)/\1/(.+)")
TABLE, NORM = "token_embedder/embedding", "{0}/{0}/pre_mlp_layer_norm/scale"
HEADS = re.compile(r".*attention/(query|key|value|out)/kernel")


class Place(NamedTuple):
    """The place of an array: number `layer` along `axis` of a stored one, or all of it.
    shape: that of this part as it is stored."""

    name: str
    shape: tuple[int, ...]
    axis: int = 0
    layer: int | None = None


def unstack_layers(archive: Archive) -> Archive:
    """Returns the same arrays under the names and in the shapes of a T5 with an array
    for each layer. Raises ValueError where the axis of the layers cannot be found."""
    places = {}
    for stored, array in archive.arrays.items():
        match = STACKED.fullmatch(stored)
        if match is None:
            places[stored] = Place(stored, array.shape)
            continue
        axis, depth = _layers(archive, match[1])
        if array.shape[axis : axis + 1] != (depth,):
            raise ValueError(
                f"{archive.where}: {stored} {array.shape} has not the {depth} layers of"
                f" {NORM.format(match[1])} along axis {axis}"
            )
        shape = array.shape[:axis] + array.shape[axis + 1 :]
        for layer in range(depth):
            name = f"{match[1]}/layers_{layer}/{match[2]}"
            places[name] = Place(stored, shape, axis, layer)
    arrays = {
        name: jax.ShapeDtypeStruct(
            _merge_head_axes(name, place.shape), archive.arrays[place.name].dtype
        )
        for name, place in places.items()
    }

    def read(name: str, index: Index) -> np.ndarray:
        place, shape = places[name], arrays[name].shape
        if shape == place.shape:
            return _part(archive, place, index)
        at = 0 if name.endswith("out/kernel") else 1  # where heads are, then features
        width, (start, stop, _) = place.shape[at + 1], index[at].indices(shape[at])
        first, last = start // width, -(-stop // width)
        heads = slice(first, last), slice(0, width)
        values = _part(archive, place, (*index[:at], *heads, *index[at + 1 :]))
        joined = values.reshape(*values.shape[:at], -1, *values.shape[at + 2 :])
        some = slice(start - first * width, stop - first * width)
        return joined[some] if at == 0 else joined[:, some]

    return Archive(arrays, read, archive.where)


def _layers(archive: Archive, stack: str) -> tuple[int, int]:
    """Returns the axis of a stack's layers and how many there are, by a norm's
    scale."""
    width = getattr(archive.arrays.get(TABLE), "shape", (0,))[-1]
    shape: tuple[int, ...] = getattr(
        archive.arrays.get(NORM.format(stack)), "shape", ()
    )
    if len(shape) != 2 or width not in shape:
        raise ValueError(
            f"{archive.where} stacks the layers of its {stack}, and which axis they are"
            f" on is not known: {NORM.format(stack)} is {shape or 'missing'}"
        )
    axis = 1 if shape[0] == width else 0
    return axis, shape[axis]


def _merge_head_axes(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of a kernel of attention with heads and their features on one
    axis."""
    if len(shape) != 3 or not (match := HEADS.fullmatch(name)):
        return shape
    if match[1] == "out":
        return math.prod(shape[:2]), shape[2]
    return shape[0], math.prod(shape[1:])


def _part(archive: Archive, place: Place, index: Index) -> np.ndarray:
    if place.layer is None:
        return archive.read(place.name, index)
    here = slice(place.layer, place.layer + 1)
    whole = (*index[: place.axis], here, *index[place.axis :])
    return archive.read(place.name, whole).squeeze(place.axis)
