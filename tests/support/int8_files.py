"""Parameters as they are with weights in eight bits."""

from typing import Any

from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.native import Int8
from specjax.zoo import int8


def rounded(params: Any) -> Any:
    """The same tree, its large matrices in eight bits."""
    flat = flatten_dict(params, sep="/")
    for name, leaf in flat.items():
        if int8.rounds(leaf.shape):
            flat[name] = Int8(*int8.rounded(leaf, int8.inputs_of(name)))
    return unflatten_dict(flat, sep="/")
