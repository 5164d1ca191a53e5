"""GGUF files of small random decoders and of small tokenizers, written with the gguf
library.

What llama.cpp's converter does to weights is done here: the rows of Llama's queries and
keys change places, and the scales of Gemma's norms are raised by 1.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from flax.traverse_util import flatten_dict

from specjax.checkpoints import gguf as reading
from specjax.checkpoints import names_llama
from specjax.models import llama

ARCHITECTURES = {kind.removesuffix("_text"): at for at, kind in reading.KINDS.items()}


def write(
    path: Path,
    config: llama.Config,
    params: Any,
    *,
    more: dict[str, Any] | None = None,
    quantized: gguf.GGMLQuantizationType | None = None,
    tokenizer: dict[str, Any] | None = None,
    vectors: bool = False,
) -> Path:
    """Writes a model as a GGUF file.

    more: metadata beside, or in place of, the config's. quantized: how matrices are
    stored, and with `vectors` vectors too, None as float32. tokenizer: keys behind
    `tokenizer.`.
    """
    kind = ARCHITECTURES[config.style]
    writer = gguf.GGUFWriter(path, kind)
    rotation, of_all = config.rotation, config.rotation.slower != 1
    stated = {
        f"{kind}.block_count": config.num_layers,
        f"{kind}.context_length": config.positions or 64,
        f"{kind}.embedding_length": config.dim,
        f"{kind}.feed_forward_length": config.mlp_dim,
        f"{kind}.attention.head_count": config.num_heads,
        f"{kind}.attention.head_count_kv": config.key_heads,
        f"{kind}.attention.key_length": config.head_width,
        f"{kind}.attention.value_length": config.head_width,
        f"{kind}.attention.layer_norm_rms_epsilon": config.eps,
        f"{kind}.attention.sliding_window": config.window,
        f"{kind}.attn_logit_softcapping": config.score_cap,
        f"{kind}.final_logit_softcapping": config.logit_cap,
        f"{kind}.rope.freq_base": rotation.base,
        f"{kind}.rope.scaling.type": "linear" if of_all else None,
        f"{kind}.rope.scaling.factor": rotation.slower if of_all else None,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 3,
        **{f"tokenizer.{name}": value for name, value in (tokenizer or {}).items()},
    }
    for name, value in (stated | (more or {})).items():
        _add(writer, name, value)
    layer = reading.LAYER | (reading.AFTER if llama.STYLES[config.style].after else {})
    called = {theirs: ours for ours, theirs in reading.WHOLE.items()}
    for i in range(config.num_layers):
        for ours, theirs in layer.items():
            for part in ("weight", "bias"):
                to = f"model.layers.{i}.{theirs}.{part}"
                called[to] = f"blk.{i}.{ours}.{part}"
    flat = flatten_dict(params, sep="/")
    for ours, source in names_llama.names(config, {}).sources.items():
        values = np.asarray(flat[ours], np.float32)
        values = values.T if source.transpose else values
        values = _shift_norm(source.name, values, config=config, kind=kind)
        plain = quantized is None or (values.ndim < 2 and not vectors)
        stored = values if plain else _quantize(values, quantized)
        writer.add_tensor(
            called[source.name],
            np.ascontiguousarray(stored),
            raw_dtype=None if plain else quantized,
        )
    if rotation.stretch is not None:
        writer.add_tensor(reading.FREQUENCIES, _rope_divisors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _quantize(values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    numbers = {"F64": np.float64, "I16": np.int16}
    if kind.name in numbers:
        return values.astype(numbers[kind.name])
    return gguf.quants.quantize(values, kind)


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
    adders |= {float: writer.add_float32, list: writer.add_array}
    if value is not None:
        adders[type(value)](name, value)


def _shift_norm(name: str, values, *, config: llama.Config, kind: str) -> np.ndarray:
    heads = {"q_proj": config.num_heads, "k_proj": config.key_heads}
    part = name.split(".")[-2]
    if kind == "llama" and part in heads:
        rows = values.reshape(heads[part], 2, -1, *values.shape[1:])
        return rows.swapaxes(1, 2).reshape(values.shape)
    return values + 1 if kind.startswith("gemma") and "norm" in name else values


def _rope_divisors(config: llama.Config) -> np.ndarray:
    """Returns the divisor of each frequency, with the three bands of Llama 3's
    paper."""
    factor, low, high, positions = config.rotation.stretch
    divisors = []
    for i in range(0, config.head_width, 2):
        length = 2 * np.pi * config.rotation.base ** (i / config.head_width)
        if length < positions / high:
            divisors.append(1.0)
        elif length > positions / low:
            divisors.append(factor)
        else:
            smooth = (positions / length - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.float32(divisors)
