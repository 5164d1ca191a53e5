"""Decoders of Llama's kind: Llama, Mistral, Qwen and Gemma, by a table of styles."""

from specjax.models.llama.decoder import (
    abstract_params,
    build,
    init_params,
    num_params,
    partition_specs,
)
from specjax.models.llama.sizes import STYLES, Config, Rotation, Stretch, Style

__all__ = [
    "STYLES",
    "Config",
    "Rotation",
    "Stretch",
    "Style",
    "abstract_params",
    "build",
    "init_params",
    "num_params",
    "partition_specs",
]
