"""Parameters as they are with weights in eight bits."""

from typing import Any

from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.quantized import Int8, rounding


def rounded(params: Any) -> Any:
    """The same tree, its large matrices in eight bits."""
    flat = flatten_dict(params, sep="/")
    for name, leaf in flat.items():
        if rounding.rounds(leaf.shape):
            flat[name] = Int8(*rounding.rounded(leaf, rounding.inputs_of(name)))
    return unflatten_dict(flat, sep="/")
