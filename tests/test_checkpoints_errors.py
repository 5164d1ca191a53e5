"""What is no whole checkpoint of a known model is refused before a weight is read.

Here for its sizes, arrays or name; `test_checkpoints_files.py` has damaged files.
"""

import os
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding
from safetensors.numpy import save_file

from specjax import checkpoints
from specjax.checkpoints import archive, huggingface
from specjax.checkpoints.archive import Archive, Source
from specjax.models import gpt
from tests.checkpoint_folders import (
    CONFIGS,
    params_of,
    read_nothing,
    reconfigure,
    rewrite,
    written,
)

WEIGHTS = "model.safetensors"


@pytest.fixture
def whole(tmp_path) -> Path:
    return written(tmp_path)


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    read_nothing(monkeypatch)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_checkpoint_does_reach_its_weights(tmp_path, name):
    folder = written(tmp_path, name)
    with pytest.raises(AssertionError, match="a parameter was read"):
        checkpoints.load(folder)


# Sizes.

T5_FIELDS = [
    (dict(model_type="bart"), r"model_type is 'bart'; known are t5, gpt2"),
    (dict(model_type=...), r"model_type is None"),
    (dict(d_kv=...), r"d_kv must be a number of 1 or more: None"),
    (dict(d_model="16"), r"d_model must be a number of 1 or more: '16'"),
    (dict(num_layers=0), r"num_layers must be .*: 0"),
    (dict(num_heads=True), r"num_heads must be .*: True"),
    (dict(feed_forward_proj="gated-silu"), r"feed_forward_proj is 'gated-silu'; known"),
    (dict(dense_act_fn="gelu"), r"dense_act_fn is 'gelu'; known is 'gelu_new'"),
    (dict(is_gated_act=False), r"is_gated_act is False; known is True"),
    (dict(relative_attention_num_buckets=64), r"num_buckets is 64; known is 32"),
    (dict(relative_attention_max_distance=1), r"max_distance is 1; known is 128"),
    (dict(layer_norm_epsilon=1e-5), r"layer_norm_epsilon is 1e-05; known is 1e-06"),
    (dict(tie_encoder_decoder=True), r"tie_encoder_decoder is True"),
    (dict(tie_word_embeddings="no"), r"tie_word_embeddings is 'no'"),
    (dict(eos_token_id=[1, 2]), r"eos_token_id must be one id: \[1, 2\]"),
]
GPT2_FIELDS = [
    (dict(n_positions=...), r"n_positions must be a number of 1 or more: None"),
    (dict(n_head=5), r"n_embd 12 is no multiple of n_head 5"),
    (
        dict(activation_function="gelu"),
        r"activation_function is 'gelu'; known is 'gelu",
    ),
    (dict(layer_norm_epsilon=1e-6), r"layer_norm_epsilon is 1e-06; known is 1e-05"),
    (dict(scale_attn_weights=False), r"scale_attn_weights is False"),
    (dict(scale_attn_by_inverse_layer_idx=True), r"inverse_layer_idx is True"),
    (dict(add_cross_attention=True), r"add_cross_attention is True"),
]


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [("v1_1", *case) for case in T5_FIELDS] + [("gpt2", *case) for case in GPT2_FIELDS],
)
def test_fields_that_the_model_cannot_do(tmp_path, name, fields, says):
    folder = written(tmp_path, name)
    reconfigure(folder, **fields)
    with pytest.raises(ValueError, match=rf"{name}.*{says}"):
        checkpoints.load(folder)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("v1_1", dict(dtype="int8"), r"dtype is one of float16.*got 'int8'"),
        ("v1_1", dict(dtype="float7"), r"dtype is one of float16.*got 'float7'"),
        ("v1_1", dict(pieces=38), r"pieces must be in 1\.\.37.*got 38"),
        ("v1_1", dict(pieces=0), r"pieces must be in 1\.\.37.*got 0"),
        ("gpt2", dict(pieces=30), r"a GPT has no padding of its vocabulary"),
        (
            "v1_1",
            dict(sharding={"a": None}),
            r"shardings are those of another model: a",
        ),
    ],
)
def test_options_out_of_range(tmp_path, name, options, says):
    folder = written(tmp_path, name)
    with pytest.raises(ValueError, match=says):
        checkpoints.load(folder, **options)


# Arrays.


def test_all_mismatches_are_listed_at_once(whole):
    def change(arrays):
        del arrays["encoder.final_layer_norm.weight"]
        arrays["lora.weight"] = np.ones(3, np.float32)
        arrays["shared.weight"] = arrays["shared.weight"][:-1]
        name = "decoder.block.2.layer.2.DenseReluDense.wo.weight"
        arrays[name] = arrays[name].astype(np.int8)
        return arrays

    rewrite(whole, change)
    with pytest.raises(ValueError) as caught:
        checkpoints.load(whole)
    assert str(caught.value).splitlines() == [
        f"{whole} does not hold the model that its sizes describe; missing:",
        "  encoder.final_layer_norm.weight",
        "surplus:",
        "  lora.weight",
        "of another shape:",
        "  shared.weight: (36, 15), not (37, 15)",
        "of an unusable dtype:",
        "  decoder.block.2.layer.2.DenseReluDense.wo.weight: int8, not float16 or"
        " bfloat16 or float32 or float64",
    ]


def test_a_size_that_is_wrong_everywhere_is_a_message_of_some_lines(whole):
    reconfigure(whole, d_model=16)
    with pytest.raises(ValueError, match=r"\n  and \d+ more$") as caught:
        checkpoints.load(whole)
    assert len(str(caught.value).splitlines()) == archive.SHOWN + 2


def test_a_fused_array_is_wholly_used(tmp_path):
    """Three parts of 4 in 15 columns would leave some unread."""
    folder = written(tmp_path, "gpt2")
    name = "transformer.h.0.attn.c_attn.weight"
    rewrite(folder, lambda a: a | {name: np.pad(a[name], ((0, 0), (0, 3)))})
    with pytest.raises(ValueError, match=r"c_attn.weight: \(12, 39\), not \(12, 36\)"):
        checkpoints.load(folder)


@pytest.mark.parametrize(
    ("name", "of"), [("v1_0", "shared.weight"), ("gpt2", "transformer.wte.weight")]
)
def test_a_readout_that_the_sizes_do_not_know(tmp_path, name, of):
    """A model with a readout of its own, that config.json says is tied."""
    folder = written(tmp_path, name)
    rewrite(folder, lambda arrays: arrays | {"lm_head.weight": arrays[of]})
    with pytest.raises(AssertionError, match="a parameter was read"):
        checkpoints.load(folder)  # a true copy
    rewrite(folder, lambda arrays: arrays | {"lm_head.weight": arrays[of] + 1})
    with pytest.raises(ValueError, match=f"lm_head.weight should repeat {of} .*tie_w"):
        checkpoints.load(folder)


def test_a_missing_readout_is_not_made_up(whole):
    rewrite(whole, lambda arrays: {n: a for n, a in arrays.items() if "lm_" not in n})
    with pytest.raises(ValueError, match=r"missing:\n  lm_head.weight$"):
        checkpoints.load(whole)


def test_nothing_is_read_of_what_does_not_fit():
    def refuse(name, index):
        raise AssertionError("read")

    leaf = jax.ShapeDtypeStruct((2, 3), np.dtype("float32"))
    arrays = Archive({"a": leaf, "b": leaf}, refuse, "here")
    with pytest.raises(ValueError, match=r"here .*surplus:\n  b$"):
        archive.fill(arrays, {"x": Source("a")}, {"x": leaf}, "float32")
    with pytest.raises(AssertionError):
        given = {"x": Source("a")}, {"x": leaf}, "float32"
        archive.fill(arrays, *given, SingleDeviceSharding(jax.devices()[0]), ("b*",))


# Names.


def test_a_name_that_is_nothing():
    with pytest.raises(ValueError, match=r"no checkpoint at 'code_10m'.*form org/name"):
        checkpoints.load("code_10m")
    with pytest.raises(ValueError, match=r"no checkpoint at 'runs/a/b'"):
        checkpoints.load("runs/a/b")


def test_an_id_without_the_hubs_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'specjax\[hf\]'"):
        checkpoints.load("org/name")


def test_an_id_that_cannot_be_had(monkeypatch):
    def snapshot_download(name, allow_patterns):
        raise FileNotFoundError("no network\nand more")

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    says = r"org/name is no path, is not in the cache .* fetched from it: no network$"
    with pytest.raises(ValueError, match=says):
        checkpoints.load("org/name")


def test_a_pickle_by_its_name(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=r"is a pickle.* name its folder"):
        checkpoints.load(file)


def test_a_folder_of_several_files(tmp_path):
    for name in ("a", "b"):
        save_file({"x": np.ones(1)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(ValueError, match=r"nor one .*: a.safetensors, b.safetensors"):
        checkpoints.load(tmp_path)


# Writing.


def test_nothing_is_written_over(whole):
    before = (whole / WEIGHTS).read_bytes()
    with pytest.raises(ValueError, match="exists: name a new folder"):
        checkpoints.save(whole, (CONFIGS["gpt2"], params_of(CONFIGS["gpt2"])))
    assert (whole / WEIGHTS).read_bytes() == before


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    calls = []

    def full(arrays, path, metadata):
        calls.append(path)
        if len(calls) == 2:
            raise OSError("no space left on device")
        save_file(arrays, path, metadata)

    monkeypatch.setattr(huggingface, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        written(tmp_path, most=3000)
    assert len(calls) == 2 and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("config", "params", "says"),
    [
        (gpt.Config(13, 8, 16, 1, 2), None, r"learned positions.*specjax\.zoo\.save"),
        (
            CONFIGS["gpt2"]._replace(num_layers=1),
            CONFIGS["gpt2"],
            r"not those of Config.*: layers_1/",
        ),
        (CONFIGS["v1_1"]._replace(mlp_dim=24), CONFIGS["v1_1"], r"mlp/wi_0/kernel"),
    ],
)
def test_what_the_format_cannot_hold(tmp_path, config, params, says):
    with pytest.raises(ValueError, match=says):
        checkpoints.save(tmp_path / "new", (config, params_of(params or config)))
    assert os.listdir(tmp_path) == []


def test_half_of_the_parameters_in_another_dtype(tmp_path):
    params = params_of(CONFIGS["gpt2"])
    params["embedding"] = params["embedding"].astype(jnp.bfloat16)
    with pytest.raises(ValueError, match=r"are bfloat16 and float32: cast them to one"):
        checkpoints.save(tmp_path / "new", (CONFIGS["gpt2"], params))
