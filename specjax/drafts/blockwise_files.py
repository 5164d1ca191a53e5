"""Folders of blockwise parallel heads, in this library's own layout.

No project publishes such heads, so that there is no layout to follow: config.json has
their sizes, and one file the parameters of `drafters.medusa` by their names there. All
heads share the readout of their target, which is not in the folder.
Axes: K heads, D features, F hidden features, V vocabulary.
"""

from pathlib import Path
from typing import Any

from specjax.checkpoints import Pretrained, archive, huggingface, int8_weights
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import Source
from specjax.drafters import medusa
from specjax.drafts.head_files import BLOCKWISE_TYPE, Folder, name_or_path

HEADS, WIDTH, HIDDEN = "num_heads", "hidden_size", "intermediate_size"


def read(folder: Folder, target: Pretrained) -> tuple[medusa.Config, Any]:
    """Returns the sizes and the own parameters of the heads in a folder, for the target
    that they were trained for. Raises ValueError for heads of another target."""
    whole: Any = target.required_config
    try:
        heads, width, hidden = (
            field.size(folder.fields, name) for name in (HEADS, WIDTH, HIDDEN)
        )
    except ValueError as error:
        raise ValueError(f"{folder.path}: {error}") from None
    if width != whole.dim:
        raise ValueError(
            f"{folder.path} has heads of {width} features, and {target.name} has"
            f" {whole.dim}: name the target that they were trained for"
        )
    dtype = str(int8_weights.activations(target.dtype))
    config = medusa.Config(target.vocab, width, heads, mlp_dim=hidden, dtype=dtype)
    arrays, shapes = folder.open(), medusa.abstract_params(config)
    archive.check(arrays, names(config), shapes)
    return config, archive.fill(arrays, names(config), shapes, dtype=dtype)


def write(
    folder: Path, config: medusa.Config, params: Any, *, target: Pretrained
) -> None:
    """Writes heads that `read` reads back exactly.

    Raises ValueError where the folder exists, OSError in one line where a disk is full.
    """
    fields = {
        "model_type": BLOCKWISE_TYPE,
        HEADS: config.heads,
        WIDTH: config.dim,
        HIDDEN: config.mlp_dim,
        "base_model_name_or_path": name_or_path(target),
    }
    huggingface.save_head(folder, fields, params, names(config))


def names(config: medusa.Config) -> dict[str, Source]:
    """Returns where each parameter lies in the file."""
    return {name: Source(name) for name in medusa.abstract_params(config)}
