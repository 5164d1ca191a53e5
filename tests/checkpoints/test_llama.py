"""Reads every field that config.json may have for Llama, Mistral, Qwen and Gemma.

`test_parity_models.py` asks the same of the installed transformers.
"""

import pytest

from specjax.checkpoints import names_llama
from specjax.models.llama import Config, Rotation, Stretch
from tests.support.checkpoint_folders import LLAMA as BASE

SIZES = dict(vocab_size=37, hidden_size=12, intermediate_size=10, num_hidden_layers=3)
SIZES |= dict(num_attention_heads=2, num_key_value_heads=1)


def read(model_type="llama", **fields) -> Config:
    return names_llama.read_config(
        SIZES | {"model_type": model_type} | fields, "float32"
    )


def test_a_families_defaults_are_those_of_its_class():
    assert read() == BASE
    assert read("mistral", num_key_value_heads=2) == BASE._replace(
        key_heads=2, style="mistral", window=4096, local=(0, 1, 2)
    )
    assert read("qwen2") == BASE._replace(style="qwen2", biased=True)
    assert read("qwen3") == BASE._replace(style="qwen3", head_width=128)
    gemma = BASE._replace(style="gemma", head_width=256, tied=True)
    assert read("gemma") == gemma
    caps = dict(score_cap=50.0, logit_cap=30.0, window=4096)
    assert read("gemma2") == gemma._replace(style="gemma2", local=(0, 2), **caps)
    turns = dict(rotation=Rotation(1e6), local_rotation=Rotation(1e4))
    assert read("gemma3_text") == gemma._replace(
        style="gemma3", window=4096, local=(0, 1, 2), **turns
    )


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA3 |= dict(original_max_position_embeddings=8192)
STRETCHED = Rotation(5e5, stretch=Stretch(8.0, 1.0, 4.0, 8192))
STRETCHES = dict(rotation=STRETCHED)
LINEAR = dict(rope_scaling=dict(type="linear", factor=2), max_position_embeddings=9)
LOCAL = dict(use_sliding_window=True, sliding_window=9, max_window_layers=2)
QWEN2 = dict(style="qwen2", biased=True, window=9, local=(2,))
QWEN3 = dict(rope_theta=1e6, head_dim=6, tie_word_embeddings=True)
UNCAPPED = dict(head_dim=6, query_pre_attn_scalar=16, attn_logit_softcapping=None)
UNCAPPED |= dict(layer_types=["full_attention"] * 3, final_logit_softcapping=None)
GEMMA3 = dict(head_dim=6, query_pre_attn_scalar=6, sliding_window=9, rope_theta=7.0)
GEMMA3 |= dict(sliding_window_pattern=3, rope_local_base_freq=5.0)
GEMMA3 |= dict(rope_scaling=dict(rope_type="linear", factor=8.0))
TURNS = dict(rotation=Rotation(7.0, 8.0), local_rotation=Rotation(5.0))
TURNS |= dict(style="gemma3", tied=True, window=9, local=(0, 1))
PUBLISHED = [  # as versions 4 and 5 of transformers write them
    ("llama", dict(rope_theta=5e5, rope_scaling=LLAMA3), STRETCHES),
    ("llama", dict(rope_parameters=LLAMA3 | {"rope_theta": 5e5}), STRETCHES),
    ("llama", LINEAR, dict(rotation=Rotation(slower=2.0), positions=9)),
    ("llama", dict(rope_scaling=None, torch_dtype="float16", head_dim=None), {}),
    ("llama", dict(num_key_value_heads=None), dict(key_heads=2)),
    ("llama", dict(attention_bias=True), dict(biased=True, out_biased=True)),
    ("llama", dict(mlp_bias=True, head_dim=8), dict(mlp_biased=True, head_width=8)),
    ("mistral", dict(sliding_window=None), dict(style="mistral")),
    ("qwen2", LOCAL, QWEN2),
    ("qwen3", QWEN3, dict(style="qwen3", tied=True, rotation=Rotation(1e6))),
    ("gemma", dict(hidden_act="gelu", head_dim=6), dict(style="gemma", tied=True)),
    ("gemma2", UNCAPPED, dict(style="gemma2", tied=True, scale=0.25)),
    ("gemma3_text", GEMMA3, TURNS),
]


@pytest.mark.parametrize(("model_type", "fields", "wanted"), PUBLISHED)
def test_a_config_is_read_as_versions_write_it(model_type, fields, wanted):
    assert read(model_type, **fields) == BASE._replace(**wanted)


# Of public files: what a class does not read, or the values that leave it alone.
UNREAD = [
    ("llama", dict(is_llama_config=True, rope_interleaved=False, pretraining_tp=1)),
    ("llama", {"transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}}),
    ("llama", dict(activation="swiglu", unk_token_id=0, auto_map=None, num_experts=8)),
    ("llama", dict(layer_types=["full_attention"] * 3, sliding_window=None)),
    ("llama", dict(use_sliding_window=False, max_window_layers=28)),
    ("mistral", dict(layer_types=["sliding_attention"] * 3, attention_bias=True)),
    ("qwen2", dict(attention_bias=None, use_mrope=False, sliding_window=131072)),
    ("qwen3", dict(mlp_bias=True, quantization_config={})),
    ("gemma3_text", dict(_sliding_window_pattern=6, max_sequence_length=9)),
]


def test_what_a_class_does_not_read_changes_nothing():
    for model_type, fields in UNREAD:
        assert read(model_type, **fields) == read(model_type)
    # Where no field says so, stretched positions begin at what was trained.
    told = {k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"}
    config = read(rope_scaling=told | {"mscale": 2}, max_position_embeddings=64)
    assert config.rotation.stretch == STRETCHED.stretch._replace(original=64)


UNNAMED = r"says type 'linear' and no rope_type, .*: call it rope_type, or take"
CANNOT = {  # of which class: what it says, and what is said of that
    "llama": [
        (dict(auto_map={"AutoModel": "a.B"}), r"auto_map is .*, which may change"),
        (dict(sliding_window=9), r"sliding_window is 9, which may change what"),
        (dict(layer_types=["full_attention", "chunked"]), r"layer_types is \["),
        (dict(rope_interleaved=True), r"rope_interleaved is True; known is"),
        (dict(quantization={"bits": 4}), r"weights are quantised: name the check"),
        (dict(hidden_act="gelu"), r"hidden_act is 'gelu'; known is .*'silu'"),
        (dict(partial_rotary_factor=0.5), r"partial_rotary_factor is 0.5"),
        (dict(architectures=["LlamaForOther"]), r"'LlamaForOther'.*; known are Ll"),
        (dict(architectures="LlamaModel"), r"architectures is 'LlamaModel'"),
        (dict(rope_scaling=dict(type="yarn", factor=4)), r"rope_type is 'yarn'; k"),
        (dict(rope_scaling=dict(type="linear")), r"factor must be a number above 0"),
        (dict(rope_scaling=LLAMA3 | {"low_freq_factor": 4}), r"must be below high"),
        (dict(rope_scaling=[]), r"rope_scaling must be an object: \[\]"),
        (dict(rms_norm_eps="0"), r"rms_norm_eps must be a number above 0: '0'"),
        (dict(tie_word_embeddings=1), r"tie_word_embeddings must be true or false"),
        (dict(num_key_value_heads=3), r"2 is not a multiple of num_key_value_heads"),
        (dict(hidden_size=13), r"hidden_size 13 is not a multiple of num_attention"),
        (dict(head_dim=5), r"heads are of even width, not 5"),
        (dict(vocab_size=None), r"vocab_size must be a whole number"),
    ],
    "mistral": [(dict(layer_types=["full_attention"] * 3), r"layer_types is \[")],
    "qwen2": [
        (dict(layer_types=["full_attention"]), r"layer_types must name 3 layers"),
        (dict(layer_types=["chunked"] * 3), r"'chunked'; known are full_attention"),
        (dict(layer_types=["sliding_attention"] * 3), r"sliding_window must be a"),
    ],
    "gemma": [(dict(use_bidirectional_attention=True), r"use_bidirectional_attention")],
    "gemma2": [
        (dict(hidden_activation="gelu"), r"hidden_activation is 'gelu'; known"),
        (dict(attn_logit_softcapping=-1.0), r"softcapping must be a number"),
    ],
    "gemma3_text": [
        (dict(attn_logit_softcapping=1.0), r"softcapping is 1.0; known"),
        (dict(rope_scaling={"type": "linear", "factor": 8.0}, rope_theta=1e6), UNNAMED),
        (dict(rope_parameters=LLAMA3), r"rope_parameters has rope_type; kn"),
    ],
}
REFUSED = [(kind, *case) for kind, cases in CANNOT.items() for case in cases]


@pytest.mark.parametrize(("model_type", "fields", "words"), REFUSED)
def test_what_changes_the_mathematics_is_refused_by_its_name(model_type, fields, words):
    with pytest.raises(ValueError, match=words):
        read(model_type, **fields)


def test_the_text_of_a_larger_model_is_read_and_its_ends_from_around_it():
    text = dict(head_dim=6, hidden_size=12, num_hidden_layers=2, sliding_window=1024)
    text |= dict(rope_scaling={"rope_type": "linear", "factor": 8.0})
    around = dict(model_type="gemma3", text_config=text, vision_config={"a": 1})
    around |= dict(architectures=["Gemma3ForConditionalGeneration"])
    around |= dict(eos_token_id=[1, 106], boi_token_index=5, torch_dtype="bfloat16")
    config = names_llama.read_config(around, "float32")
    sizes = config.vocab, config.dim, config.mlp_dim, config.num_heads, config.key_heads
    assert sizes == (262_208, 12, 9216, 8, 4)
    assert config.rotation == Rotation(1e6, 8.0) and config.window == 1024
    assert names_llama.ends(around, config) == (2, (1, 106))
    for fields, words in (
        (dict(text_config=None), "text_config must be an object: None"),
        (dict(quantization_config={"a": 1}), "the weights are quantised"),
        (dict(architectures=["Gemma3ForAudio"]), "'Gemma3ForAudio'"),
        (dict(text_config=text | {"is_causal": "no"}), "is_causal is 'no'"),
    ):
        with pytest.raises(ValueError, match=words):
            names_llama.read_config(around | fields, "float32")
