"""GGUF files of llama.cpp, Ollama, LM Studio: Llama, Mistral, Qwen and Gemma.

Metadata become the fields of a config.json, and tensors those of `names_llama`. What is
quantised is multiplied out as it is read (extra `gguf`): those weights are the model.
"""

import reprlib
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.checkpoints import ggml_types
from specjax.checkpoints.archive import Archive, Index
from specjax.checkpoints.fields import Fields
from specjax.tokenizers.gguf import AT
from specjax.tokenizers.gguf_file import Contents

# Architectures of llama.cpp, by the model_type that transformers has for them.
KINDS = {
    "llama": "llama",  # Mistral's too
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
# Keys of an architecture that are fields of a config.json.
FIELDS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
}
SIZES = ("block_count", "embedding_length", "feed_forward_length")
SIZES += ("attention.head_count",)
# Keys that are checked, or say what changes nothing; any other is refused.
CHECKED = {
    *("attention.value_length", "rope.dimension_count", "vocab_size", "expert_count"),
    *("attention.causal", "rope.scaling.type", "rope.scaling.factor"),
    *("rope.scaling.finetuned", "rope.scaling.original_context_length"),
}
AROUND = ("GGUF.", "general.", "tokenizer.", "quantize.", "split.")
# Layers of the models of 27 billion, whose scores are divided by another number.
WIDE = {"gemma2": 46, "gemma3": 62}
FREQUENCIES = "rope_freqs.weight"
# Llama 3's bands of wavelengths, of which GGUF keeps what they come to.
LOW, HIGH, ORIGINAL = 1.0, 4.0, 8192

WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
AFTER = {  # where there are norms behind both parts of a layer
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def fields_of(held: Contents) -> Fields:
    """What a config.json of this model would say.

    Raises ValueError, by its key, for metadata that may change what the model computes
    and are not known.
    """
    kind = held.fields.get("general.architecture")
    if kind not in KINDS:
        raise ValueError(
            f"{held.path}: general.architecture is {reprlib.repr(kind)}; known are"
            f" {', '.join(KINDS)}"
        )
    at = f"{kind}."
    stated = {
        name.removeprefix(at): value
        for name, value in held.fields.items()
        if name.startswith(at)
    }
    unknown = [at + name for name in stated if name not in {*FIELDS, *CHECKED}]
    unknown += [x for x in held.fields if not x.startswith((at, *AROUND))]
    if unknown:
        raise ValueError(
            f"{held.path}: {unknown[0]} may change what the model computes and is not"
            " known here: name a checkpoint of another format"
        )
    for name in SIZES:
        if name not in stated or type(stated[name]) is not int or stated[name] < 1:
            raise ValueError(
                f"{held.path}: {at}{name} must be a whole number of at least 1:"
                f" {reprlib.repr(stated.get(name))}"
            )
    fields = {to: _short(stated[x]) for x, to in FIELDS.items() if x in stated}
    fields |= {"model_type": KINDS[kind], "hidden_act": "silu"}
    fields |= {"tie_word_embeddings": "output.weight" not in held.tensors}
    if "token_embd.weight" in held.tensors:
        fields["vocab_size"] = held.tensors["token_embd.weight"].shape[0]
    heads = fields["num_attention_heads"]
    width = fields.get("head_dim") or fields["hidden_size"] // heads
    _check(held.path, at, stated, width)
    if kind == "llama":
        biases = {
            "attention_bias": "blk.0.attn_q.bias",
            "mlp_bias": "blk.0.ffn_up.bias",
        }
        fields |= {name: tensor in held.tensors for name, tensor in biases.items()}
        fields["head_dim"] = width
    if kind.startswith("gemma"):
        fields |= {"hidden_act": None, "hidden_activation": "gelu_pytorch_tanh"}
    if kind in WIDE:
        wide = fields.get("num_hidden_layers") == WIDE[kind]
        by = fields["hidden_size"] // heads if wide else width
        fields["query_pre_attn_scalar"] = by
    return fields | _scaling(held, stated, fields, width) | _ids(held.fields)


def _short(value: Any) -> Any:
    """A float32 as it was written, not as its nearest double."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _check(path: Path, at: str, stated: Fields, width: int) -> None:
    known = {
        "attention.value_length": width,
        "rope.dimension_count": width,
        "expert_count": 0,
        "attention.causal": True,
    }
    for name, value in known.items():
        if stated.get(name, value) != value:
            raise ValueError(
                f"{path}: {at}{name} is {reprlib.repr(stated[name])}; known is {value}"
            )


def _scaling(held: Contents, stated: Fields, fields: Fields, width: int) -> Fields:
    """Rotary positions that are stretched."""
    if FREQUENCIES in held.tensors:
        kept = _vector(held, FREQUENCIES)
        base = fields.get("rope_theta", 10_000.0)
        factor = float(kept.max())
        turns = ORIGINAL / (2 * np.pi) * base ** (-np.arange(0, width, 2) / width)
        share = np.clip((turns - LOW) / (HIGH - LOW), 0, 1)
        wanted = 1 / ((1 - share) / factor + share)
        if kept.shape != wanted.shape or not np.allclose(kept, wanted, rtol=1e-4):
            raise ValueError(
                f"{held.path}: {FREQUENCIES} is not Llama 3's of {ORIGINAL} positions"
                f" and factor {factor:g}: name a checkpoint of another format"
            )
        of = {"rope_type": "llama3", "factor": factor, "low_freq_factor": LOW}
        of |= {"high_freq_factor": HIGH, "original_max_position_embeddings": ORIGINAL}
        return {"rope_scaling": of}
    kind = stated.get("rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind != "linear":
        raise ValueError(
            f"{held.path}: rope.scaling.type is {reprlib.repr(kind)}; known are none"
            " and linear"
        )
    linear = {
        "rope_type": "linear",
        "factor": _short(stated.get("rope.scaling.factor")),
    }
    if fields["model_type"] == "gemma3_text":
        return {"rope_parameters": {"full_attention": linear}}
    return {"rope_scaling": linear}


def _vector(held: Contents, name: str) -> np.ndarray:
    tensor, stored = held.tensors[name], ggml_types.stored_bytes(held.path)
    stored = stored[tensor.at : tensor.at + tensor.size]
    return ggml_types.numbers(stored[None], tensor.kind)[0].astype(np.float64)


def _ids(metadata: Fields) -> Fields:
    """The ids that a text starts and ends with."""
    ends = (metadata.get(f"{AT}{x}_token_id") for x in ("eos", "eot", "eom"))
    kept = list(dict.fromkeys(x for x in ends if x is not None))
    return {"bos_token_id": metadata.get(f"{AT}bos_token_id"), "eos_token_id": kept}


def arrays(held: Contents, fields: Fields) -> Archive:
    """The tensors in the names and the layout of a folder of Hugging Face, in float32.

    Of Llama's queries and keys llama.cpp keeps the rows in another order, and to the
    scales of Gemma's norms it adds 1.
    """
    ggml_types.check(held)
    kind = held.fields["general.architecture"]
    layer = LAYER | (AFTER if kind in WIDE else {})
    called = {_name(name, layer): x for name, x in held.tensors.items()}
    called.pop(FREQUENCIES, None)
    rows = {}
    if kind == "llama":
        heads = fields["num_attention_heads"]
        of = {"q_proj": heads, "k_proj": fields.get("num_key_value_heads") or heads}
        for name, tensor in called.items():
            part = name.split(".")[-2]
            if part in of:
                size = tensor.shape[0]
                order = np.arange(size).reshape(of[part], -1, 2)
                rows[name] = order.swapaxes(1, 2).reshape(size)
    raised = {x for x in called if kind.startswith("gemma") and "norm" in x}
    shapes = {
        name: jax.ShapeDtypeStruct(x.shape, ggml_types.dtype(x.kind))
        for name, x in called.items()
    }

    held_bytes = ggml_types.stored_bytes(held.path)

    def read(name: str, index: Index) -> np.ndarray:
        tensor = called[name]
        stored = held_bytes[tensor.at : tensor.at + tensor.size]
        if len(tensor.shape) == 2:
            stored = stored.reshape(tensor.shape[0], -1)
            stored = stored[rows[name][index[0]] if name in rows else index[0]]
            values = ggml_types.numbers(stored, tensor.kind)[:, index[1]]
        else:
            values = ggml_types.numbers(stored[None], tensor.kind)
            values = values.reshape(tensor.shape)
            values = (values[rows[name]] if name in rows else values)[index]
        return values - 1 if name in raised else values

    return Archive(shapes, read, str(held.path), by_rows=True)


def _name(name: str, layer: dict[str, str]) -> str:
    """As `names_llama` has it; what is not known keeps its name."""
    if name in WHOLE:
        return WHOLE[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in layer:
        return f"model.layers.{parts[1]}.{layer[parts[2]]}.{parts[3]}"
    return name


def quantization(held: Contents) -> str:
    """How the weights are stored, by how many tensors are: "Q4_1 210, F32 61"."""
    kinds = Counter(x.kind for x in held.tensors.values())
    return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
