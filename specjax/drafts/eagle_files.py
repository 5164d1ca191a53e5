"""Folders of EAGLE-1 and 2 heads, as the authors' code writes them.

The two have one layout: the sizes of a Llama of one layer, whose first norm and readout
are missing, and a product of twice its width before it. The readout is the target's.
"""

from typing import Any

from specjax.checkpoints import Pretrained, archive, int8_weights
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import PRODUCT, UNBIASED, Source
from specjax.drafters import eagle
from specjax.drafts import head_files
from specjax.drafts.head_files import EMBEDDING, INV_FREQ, Folder

JOIN_BIAS = "fc.bias"


def read(folder: Folder, target: Pretrained) -> tuple[eagle.Config, Any]:
    """Returns the sizes and the own parameters of the head in a folder, for the target
    that it was trained for. Raises ValueError for a head of another target."""
    arrays = folder.open()
    dtype = str(int8_weights.activations(target.dtype))
    whole: Any = target.required_config
    try:
        layer = head_files.read_layer(folder.fields, target, dtype)
        if layer.dim != whole.dim:
            raise ValueError(
                f"its layer is of width {layer.dim}, and the states of {target.name}"
                f" have {whole.dim}: name the target that it was trained for"
            )
        biased = field.truth(folder.fields, "bias", JOIN_BIAS in arrays.arrays)
    except ValueError as error:
        raise ValueError(f"{folder.path}: {error}") from None
    config = eagle.Config(layer, biased, own_embedding=EMBEDDING in arrays.arrays)
    shapes = eagle.abstract_params(config)
    archive.check(arrays, names(config), shapes, harmless=(INV_FREQ,))
    if config.own_embedding and head_files.repeats_embedding(arrays, target):
        config = config._replace(own_embedding=False)
        shapes = eagle.abstract_params(config)
    return config, archive.fill(arrays, names(config), shapes, dtype=dtype)


def names(config: eagle.Config) -> dict[str, Source]:
    """Returns where each parameter of a head lies in its file."""
    join = "join", "fc", PRODUCT if config.biased else UNBIASED
    found = archive.sources([join, *head_files.layer_rows(config.layer, "layers.0")])
    if config.own_embedding:
        found["embedding"] = Source(EMBEDDING)
    return found
