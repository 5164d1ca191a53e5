"""Folders of Hugging Face are read without transformers.

What is written comes back, and every form of a file says the same. The meaning of the
names is checked by `test_parity_models.py`.
"""

import functools
import json
import os

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import save_file

from specjax import checkpoints
from specjax.checkpoints import archive, huggingface, names_t5
from specjax.models import gpt
from tests.support import checkpoint_folders as folders
from tests.support.checkpoint_folders import (
    CONFIGS,
    GPT2,
    LLAMA,
    T5,
    assert_same,
    random_params,
    write_folder,
)

WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("most", [folders.NEAR_4GB, 3000], ids=["whole", "shards"])
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_written_comes_back(tmp_path, name, most):
    folder, config = write_folder(tmp_path, name, most), CONFIGS[name]
    checkpoint = checkpoints.load(folder)
    assert checkpoint.config == config and checkpoint.name == name
    assert checkpoint.files[0] == folder / "config.json"
    assert (len(checkpoint.files) > 2) == (most == 3000)
    assert_same(checkpoint.params, random_params(config))
    assert not list(tmp_path.glob(".*")), "a temporary folder was left"


def test_the_ends_of_texts_come_back(tmp_path):
    def load_special_ids(folder):
        checkpoint = checkpoints.load(folder)
        return checkpoint.start, checkpoint.ends

    t5 = write_folder(tmp_path)
    assert load_special_ids(t5) == (0, (1,))
    fields = '{"eos_token_id": [6, 5], "decoder_start_token_id": 3, "top_k": 9}'
    (t5 / "generation_config.json").write_text(fields)
    assert load_special_ids(t5) == (3, (6, 5))
    gpt2 = write_folder(tmp_path, "gpt2")
    folders.reconfigure(gpt2, bos_token_id=50256, eos_token_id=[30, 31, 4, 30])  # of 31
    assert load_special_ids(gpt2) == (None, (30, 4))
    checkpoints.save(tmp_path / "several", checkpoints.load(gpt2)._replace(start=5))
    assert load_special_ids(tmp_path / "several") == (5, (30, 4))
    folders.reconfigure(gpt2, eos_token_id=None)
    assert load_special_ids(gpt2)[1] == ()
    llama = write_folder(tmp_path, "llama")
    assert load_special_ids(llama)[1] == ()
    folders.reconfigure(llama, bos_token_id=3, eos_token_id=...)
    assert load_special_ids(llama) == (3, (2,))  # its class's own end


def test_a_dtype_is_that_of_weights_and_of_activations(tmp_path):
    checkpoint = checkpoints.load(write_folder(tmp_path), "bfloat16")
    assert checkpoint.config == T5._replace(dtype="bfloat16")
    half = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), random_params(T5))
    types = {str(leaf.dtype) for leaf in jax.tree.leaves(checkpoint.params)}
    assert types == {"bfloat16"}
    assert_same(checkpoint.params, half)
    checkpoints.save(tmp_path / "half", checkpoint)  # half the bytes, as they are
    size = (tmp_path / "half" / WEIGHTS).stat().st_size
    assert size < 0.6 * (tmp_path / "v1_1" / WEIGHTS).stat().st_size
    assert_same(checkpoints.load(tmp_path / "half").params, half)


# What config.json says.


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        (dict(num_decoder_layers=...), dict(decoder_layers=1)),
        (dict(feed_forward_proj=..., tie_word_embeddings=...), dict(gated=False)),
        (dict(is_gated_act=True, dense_act_fn="gelu_new"), {}),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=False), dict(tied=False)),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=True), {}),
        (dict(tie_word_embeddings=...), {}),
        (dict(feed_forward_proj="gated-silu"), dict(gate="silu")),
        (dict(model_type="mt5", feed_forward_proj=..., tie_word_embeddings=True), {}),
        (dict(model_type="umt5", head_dim=5), dict(own_bias=True)),
    ],
)
def test_fields_that_are_missing_or_new(tmp_path, fields, change):
    folder = write_folder(tmp_path)
    folders.reconfigure(folder, **fields)
    told = json.loads((folder / "config.json").read_text())
    read = names_t5.read_config(told, "float32")
    tied = "scale_decoder_outputs" not in fields and "tie_word_embeddings" in fields
    tied = fields.get("scale_decoder_outputs", tied) and "model_type" not in fields
    assert read == T5._replace(tied=tied)._replace(**change)


def test_published_vocabularies_end_before_their_padding():
    for vocab, pieces, read in (
        (32128, None, 32100),
        (32128, 32128, None),
        (32128, 32000, 32000),
        (250112, None, None),
    ):
        config = T5._replace(vocab=vocab)
        assert names_t5.with_pieces(config, pieces).pieces == read


# Forms of the same weights.


def only_copy_is(name: str):
    return lambda arrays: arrays | {name: arrays.pop("shared.weight")}


def with_copies_and_an_old_bias(arrays):
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    copies = dict.fromkeys(names, arrays["shared.weight"])
    return arrays | copies | {names_t5.UNREAD[0]: np.zeros((32, 3), np.float32)}


def publish_gpt2(arrays):
    """Returns the arrays of GPT-2 without a prefix, and with masks and a copy of its
    embedding."""
    bare = {name.removeprefix("transformer."): a for name, a in arrays.items()}
    masks = {f"h.{i}.attn.bias": np.ones((1, 1, 16, 16), bool) for i in (0, 1)}
    return bare | masks | {"lm_head.weight": bare["wte.weight"]}


def prefix_names(prefix: str, readout: str = "lm_head.weight"):
    """Returns a decoder's arrays under the names that they have within a larger
    model."""

    def change(arrays):
        last = {readout: arrays.pop("lm_head.weight")}
        more = {"vision_tower.a": np.ones(3)} if prefix else {}
        bare = {prefix + n.removeprefix("model."): a for n, a in arrays.items()}
        return bare | last | more

    return change


def to_float16(arrays):
    return {name: leaf.astype(np.float16) for name, leaf in arrays.items()}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("v1_0", only_copy_is("lm_head.weight")),
        ("v1_0", only_copy_is("decoder.embed_tokens.weight")),
        ("v1_1", only_copy_is("encoder.embed_tokens.weight")),
        ("v1_1", with_copies_and_an_old_bias),
        ("v1_1", to_float16),
        ("gpt2", publish_gpt2),
        ("llama", prefix_names("")),
        ("llama", prefix_names("model.language_model.")),
        (
            "llama",
            prefix_names("language_model.model.", "language_model.lm_head.weight"),
        ),
    ],
)
def test_copies_and_relics_are_known(tmp_path, name, change):
    folder = write_folder(tmp_path, name)
    folders.rewrite(folder, change)
    params, atol = (
        checkpoints.load(folder).params,
        0 if change is not to_float16 else 1e-2,
    )
    close = functools.partial(np.testing.assert_allclose, atol=atol)
    jax.tree.map(close, params, random_params(CONFIGS[name]))


@pytest.mark.parametrize(
    ("name", "of", "untied"),
    [
        ("v1_0", "shared.weight", dict(tied=False, scaled=True)),
        ("gpt2", "transformer.wte.weight", dict(tied=False)),
        ("llama_tied", "model.embed_tokens.weight", dict(tied=False)),
    ],
)
def test_a_readout_that_is_no_copy_is_used(tmp_path, monkeypatch, name, of, untied):
    """transformers 5 does so too, although config.json says that the readout is the
    embedding."""
    monkeypatch.setattr(archive, "COMPARED", 7)  # a row at a time
    folder, config = write_folder(tmp_path, name), CONFIGS[name]
    folders.rewrite(folder, lambda arrays: arrays | {"lm_head.weight": arrays[of]})
    assert checkpoints.load(folder).config == config
    folders.rewrite(
        folder, lambda arrays: arrays | {"lm_head.weight": folders.nudge(arrays[of])}
    )
    checkpoint = checkpoints.load(folder)
    assert checkpoint.config == config._replace(**untied)
    flat = flatten_dict(checkpoint.params, sep="/")
    t5 = "decoder/logits_dense/kernel", "token_embedder/embedding"
    ours, table = t5 if name == "v1_0" else ("readout", "embedding")
    readout, table = flat.pop(ours), flat[table]
    assert_same(unflatten_dict(flat, sep="/"), random_params(config))
    assert_same(readout, folders.nudge(np.asarray(table)).T)


def test_v1_1_without_a_readout_of_its_own_reads_out_by_its_embedding(tmp_path):
    folder = write_folder(tmp_path, "v1_1")
    folders.rewrite(
        folder, lambda arrays: {n: a for n, a in arrays.items() if "lm_" not in n}
    )
    folders.reconfigure(folder, tie_word_embeddings=True, scale_decoder_outputs=False)
    checkpoint = checkpoints.load(folder)
    table = checkpoint.params["token_embedder"]["embedding"]
    assert_same(checkpoint.params["decoder"]["logits_dense"]["kernel"], table.T)


# What cannot be written.


def test_an_interrupted_write_leaves_nothing_and_nothing_is_written_over(
    tmp_path, monkeypatch
):
    calls = []

    def full(arrays, path, metadata):
        calls.append(path)
        if len(calls) == 2:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save_file(arrays, path, metadata)

    monkeypatch.setattr(huggingface, "save_file", full)
    with pytest.raises(OSError, match=r"v1_1 cannot be written \(No space.*\): free"):
        write_folder(tmp_path, most=3000)
    assert len(calls) == 2 and os.listdir(tmp_path) == []
    monkeypatch.undo()
    whole = write_folder(tmp_path)
    before = (whole / WEIGHTS).read_bytes()
    with pytest.raises(ValueError, match="exists: name a new folder"):
        checkpoints.save(whole, (GPT2, random_params(GPT2)))
    assert (whole / WEIGHTS).read_bytes() == before


UNSAID = [
    (LLAMA._replace(score_cap=2.0), "llama's format .* cannot say score_cap"),
    (LLAMA._replace(window=5, local=(1,)), "cannot say window, local"),
    (CONFIGS["mistral"]._replace(local=(1,)), "cannot say local"),
    (LLAMA._replace(biased=True), "cannot say out_biased"),
    (CONFIGS["gemma2"]._replace(scale=0.4), "cannot say scale"),
]


def test_what_the_format_cannot_hold(tmp_path):
    bare, mixed = gpt.Config(13, 8, 16, 1, 2), random_params(GPT2)
    mixed["embedding"] = mixed["embedding"].astype(jnp.bfloat16)

    def box(leaf):
        return nn.LogicallyPartitioned(leaf, ("axis",) * leaf.ndim)

    for config, params, says in (
        (bare, random_params(bare), r"learned positions.*specjax\.zoo\.save"),
        (
            GPT2._replace(num_layers=1),
            random_params(GPT2),
            r"not those of .*: layers_1/",
        ),
        (T5._replace(mlp_dim=24), random_params(T5), r"mlp/wi_0/kernel"),
        (GPT2, mixed, r"are bfloat16 and float32: cast them to one"),
        (GPT2, jax.tree.map(box, random_params(GPT2)), r"unbox"),
        *((config, random_params(config), says) for config, says in UNSAID),
    ):
        with pytest.raises(ValueError, match=says):
            checkpoints.save(tmp_path / "new", (config, params))
    assert os.listdir(tmp_path) == []
