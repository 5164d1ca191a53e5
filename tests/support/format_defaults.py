"""Defaults that readers of other formats use where a file has no key.

Beside each key stand what the format's own reader takes, and another value, which must
make a difference where the key matters: else the line would prove nothing. The sources
are those readers at the versions named here; a value of `NOTHING` is what no key says.
"""

from typing import Any, NamedTuple

LLAMA_CPP = "llama.cpp, as llama-cpp-python 0.3.36 has it"
TRANSFORMERS = "transformers 5.24.0"
CTRANSLATE2 = "CTranslate2 4.8.1"


class Default(NamedTuple):
    """A key, and the value that replaces it when it is missing.

    value: the default of the format's own reader. other: another that matters. at:
    where its source says so.
    """

    key: str
    value: Any
    other: Any
    at: str


# The header of a GGUF file, by architecture: keys behind it. Of the sizes none has a
# default there or here.
HPARAMS = "src/llama-model.cpp, load_hparams"
EVERY = (
    Default("attention.head_count_kv", 4, 2, HPARAMS),
    Default("attention.key_length", 8, 4, HPARAMS),
    Default("attention.value_length", 8, 4, HPARAMS),
    Default("attention.causal", True, False, "src/llama-hparams.h"),
    Default("rope.dimension_count", 8, 4, HPARAMS),
    Default("rope.freq_base", 10_000.0, 500.0, HPARAMS),
    Default("rope.scaling.type", "linear", "none", HPARAMS),
    Default("rope.scale_linear", 0.0, 4.0, HPARAMS),
    Default("expert_count", 0, 8, "src/llama-hparams.h"),
)
OF_LAYERS = Default("rope.scaling.factor", 0.0, 4.0, HPARAMS)
GEMMA2 = "src/models/gemma2.cpp"
GEMMA3 = "src/models/gemma3.cpp"
GGUF = {kind: EVERY for kind in ("llama", "qwen2", "qwen3", "gemma")} | {
    "gemma2": (
        *EVERY,
        Default("attention.sliding_window", 4096, 8, GEMMA2),
        Default("attention.sliding_window_pattern", 2, 3, GEMMA2),
        Default("attn_logit_softcapping", 50.0, 20.0, "src/llama-hparams.h"),
        Default("final_logit_softcapping", 30.0, 20.0, "src/llama-hparams.h"),
        Default("rope.freq_base_swa", 10_000.0, 500.0, GEMMA2),
    ),
    "gemma3": (
        *EVERY,
        Default("attention.sliding_window", 0, 8, GEMMA3),
        Default("attention.sliding_window_pattern", 6, 2, GEMMA3),
        Default("final_logit_softcapping", 0.0, 20.0, GEMMA3),
        Default("rope.freq_base_swa", 10_000.0, 500.0, "src/llama-hparams.h"),
    ),
}
# Its tokenizer, by `tokenizer.ggml.model` and `.pre`: keys behind `tokenizer.ggml.`.
VOCAB = "src/llama-vocab.cpp, llama_vocab::impl::load"
ENDS_NOT = Default("add_eos_token", False, True, VOCAB)
GGUF_TOKENIZER = {
    "gpt2 llama-bpe": (
        Default("add_bos_token", True, False, VOCAB),
        Default("bos_token_id", 11, 3, VOCAB),
        Default("eos_token_id", 11, 3, VOCAB),
        Default("token_type", [1] * 300, [1] * 299 + [3], VOCAB),
        ENDS_NOT,
    ),
    "gpt2 qwen2": (Default("add_bos_token", False, True, VOCAB), ENDS_NOT),
    "gpt2 default": (
        Default("add_bos_token", False, True, VOCAB),
        Default("pre", "default", "gpt-2", VOCAB),
    ),
    "llama default": (
        Default("add_bos_token", True, False, VOCAB),
        Default("add_space_prefix", True, False, VOCAB),
        Default("bos_token_id", 1, 3, VOCAB),
        Default("eos_token_id", 2, 3, VOCAB),
        Default("unknown_token_id", 0, 3, VOCAB),
        Default("scores", [0.0] * 300, [1.0 * i for i in range(300)], VOCAB),
        Default("token_type", [1] * 300, [1] * 299 + [3], VOCAB),
        ENDS_NOT,
    ),
}

# config.json of Hugging Face, by model_type.
NOTHING = None


def class_defaults(
    name: str, values: dict[str, tuple[Any, Any]]
) -> tuple[Default, ...]:
    at = f"models/{name}/configuration_{name}.py"
    return tuple(Default(key, *pair, at) for key, pair in values.items())


LINEAR = {"rope_type": "linear", "factor": 2.0}
# As many heads of keys as of queries; a number of positions, which bounds nothing there
# but Llama 3's bands, where we refuse to be without; rotary positions of base 10,000.
LLAMA = {
    "num_key_value_heads": (NOTHING, 2),
    "head_dim": (NOTHING, 16),
    "max_position_embeddings": (NOTHING, 64),
    "rms_norm_eps": (1e-6, 1e-5),
    "tie_word_embeddings": (False, True),
    "rope_parameters": (NOTHING, LINEAR | {"rope_theta": 1e4}),
    "rope_scaling": (NOTHING, LINEAR),
    "rope_theta": (10_000.0, 500.0),
    "bos_token_id": (1, 3),
    "eos_token_id": (2, 3),
    "hidden_act": ("silu", "relu"),
    "partial_rotary_factor": (1.0, 0.5),
    "rope_interleaved": (False, True),
}
LOCAL = {"sliding_window": (4096, 8), "layer_types": (NOTHING, ["full_attention"])}
QWEN = LLAMA | {"num_key_value_heads": (32, 2), "use_sliding_window": (False, True)}
QWEN |= LOCAL
QWEN |= {"bos_token_id": (NOTHING, 3), "eos_token_id": (NOTHING, 3)}
QWEN |= {"max_window_layers": (28, 0)}
GEMMA = LLAMA | {"num_key_value_heads": (16, 2), "head_dim": (256, 16)}
GEMMA |= {"tie_word_embeddings": (True, False), "attention_bias": (False, True)}
GEMMA |= {"bos_token_id": (2, 3), "eos_token_id": (1, 3)}
GEMMA |= {"hidden_act": ("gelu_pytorch_tanh", "relu")}
GEMMA |= {"hidden_activation": ("gelu_pytorch_tanh", "relu")}
GEMMA |= {"use_bidirectional_attention": (False, True)}
SECOND = GEMMA | LOCAL | {"num_key_value_heads": (4, 2)}
SECOND |= {"query_pre_attn_scalar": (256, 64), "final_logit_softcapping": (30.0, 9.0)}
THIRD = SECOND | {"final_logit_softcapping": (NOTHING, 9.0)}
THIRD |= {"vocab_size": (262_208, 64), "hidden_size": (2304, 64)}
THIRD |= {"intermediate_size": (9216, 64), "num_hidden_layers": (26, 7)}
THIRD |= {"num_attention_heads": (8, 16), "sliding_window_pattern": (6, 1)}
THIRD |= {"rope_theta": (1e6, 500.0), "rope_local_base_freq": (10_000.0, 500.0)}
THIRD |= {"rope_parameters": (NOTHING, {"full_attention": LINEAR})}
THIRD |= {"attn_logit_softcapping": (NOTHING, 9.0)}
T5 = {
    "feed_forward_proj": ("relu", "gated-gelu"),
    "tie_word_embeddings": (True, False),
    "scale_decoder_outputs": (True, False),
    "num_decoder_layers": (NOTHING, 3),
    "pad_token_id": (0, 3),
    "eos_token_id": (1, 3),
    "relative_attention_num_buckets": (32, 64),
    "relative_attention_max_distance": (128, 64),
    "layer_norm_epsilon": (1e-6, 1e-5),
    "is_gated_act": (False, True),
    "dense_act_fn": ("relu", "gelu"),
    "tie_encoder_decoder": (False, True),
    # Of a T5 transformers wants one of its files to say it, and T5X's own is the pad.
    "decoder_start_token_id": (0, 3),
}
GATED = {"feed_forward_proj": ("gated-gelu", "relu"), "is_gated_act": (True, False)}
GATED |= {"dense_act_fn": ("gelu_new", "relu")}
NOT_MT5 = {"tie_word_embeddings", "scale_decoder_outputs"}  # which say nothing there
UMT5 = {x: pair for x, pair in T5.items() if x != "pad_token_id"} | GATED
MT5 = {x: pair for x, pair in UMT5.items() if x not in NOT_MT5}
GPT2 = {
    "n_inner": (NOTHING, 40),
    "tie_word_embeddings": (True, False),
    "bos_token_id": (50256, 3),
    "eos_token_id": (50256, 3),
    "activation_function": ("gelu_new", "relu"),
    "layer_norm_epsilon": (1e-5, 1e-3),
    "scale_attn_weights": (True, False),
    "scale_attn_by_inverse_layer_idx": (False, True),
    "add_cross_attention": (False, True),
    "is_encoder_decoder": (False, True),
}
WHISPER = {
    "decoder_start_token_id": (50257, 3),
    "eos_token_id": (50256, 3),
    "activation_function": ("gelu", "relu"),
    "scale_embedding": (False, True),
    "tie_word_embeddings": (True, False),
}
BIASES = {"attention_bias": (False, True), "mlp_bias": (False, True)}
WIDE_HEADS = {"head_dim": (128, 16), "attention_bias": (False, True)}
MISTRAL = LLAMA | {"num_key_value_heads": (8, 2), "sliding_window": (4096, 8)}
CAPS = {"attn_logit_softcapping": (50.0, 9.0)}
CONFIGS = {
    "llama": class_defaults("llama", LLAMA | BIASES),
    "mistral": class_defaults("mistral", MISTRAL),
    "qwen2": class_defaults("qwen2", QWEN),
    "qwen3": class_defaults("qwen3", QWEN | WIDE_HEADS),
    "gemma": class_defaults("gemma", GEMMA),
    "gemma2": class_defaults("gemma2", SECOND | CAPS),
    "gemma3_text": class_defaults("gemma3", THIRD),
    "gpt2": class_defaults("gpt2", GPT2),
    "t5": class_defaults("t5", T5),
    "mt5": class_defaults("mt5", MT5),
    "umt5": class_defaults("umt5", UMT5),
    "whisper": class_defaults("whisper", WHISPER),
}

# The sizes of a config.json, which have no defaults, by model_type.
LLAMA_SIZES = {
    **{"vocab_size": 64, "hidden_size": 256, "intermediate_size": 48},
    **{"num_hidden_layers": 1, "num_attention_heads": 64},
}
T5_SIZES = {
    **{"vocab_size": 64, "d_model": 32, "d_ff": 64, "num_layers": 2},
    **{"num_heads": 4, "d_kv": 8},
}
LLAMA_KINDS = "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"
SIZES = dict.fromkeys(LLAMA_KINDS, LLAMA_SIZES)
SIZES |= dict.fromkeys(("t5", "mt5", "umt5"), T5_SIZES)
SIZES["gpt2"] = {
    **{"vocab_size": 50300, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "n_positions": 64,
}
SIZES["whisper"] = {
    **{"vocab_size": 50300, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 8},
    **{"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 10},
    "max_target_positions": 10,
}

# Keys that code asks for by their names, in files of which the table above does not
# say it all; without them nothing is added, as the reader that is named does it.
# test_parity_tokenizers asks transformers itself for all of its tokenizers' keys.
ASKED = {
    "checkpoints/gguf.py": {
        "general.architecture": f"none, and refused: {LLAMA_CPP}",
        "general.type": f"a model, which llama.cpp takes any file for: {LLAMA_CPP}",
        "num_key_value_heads": "a field that this module wrote itself",
        "bos": "an id that gguf_vocabulary found",
    },
    "checkpoints/huggingface.py": {
        "model_type": f"refused: {TRANSFORMERS}",
        "weight_map": f"refused: {TRANSFORMERS}",
        "base_model_name_or_path": "words of a message",
    },
    "tokenizers/byt5.py": {"<extra_id_{i}>": "a token that is added, and no key"},
    "checkpoints/fields.py": {"quant_method": "words of a message"},
    "checkpoints/names_llama.py": {
        "architectures": f"any class of this model_type: {TRANSFORMERS}",
        "text_config": "refused, where transformers has a model of its own sizes",
        "rope_type": f"type, else default: {TRANSFORMERS}, modeling_rope_utils.py",
        "type": f"default: {TRANSFORMERS}, modeling_rope_utils.py",
        "{x}_freq_factor": f"refused: {TRANSFORMERS}, modeling_rope_utils.py",
        "factor": f"refused: {TRANSFORMERS}, modeling_rope_utils.py",
        "original_max_position_embeddings": "the config's positions:"
        f" {TRANSFORMERS}, modeling_rope_utils.py",
    },
    "checkpoints/names_t5.py": {"model_type": "t5, when a config was made by hand"},
    "checkpoints/memory.py": {"bytes_in_use": "of no file"},
    "checkpoints/t5x/native.py": {
        "dtype": "what .zarray says, as tensorstore has it",
        "path": "refused",
    },
    "checkpoints/t5x/orbax.py": {
        "use_zarr3": "zarr 2: orbax-checkpoint 0.11, array_metadata_store",
        "commit_timestamp_nsecs": "not finished: orbax-checkpoint 0.11",
    },
    "tokenizers/gguf_file.py": {
        "<u4": "the form of a number, and no key",
        "<u8": "the same",
        "general.alignment": f"32: {LLAMA_CPP}, ggml/src/gguf.cpp",
        "split.count": f"one file: {LLAMA_CPP}, src/llama-model-loader.cpp",
    },
    "tokenizers/gguf.py": {
        "model": f"refused: {LLAMA_CPP}",
        "special": "a flag that this module set itself",
    },
    "tokenizers/gguf_vocabulary.py": {
        "model": "no tokenizer, and no ids but those of the header",
        "tokens": "the same",
    },
    "tokenizers/merges.py": {"add_prefix_space": f"no space: {TRANSFORMERS}"},
    "tokenizers/converted.py": {
        "add_prefix_space": f"a space, of Llama: {TRANSFORMERS}",
        "legacy": f"true by the file itself, false of Llama: {TRANSFORMERS}",
    },
    "tokenizers/huggingface.py": {
        "add_{name}_token": f"nothing is added: {TRANSFORMERS}",
        "{name}_token": "of no file: the class's own, see folder.DEFAULTS",
        "content": "the same",
    },
    "tokenizers/folder.py": {
        "tokenizer_class": f"config.json's, else the family's: {TRANSFORMERS}",
        "model_type": f"no family: {TRANSFORMERS}",
        "added_tokens_decoder": f"special_tokens_map.json: {TRANSFORMERS}",
        "added_tokens": "no special tokens",
        "extra_ids": f"100 of T5, 125 of ByT5: {TRANSFORMERS}",
        "{name}_token": "the class's own, see DEFAULTS",
        "content": "no token",
        "id": "no token",
    },
    "tokenizers/chat.py": {
        "tools": f"none, and the default template: {TRANSFORMERS}",
        "chat_template": "refused; llama.cpp's tools would take ChatML's",
        "name": "none of that name",
        "template": "none of that name",
        "default": "refused",
    },
}
