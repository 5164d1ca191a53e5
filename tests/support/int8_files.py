"""Parameters as they are with weights in eight bits."""

from typing import Any

from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.quantized import Dynamic, Int8, rounding


def rounded(params: Any, kind: str = "int8") -> Any:
    """The same tree, its large matrices in eight bits, or also "int8_dynamic"."""
    flat = flatten_dict(params, sep="/")
    for name, leaf in flat.items():
        if rounding.rounds(leaf.shape):
            whole = Int8(*rounding.rounded(leaf, rounding.inputs_of(name)))
            flat[name] = whole if kind == "int8" else Dynamic.of(whole)
    return unflatten_dict(flat, sep="/")
