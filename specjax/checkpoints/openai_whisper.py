"""Whisper as OpenAI stores it: one file `.pt` with sizes and weights.

It is a pickle, read by PyTorch, which makes only tensors of it (`weights_only=True`).
Orientation is that of `names_whisper`.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.checkpoints.archive import (
    NORM,
    PRODUCT,
    Archive,
    Index,
    Names,
    Source,
    sources,
)
from specjax.checkpoints.names_whisper import CONVOLUTIONS, layer_sources, layers
from specjax.models.whisper import Config
from specjax.zoo.sizes import MOST, is_size

SUFFIX = ".pt"
DIMS, WEIGHTS = "dims", "model_state_dict"
# Their sizes by ours.
SIZES = {
    "vocab": ("n_vocab",),
    "dim": ("n_audio_state", "n_text_state"),
    "encoder_layers": ("n_audio_layer",),
    "decoder_layers": ("n_text_layer",),
    "num_heads": ("n_audio_head", "n_text_head"),
    "bands": ("n_mels",),
    "positions": ("n_text_ctx",),
}
STATES = "n_audio_ctx"
STACKS = {
    "encoder_layers": r"encoder\.blocks\.(\d+)\.",
    "decoder_layers": r"decoder\.blocks\.(\d+)\.",
}
LAST = ("encoder/norm", "encoder.ln_post", NORM), ("decoder/norm", "decoder.ln", NORM)
MLP = (
    ("mlp_norm", "mlp_ln", NORM),
    ("mlp/in", "mlp.0", PRODUCT),
    ("mlp/out", "mlp.2", PRODUCT),
)
LAYERS = layers(
    own="attn", cross="cross_attn", norm="{}_ln", product=str, out="out", mlp=MLP
)
WIDER = 4  # times as wide as the features are the hidden ones, in all of them
# `<|endoftext|>` of an English-only vocabulary; one more in those of more languages.
MULTILINGUAL, ENGLISH_END = 51865, 50256


def is_openai(path: Path) -> bool:
    """Returns whether a path is such a file or a folder with nothing else to read."""
    return path.suffix == SUFFIX or _single_file(path) is not None


def open_file(path: Path, dtype: str) -> tuple[Config, Archive, Names]:
    """Returns sizes, weights and their names, of a file or of the only one of a folder.
    Raises ValueError for a file that cannot be read."""
    file = path if path.is_file() else _single_file(path)
    assert file is not None  # see `is_openai`
    held = _read(file)
    config = _config(file, held[DIMS], dtype)
    tensors = held[WEIGHTS]
    arrays = {
        name: jax.ShapeDtypeStruct(x.shape, str(x.dtype).removeprefix("torch."))
        for name, x in tensors.items()
    }

    def read(name: str, index: Index) -> np.ndarray:
        part = tensors[name][index]
        wide = arrays[name].dtype.name == "bfloat16"  # not in NumPy
        return (part.float() if wide else part).numpy()

    return config, Archive(arrays, read, str(file)), names(config)


def ends(config: Config) -> tuple[int | None, tuple[int, ...]]:
    """Returns the ids that a text starts and ends with, by the size of the
    vocabulary."""
    end = ENGLISH_END + (config.vocab >= MULTILINGUAL)
    return (end + 1, (end,)) if end + 1 < config.vocab else (None, ())


def names(config: Config) -> Names:
    """Returns where each parameter lies in the file."""
    found = {
        "encoder/positions": Source("encoder.positional_embedding"),
        "decoder/embedding": Source("decoder.token_embedding.weight"),
        "decoder/positions": Source("decoder.positional_embedding"),
        **sources((*CONVOLUTIONS, *LAST)),
        **layer_sources(config, LAYERS, "{}.blocks.{}."),
    }
    return Names(found, unread=("decoder.mask",))


def _single_file(path: Path) -> Path | None:
    """Returns the one file of a folder that has no other weights."""
    if not path.is_dir():
        return None
    files = [*path.glob(f"*{SUFFIX}"), *path.glob("*.safetensors")]
    return files[0] if len(files) == 1 and files[0].suffix == SUFFIX else None


def _read(file: Path) -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"{file} is a pickle, which PyTorch alone reads safely: pip install torch,"
            " or name a folder of Hugging Face's format"
        ) from None
    try:
        mapped = zipfile.is_zipfile(file)
        held: Any = torch.load(file, "cpu", weights_only=True, mmap=mapped)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{file} is a pickle that is cut short or holds more than tensors"
            f" ({reason}): copy it again, or name a folder of Hugging Face's format"
        ) from None
    parts = [held.get(key) for key in (DIMS, WEIGHTS)] if type(held) is dict else []
    if not parts or not all(isinstance(part, dict) for part in parts):
        raise ValueError(
            f"{file} is no Whisper of OpenAI, which holds {DIMS} and {WEIGHTS}; other"
            " pickles are not read: name a folder of Hugging Face's format"
        )
    loose = [n for n, x in held[WEIGHTS].items() if not isinstance(x, torch.Tensor)]
    if loose:
        raise ValueError(f"{file}: {loose[0]} is no tensor: copy the file again")
    return held


def _config(file: Path, dims: dict[str, Any], dtype: str) -> Config:
    sizes: dict[str, Any] = {}
    for ours, stored in {**SIZES, "frames": (STATES,)}.items():
        values = [dims.get(name) for name in stored]
        if not is_size(values[0]) or len(set(values)) > 1:
            raise ValueError(
                f"{file}: {' and '.join(stored)} must be the same whole number, 1 to"
                f" {MOST}: {', '.join(map(repr, values))}"
            )
        sizes[ours] = values[0]
    sizes["frames"] *= 2
    config = Config(**sizes, mlp_dim=WIDER * sizes["dim"], dtype=dtype)
    if config.dim % config.num_heads or config.dim % 2:
        raise ValueError(
            f"{file}: {config.dim} features are no multiple of 2 and of the"
            f" {config.num_heads} heads"
        )
    return config
