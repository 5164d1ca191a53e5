"""Fields of config.json beside those that a model is built of: refused, or harmless.

What transformers' class of a model_type does not read cannot change what a checkpoint
computes that transformers loads: how it was made, is run or draws its texts, or what
another program writes there. Refused are fields that change what a decoder computes
wherever they are read, in transformers or by other engines: a file that has one says
that it is another model than its model_type.
"""

import reprlib
from collections.abc import Collection
from typing import Any

from specjax.checkpoints.fields import Fields

QUANTIZED = {"quantization_config", "quantization", "compression_config"}
TELLING = {
    # Which tokens are seen.
    *("sliding_window", "layer_types", "max_window_layers", "use_sliding_window"),
    *("sliding_window_pattern", "attention_chunk_size", "no_rope_layers", "use_mrope"),
    *("use_bidirectional_attention", "block_types", "attn_types", "layers_block_type"),
    # How positions are told.
    *("rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "alibi"),
    *("rope_interleaved", "partial_rotary_factor", "rotary_pct", "position_embedding"),
    # What attention and its heads are.
    *("num_key_value_heads", "head_dim", "attention_bias", "qkv_bias", "clip_qkv"),
    *("qk_layernorm", "use_qk_norm", "attn_logit_softcapping", "query_pre_attn_scalar"),
    *("q_lora_rank", "kv_lora_rank", "attention_multiplier", "multi_query"),
    *("add_cross_attention", "is_encoder_decoder", "attn_output_gate"),
    # What a layer is, and how it is added.
    *("hidden_act", "hidden_activation", "activation", "mlp_bias", "parallel_attn"),
    *(
        "use_parallel_residual",
        "residual_multiplier",
        "num_experts",
        "num_experts_per_tok",
    ),
    *("num_local_experts", "n_routed_experts", "moe_intermediate_size"),
    *("rms_norm_eps", "norm_type", "use_rms_norm"),
    # What stands at either end.
    *("embedding_multiplier", "scale_embedding", "logits_scaling", "logit_scale"),
    *(
        "final_logit_softcapping",
        "tie_encoder_decoder",
        "draft_vocab_size",
        "mtp_depth",
    ),
    # Other towers, and code of its own.
    *("vision_config", "audio_config", "auto_map"),
}
# Where a field's own kind does not read it, these say nothing beside null and false.
NOTHING = {
    "activation": ("swiglu",),
    "partial_rotary_factor": (1, 1.0),
    "attention_multiplier": (1, 1.0),
    "residual_multiplier": (1, 1.0),
    "embedding_multiplier": (1, 1.0),
    "logits_scaling": (1, 1.0),
    "logit_scale": (1, 1.0),
}


def refuse_others(fields: Fields, known: Collection[str]) -> None:
    """Raises ValueError for a field that is not known and may change the maths."""
    for name, value in fields.items():
        if name in known or value is None or value is False:
            continue
        if name in QUANTIZED:
            raise ValueError(
                f"config.json: {name} is {reprlib.repr(method(value))}: the weights"
                " are quantized; name a checkpoint of the same model that is not"
            )
        if name in TELLING and not says_nothing(name, value):
            raise ValueError(
                f"config.json: {name} is {reprlib.repr(value)}, which is not known for"
                " this model_type and changes what other decoders compute: where it"
                " changes nothing here, take it out"
            )


def method(value: Any) -> Any:
    """What a description of quantized weights calls itself."""
    return value.get("quant_method", value) if isinstance(value, dict) else value


def says_nothing(name: str, value: Any) -> bool:
    if name == "layer_types" and isinstance(value, list):
        return {*map(str, value)} <= {"full_attention"}
    return value in NOTHING.get(name, ())
