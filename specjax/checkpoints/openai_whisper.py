"""Whisper as OpenAI stores it: one file `.pt` with sizes and weights.

It is a pickle, read by PyTorch (`pickles`). Orientation is that of `names_whisper`.
"""

from pathlib import Path
from typing import Any

from specjax.checkpoints import pickles
from specjax.checkpoints.archive import (
    NORM,
    PRODUCT,
    Archive,
    Names,
    Source,
    sources,
)
from specjax.checkpoints.names_whisper import CONVOLUTIONS, layer_sources, layers
from specjax.models.whisper import Config
from specjax.zoo.sizes import MOST, is_size

SUFFIX = ".pt"
FOLDER = "a folder of Hugging Face's format"
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
    """Returns the sizes, the weights and their names, of a file or of the only one of a
    folder. Raises ValueError for a file that cannot be read."""
    file = path if path.is_file() else _single_file(path)
    assert file is not None  # see `is_openai`
    held = _read(file)
    config = _config(file, held[DIMS], dtype)
    return config, pickles.open_tensors(held[WEIGHTS], file), names(config)


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
    held = pickles.load(file, f"name {FOLDER}")
    parts = [held.get(key) for key in (DIMS, WEIGHTS)] if type(held) is dict else []
    if not parts or not all(isinstance(part, dict) for part in parts):
        raise ValueError(
            f"{file} is not one of OpenAI's Whispers, which hold {DIMS} and {WEIGHTS};"
            f" other pickles are not read: name {FOLDER}"
        )
    return held


def _config(file: Path, dims: dict[str, Any], dtype: str) -> Config:
    sizes: dict[str, Any] = {}
    for ours, stored in {**SIZES, "frames": (STATES,)}.items():
        values = [dims.get(name) for name in stored]
        if not is_size(values[0]) or len(set(values)) > 1:
            size = "the same whole number" if len(stored) > 1 else "a whole number"
            raise ValueError(
                f"{file}: {' and '.join(stored)} must be {size}, 1 to {MOST}:"
                f" {', '.join(map(repr, values))}"
            )
        sizes[ours] = values[0]
    sizes["frames"] *= 2
    config = Config(**sizes, mlp_dim=WIDER * sizes["dim"], dtype=dtype)
    if config.dim % config.num_heads or config.dim % 2:
        raise ValueError(
            f"{file}: {config.dim} features are not a multiple of 2 and of the"
            f" {config.num_heads} heads"
        )
    return config
