"""A small folder as of the hub for each family of decoders, with a tokenizer.json.

Windows are shorter than the texts that the tests decode.
"""

from pathlib import Path

from specjax import checkpoints
from specjax.models.llama import Config, Rotation
from tests.support import text_folders
from tests.support.tiny import mixed
from tests.support.tiny_llama import weights

SIZES = dict(vocab=300, dim=16, mlp_dim=32, num_layers=1, num_heads=4, key_heads=2)
LOCAL = dict(window=6, local=(0,), local_rotation=Rotation(50.0))
FIELDS = {
    "llama": dict(rotation=Rotation(500.0)),
    "gemma3": dict(tied=True, scale=0.25, **LOCAL),
}


def pair(family: str, folder: Path) -> list[str]:
    """Flags that name a target and a draft near it, written below a folder."""
    flags = []
    for seed, side in enumerate(("target", "draft")):
        write(family, folder / side, seed)
        flags += [f"--{side}", str(folder / side)]
    return flags


def write(family: str, folder: Path, seed: int) -> None:
    if family == "gpt2":
        text_folders.gpt2(folder, seed)
        return
    if family == "t5":
        text_folders.t5_folder(folder, seed)
        return
    config = Config(**SIZES, head_width=8, style=family, **FIELDS[family])
    target = weights(config, 1)
    params = mixed(target, weights(config, 2), 0.1 * seed)
    checkpoints.save(folder, (config, params))
    text_folders.bpe().save(str(folder / "tokenizer.json"))
