"""Folders of faster-whisper are read as the Whispers from which they were written."""

import json
import struct

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from specjax import checkpoints
from specjax.checkpoints import ctranslate2
from specjax.speech import limits
from tests.support import tiny_whisper

CONFIG = tiny_whisper.TARGET
CODES = {dtype.name: code for code, dtype in ctranslate2.DTYPES.items()}
SCALARS = {"num_heads": np.int16(2), "activation": np.int8(3), "pre_norm": np.int8(1)}
SCALARS |= {"scale_embeddings": np.int8(0)}


def text(name: str) -> bytes:
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


def variables(params) -> dict[str, np.ndarray]:
    """Returns the arrays as its converter lays them out, with the matrices of attention
    stacked."""
    flat = {x: np.asarray(v).T for x, v in flatten_dict(params, sep="/").items()}
    named = {}
    for name, source in ctranslate2._names(CONFIG, {}).sources.items():
        values = flat[name] if source.transpose else flat[name].T
        named.setdefault(source.name, []).append(values)
    whole = {x: np.concatenate(parts) for x, parts in named.items()}
    for name in [x for x in whole if x.endswith("/bias") and "attention" in x]:
        rows = len(whole[name.replace("/bias", "/weight")])
        parts = np.split(whole[name], len(whole[name]) // CONFIG.dim)
        if rows > len(whole[name]):  # keys have no bias, where the file has zeros
            at = 0 if rows == 2 * CONFIG.dim else 1
            parts.insert(at, np.zeros(CONFIG.dim, np.float32))
        whole[name] = np.concatenate(parts)
    for stack in ("encoder", "decoder"):
        whole |= {f"{stack}/{name}": value for name, value in SCALARS.items()}
    return whole


def write(folder, arrays, spec="WhisperSpec"):
    data = struct.pack("<I", 6) + text(spec) + struct.pack("<II", 3, len(arrays))
    for name, value in sorted(arrays.items()):
        data += text(name) + struct.pack("<B", value.ndim)
        data += struct.pack(f"<{value.ndim}I", *value.shape)
        code = CODES[value.dtype.name]
        data += struct.pack("<BI", code, value.nbytes) + value.tobytes()
    alias = "decoder/projection/weight", "decoder/embeddings/weight"
    data += struct.pack("<I", 1) + b"".join(map(text, alias))
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def params():
    return tiny_whisper.weights(CONFIG, seed=3)


def quantize_rows(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
    scale = 127 / np.abs(value).max(axis=1)
    return {name: np.int8(np.rint(value * scale[:, None])), f"{name}_scale": scale}


@pytest.mark.parametrize(
    ("kind", "most"), [("float32", 0), ("float16", 4e-3), ("int8", 0.08)]
)
def test_weights_are_those_that_were_written(tmp_path, params, kind, most):
    arrays = variables(params)
    if kind == "int8":
        wide = [x for x in arrays if arrays[x].ndim == 2 and "position" not in x]
        for name in wide:
            arrays |= quantize_rows(name, arrays[name])
    else:
        cast = [x for x in arrays if arrays[x].ndim]
        arrays |= {name: arrays[name].astype(kind) for name in cast}
    read = checkpoints.load(write(tmp_path / "it", arrays))
    assert (read.config, read.stored, read.files[0].name) == (CONFIG, kind, "model.bin")
    for got, wanted in zip(*map(jax.tree.leaves, (read.params, params)), strict=True):
        np.testing.assert_allclose(got, wanted, atol=most)


def test_what_computes_otherwise_is_refused_by_name(tmp_path, params):
    arrays = variables(params)
    for changed, named in (
        ({"decoder/activation": np.int8(0)}, "decoder/activation is 0; known is 3"),
        ({"encoder/pre_norm": np.int8(0)}, "encoder/pre_norm is 0"),
        ({"encoder/num_heads": np.int16(3)}, "must divide 16, and agree"),
        ({"decoder/more": np.zeros((2, 2), np.float32)}, "decoder/more"),
    ):
        with pytest.raises(ValueError, match=named):
            checkpoints.load(write(tmp_path / "it", arrays | changed))
    with pytest.raises(ValueError, match="holds TransformerSpec"):
        checkpoints.load(write(tmp_path / "it", arrays, "TransformerSpec"))


def test_a_file_that_is_cut_short_is_refused_in_one_line(tmp_path, params):
    file = write(tmp_path / "it", variables(params)) / "model.bin"
    whole = file.read_bytes()
    for kept in (30, len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match="cut short") as refused:
            checkpoints.load(file.parent)
        assert "\n" not in str(refused.value)


def test_its_config_says_what_is_never_written(tmp_path):
    stated = {"suppress_ids": [1, 2], "suppress_ids_begin": [3], "lang_ids": [9]}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    assert limits.read(tmp_path) == limits.Limits((1, 2), (3,), 50)
