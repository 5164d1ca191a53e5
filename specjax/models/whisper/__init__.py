"""Whisper (Radford et al. 2022) and Distil-Whisper (Gandhi et al. 2023) write speech.

The encoder runs in `init`, or before it, where two models share what it gives.
"""

from specjax.models.whisper.network import (
    Cache,
    abstract_params,
    build,
    encode,
    init_params,
    logits,
    num_params,
    partition_specs,
    readout,
    same_encoder,
)
from specjax.models.whisper.sizes import Config

__all__ = [
    "Cache",
    "Config",
    "abstract_params",
    "build",
    "encode",
    "init_params",
    "logits",
    "num_params",
    "partition_specs",
    "readout",
    "same_encoder",
]
