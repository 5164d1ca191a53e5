"""Whisper in CTranslate2's format, as the folders of faster-whisper have it: model.bin.

Queries, keys and values of one layer lie in one matrix; a matrix in eight bits has a
scale for each output, by which it is divided as it is read.
"""

import math
import reprlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import jax
import numpy as np

from specjax.checkpoints.archive import (
    Archive,
    Index,
    Names,
    Part,
    Row,
    Source,
    count_layers,
    sources,
)
from specjax.checkpoints.names_whisper import layer_sources
from specjax.models.whisper import Config

FILE, SPEC, VERSIONS = "model.bin", "WhisperSpec", (5, 6)
DTYPES = dict(enumerate(map(np.dtype, ("<f4", "i1", "<i2", "<i4", "<f2"))))
DTYPES[5] = np.dtype("bfloat16")
SCALE = "_scale"
GELU = 3  # of its activations
STACKS = {
    "encoder_layers": r"encoder/layer_(\d+)/",
    "decoder_layers": r"decoder/layer_(\d+)/",
}
TABLE, READOUT = "decoder/embeddings/weight", "decoder/projection/weight"
# The settings that can change what is computed, with the only value that is read.
SETTINGS = {
    "activation": GELU,
    "alibi": 0,
    "pre_norm": 1,
    "scale_embeddings": 0,
    "start_from_zero_embedding": 0,
    "sliding_window": 0,
    "final_logit_softcapping": 0,
}
# The values that CTranslate2 takes where a decoder's are missing
# (src/layers/transformer.cc): a ReLU, and embeddings that are scaled. Its encoder of
# Whisper always computes as `SETTINGS`.
MISSING = SETTINGS | {"activation": 0, "scale_embeddings": 1}
HEADS = 8  # where neither stack says how many


NORM = ("scale", "/gamma"), ("bias", "/beta")


def _product(part: Part | None = None, bias: bool = True) -> tuple:
    kernel = "kernel", "/weight", True, part
    return (kernel, ("bias", "/bias", False, part)) if bias else (kernel,)


def _attention(ours: str, theirs: str, *linears: str) -> list[Row]:
    """Returns the rows of an attention layer. linears: which of our products each of
    theirs holds."""
    rows: list[Row] = [(f"{ours}_norm", f"{theirs}/layer_norm", NORM)]
    for i, names in enumerate(map(str.split, linears)):
        for j, name in enumerate(names):
            part = Part(0, j, len(names)) if len(names) > 1 else None
            kind = _product(part, bias=name != "key")
            rows.append((f"{ours}/{name}", f"{theirs}/linear_{i}", kind))
    return rows


WHOLE = [
    ("encoder/conv_0", "encoder/conv1", _product()),
    ("encoder/conv_1", "encoder/conv2", _product()),
    ("encoder/norm", "encoder/layer_norm", NORM),
    ("decoder/norm", "decoder/layer_norm", NORM),
]
ENCODES = [
    *_attention("attention", "self_attention", "query key value", "out"),
    ("mlp_norm", "ffn/layer_norm", NORM),
    ("mlp/in", "ffn/linear_0", _product()),
    ("mlp/out", "ffn/linear_1", _product()),
]
CROSSES = _attention("cross_attention", "attention", "query", "key value", "out")
LAYERS = {"encoder": ENCODES, "decoder": [*CROSSES, *ENCODES]}


class Variable(NamedTuple):
    """The place of one array: bytes from `at` of the file on."""

    shape: tuple[int, ...]
    dtype: np.dtype
    at: int


def find(path: Path) -> Path | None:
    """Returns the file of a path that is one, or is a folder with one; None for any
    other path."""
    file = path / FILE if path.is_dir() else path
    if file.suffix != ".bin" or not file.is_file():
        return None
    with open(file, "rb") as opened:
        try:
            version, name = _number(opened, "<I"), _text(opened)
        except (ValueError, UnicodeDecodeError):
            return None
    return file if 1 <= version < 100 and name.endswith("Spec") else None


def open_file(file: Path, dtype: str) -> tuple[Config, Archive, Names]:
    """Returns the sizes, the weights and their names.

    Raises ValueError for a file that is cut short, of another model, or of a Whisper
    that computes something else.
    """
    variables = _variables(file)
    held = np.memmap(file, np.uint8, "r")

    def raw(name: str) -> np.ndarray:
        shape, stored, at = variables[name]
        size = math.prod(shape) * stored.itemsize
        return held[at : at + size].view(stored).reshape(shape)

    _check_settings(file, variables, raw)
    config = _config(file, variables, raw=raw, dtype=dtype)
    arrays = {
        name: jax.ShapeDtypeStruct(
            x.shape, np.float32 if x.dtype.kind == "i" else x.dtype
        )
        for name, x in variables.items()
        if x.shape and not name.endswith(SCALE)
    }

    def read(name: str, index: Index) -> np.ndarray:
        values = raw(name)[index]
        if (scale := name + SCALE) not in variables:
            return np.asarray(values)
        by = raw(scale).astype(np.float32)
        by = by.reshape(by.shape + (1,) * (values.ndim - by.ndim))
        return values.astype(np.float32) / np.broadcast_to(by, raw(name).shape)[index]

    return config, Archive(arrays, read, str(file)), _names(config, variables)


def _variables(file: Path) -> dict[str, Variable]:
    """Returns the arrays of a file, by name; an alias is a name too."""
    size = file.stat().st_size
    variables: dict[str, Variable] = {}
    with open(file, "rb") as opened:
        try:
            version, spec = _number(opened, "<I"), _text(opened)
            if spec != SPEC or version not in VERSIONS:
                raise ValueError(
                    f"{file} holds {spec} in version {version} of CTranslate2's format;"
                    f" known is {SPEC} in {' and '.join(map(str, VERSIONS))}: name a"
                    " checkpoint of another format"
                )
            _number(opened, "<I")  # the specification's revision
            for _ in range(_number(opened, "<I")):
                name, rank = _text(opened), _number(opened, "<B")
                shape = tuple(_number(opened, "<I") for _ in range(rank))
                stored, length = _number(opened, "<B"), _number(opened, "<I")
                at = opened.seek(length, 1) - length
                known = DTYPES.get(stored)
                if known is None or math.prod(shape) * known.itemsize != length:
                    raise _Cut
                if at + length > size:
                    raise _Cut
                variables[name] = Variable(shape, known, at)
            for _ in range(_number(opened, "<I")):
                alias, name = _text(opened), _text(opened)
                for end in ("", SCALE):
                    if name + end in variables:
                        variables[alias + end] = variables[name + end]
        except (_Cut, KeyError, UnicodeDecodeError):
            raise ValueError(
                f"{file} is cut short or damaged: copy or download it again"
            ) from None
    return variables


class _Cut(ValueError):
    """A file that ends before what it announces."""


def _number(opened: BinaryIO, form: str) -> int:
    data = opened.read(struct.calcsize(form))
    if len(data) < struct.calcsize(form):
        raise _Cut
    return struct.unpack(form, data)[0]


def _text(opened: BinaryIO) -> str:
    length = _number(opened, "<H")
    data = opened.read(length)
    if len(data) < length or not data.endswith(b"\0"):
        raise _Cut
    return data[:-1].decode()


def _check_settings(
    file: Path, variables: dict[str, Variable], raw: Callable[[str], np.ndarray]
) -> None:
    for stack, missing in (("encoder", SETTINGS), ("decoder", MISSING)):
        for name, known in SETTINGS.items():
            key = f"{stack}/{name}"
            value = float(raw(key)) if key in variables else missing[name]
            if value != known:
                lacks = "" if key in variables else "missing, which is "
                raise ValueError(
                    f"{file}: {key} is {lacks}{value:g}; known is {known}: name a"
                    " checkpoint of another format"
                )


def _config(
    file: Path,
    variables: dict[str, Variable],
    *,
    raw: Callable[[str], np.ndarray],
    dtype: str,
) -> Config:
    def shape(name: str, rank: int) -> tuple[int, ...]:
        held = variables.get(name)
        if held is None or len(held.shape) != rank:
            has = "missing" if held is None else reprlib.repr(held.shape)
            raise ValueError(f"{file}: {name} is {has}: copy or download it again")
        return held.shape

    heads = [f"{stack}/num_heads" for stack in ("encoder", "decoder")]
    counts = {int(raw(name)) if name in variables else HEADS for name in heads}
    vocab, dim = shape(TABLE, 2)
    if len(counts) != 1 or min(counts) < 1 or dim % min(counts):
        raise ValueError(f"{file}: {' and '.join(heads)} must divide {dim}, and agree")
    layers = {
        name: count_layers(variables, pattern) for name, pattern in STACKS.items()
    }
    return Config(
        vocab=vocab,
        dim=dim,
        encoder_layers=layers["encoder_layers"],
        decoder_layers=layers["decoder_layers"],
        num_heads=counts.pop(),
        bands=shape("encoder/conv1/weight", 3)[1],
        positions=shape("decoder/position_encodings/encodings", 2)[0],
        frames=2 * shape("encoder/position_encodings/encodings", 2)[0],
        mlp_dim=shape("decoder/layer_0/ffn/linear_0/weight", 2)[0],
        dtype=dtype,
    )


def _names(config: Config, variables: dict[str, Variable]) -> Names:
    """Returns where each parameter lies in the file."""
    found = {
        "encoder/positions": Source("encoder/position_encodings/encodings"),
        "decoder/embedding": Source(TABLE),
        "decoder/positions": Source("decoder/position_encodings/encodings"),
        **sources(WHOLE),
        **layer_sources(config, LAYERS, "{}/layer_{}/"),
    }
    return Names(found, {READOUT: TABLE} if READOUT in variables else {})


def quantization(file: Path) -> str:
    """Returns the type that matrices are stored in: "float16", or "int8"."""
    kinds = {str(x.dtype) for x in _variables(file).values() if len(x.shape) > 1}
    return "int8" if "int8" in kinds else ", ".join(sorted(kinds))
