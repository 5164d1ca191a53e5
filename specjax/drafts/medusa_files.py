"""Folders of Medusa's heads, as the authors' code writes them.

Every head lies in the file by its number: residual layers, then a readout. How many
there are is counted there, as published configurations say fewer than there are.
Axes: K heads, N layers of a head, D features, V vocabulary.
"""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from specjax.checkpoints import Pretrained, archive, huggingface, int8_weights
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import Source
from specjax.drafters import medusa
from specjax.drafts.head_files import MEDUSA, WEIGHTS, Folder, name_or_path

HEAD = r"(\d+)\."
LAYERS, HEADS = "medusa_num_layers", "medusa_num_heads"


def read(folder: Folder, target: Pretrained) -> tuple[medusa.Config, Any]:
    """Returns the sizes and the own parameters of all heads in a folder, for the target
    that they were trained for. Raises ValueError for heads of another target."""
    arrays = folder.open()
    whole: Any = target.required_config
    try:
        layers = 1
        if folder.fields.get(LAYERS) is not None:
            layers = field.whole_number(folder.fields, LAYERS)
        stated = field.size(folder.fields, HEADS)
    except ValueError as error:
        raise ValueError(f"{folder.path}: {error}") from None
    numbers = {int(m[1]) for m in map(re.compile(HEAD).match, arrays.arrays) if m}
    config = medusa.Config(
        vocab=target.vocab,
        dim=whole.dim,
        heads=max(stated, 1 + max(numbers, default=0)),
        layers=layers,
        dtype=str(int8_weights.activations(target.dtype)),
    )
    shapes = {str(i): _shapes_of_head(config) for i in range(config.heads)}
    archive.check(arrays, names(config), shapes)
    each = archive.fill(arrays, names(config), shapes, dtype=config.dtype)
    return config, _stack(config, [each[name] for name in shapes])


def _shapes_of_head(config: medusa.Config) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of one head, whose layers are separate arrays in the file."""
    shapes: dict[str, tuple[int, ...]] = {"readout": (config.dim, config.vocab)}
    for j in range(config.layers):
        shapes |= {f"kernel_{j}": (config.dim,) * 2, f"bias_{j}": (config.dim,)}
    return {name: jax.ShapeDtypeStruct(x, jnp.float32) for name, x in shapes.items()}


def _stack(config: medusa.Config, each: list[dict[str, jax.Array]]) -> dict[str, Any]:
    """Returns the parameters of all heads as `medusa.medusa_logits` reads them."""
    dim, count = config.dim, len(each)

    def layers(name: str, shape: tuple[int, ...]) -> jax.Array:
        found = [head[f"{name}_{j}"] for head in each for j in range(config.layers)]
        if not found:
            return jnp.zeros((count, 0, *shape), config.dtype)
        return jnp.stack(found).reshape(count, config.layers, *shape)

    return {
        "kernel": layers("kernel", (dim, dim)),
        "bias": layers("bias", (dim,)),
        "readout": tuple(head["readout"] for head in each),
    }


def write(
    folder: Path, config: medusa.Config, params: Any, *, target: Pretrained
) -> None:
    """Writes heads in the layout of Medusa's own code, which `read` reads back exactly.

    Raises ValueError where the folder exists, OSError in one line where a disk is full.
    """
    flat = {}
    for i in range(config.heads):
        flat[f"{i}/readout"] = params["readout"][i]
        for j in range(config.layers):
            flat[f"{i}/kernel_{j}"] = params["kernel"][i, j]
            flat[f"{i}/bias_{j}"] = params["bias"][i, j]
    fields = {
        HEADS: config.heads,
        LAYERS: config.layers,
        "base_model_name_or_path": name_or_path(target),
    }
    file = WEIGHTS[MEDUSA][0]
    huggingface.save_head(folder, fields, flat, names(config), file=file)


def names(config: medusa.Config) -> dict[str, Source]:
    """Returns where each parameter of each head lies in the file."""
    found: dict[str, Source] = {}
    for i in range(config.heads):
        for j in range(config.layers):
            linear = f"{i}.{j}.linear"
            found[f"{i}/kernel_{j}"] = Source(f"{linear}.weight", transpose=True)
            found[f"{i}/bias_{j}"] = Source(f"{linear}.bias")
        readout = Source(f"{i}.{config.layers}.weight", transpose=True)
        found[f"{i}/readout"] = readout
    return found
