"""GGUF files of llama.cpp, Ollama, LM Studio: Llama, Mistral, Qwen and Gemma.

Metadata become the fields of a config.json, and tensors those of `names_llama`.
Quantised tensors are multiplied out as they are read (extra `gguf`): those weights are
the model.
"""

import reprlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax.checkpoints import ggml_types, names_llama
from specjax.checkpoints.archive import Archive, Index
from specjax.checkpoints.fields import Fields
from specjax.tokenizers.gguf_file import Contents
from specjax.tokenizers.gguf_vocabulary import vocabulary
from specjax.zoo.sizes import is_size

# Architectures of llama.cpp, by the model_type that transformers has for them.
KINDS = {
    "llama": "llama",  # Mistral's too
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
# Keys of an architecture that must be there, as for llama.cpp.
SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
EPS = "attention.layer_norm_rms_epsilon"
# Keys that some of the architectures read. Without them llama.cpp takes these defaults
# (its src/llama-model.cpp and src/models/), or those that `config_fields` computes.
PATTERN_KEY = "attention.sliding_window_pattern"
BASE, LOCAL_BASE = 10_000.0, 10_000.0
WINDOW, PATTERN = {"gemma2": 4096, "gemma3": 0}, {"gemma2": 2, "gemma3": 6}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}  # Gemma 2's
SCALING = "linear"
READ = {
    *("attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.sliding_window", PATTERN_KEY),
    *("attn_logit_softcapping", "final_logit_softcapping"),
    *("rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"),
    *("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"),
}
# Keys that do not change what a decoder computes, and keys that are known in one value.
SAY_NOTHING = {
    *("vocab_size", "pooling_type", "tensor_data_layout", "rope.scaling.finetuned"),
    *("rope.scaling.original_context_length", "classifier.pooling_type"),
    "classifier.output_labels",
}
NEUTRAL = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "expert_count": 0,
    "expert_used_count": 0,
    "nextn_predict_layers": 0,
    "rope.scaling.alpha": 0.0,
    "rope.scaling.attn_factor": 1.0,
    "use_parallel_residual": False,
}
TIED = "gemma", "gemma2"  # their readout is never a tensor
# The fields that `names_llama` checks, beside those that it has a place for.
NOT_READ = "model_type", "hidden_act", "hidden_activation"
MODEL = "model"  # general.type of a file with a model
ADAPTER = "adapter."  # of a file that has no model of its own
# Layers of the models of 27 billion, whose scores are divided by another number.
WIDE = {"gemma2": 46, "gemma3": 62}
FREQUENCIES = "rope_freqs.weight"
# Llama 3's bands of wavelengths, of which GGUF keeps the resulting frequencies.
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


class Header(NamedTuple):
    """The keys of a header that describe an architecture, without the architecture's
    name. Lists of as many equal values as there are layers are one value."""

    path: Path
    kind: str
    stated: Fields

    def size(self, name: str, default: int | None = None) -> int:
        """Returns a whole number of at least 1. Raises ValueError for anything else."""
        value: Any = self.stated.get(name, default)
        if not is_size(value):
            raise self.wrong(name, "a whole number of at least 1", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Returns a number above 0. Raises ValueError for anything else."""
        value = _shortest_float(self.stated.get(name, default))
        if type(value) not in (int, float) or not 0 < value < np.inf:
            raise self.wrong(name, "a number above 0", value)
        return value

    def number_or_none(self, name: str, default: float | None = None) -> float | None:
        """Returns a number above 0, or None for one of 0. Raises ValueError for
        anything else."""
        if self.stated.get(name, default) in (0, None):
            return None
        return self.number(name, default)

    def wrong(self, name: str, wanted: str, value: Any) -> ValueError:
        """Returns the error of a key whose value must be something else."""
        return ValueError(
            f"{self.path}: {self.kind}.{name} must be {wanted}: {reprlib.repr(value)}"
        )


def config_fields(held: Contents) -> Fields:
    """Returns the fields of a config.json that describe this model.

    All that `names_llama` reads of this kind are there: no default of transformers
    stands for a key that a GGUF file lacks.

    Raises:
      ValueError: a key is missing, or may change what the model computes and is not
        known; it is named.
    """
    header = _header(held)
    kind, sizes = header.kind, {to: header.size(x) for x, to in SIZES.items()}
    heads, dim = sizes["num_attention_heads"], sizes["hidden_size"]
    key_heads = header.size("attention.head_count_kv", heads)
    width = header.size("attention.key_length", max(1, dim // heads))
    if heads % key_heads:
        divides = f"a divisor of {kind}.attention.head_count, {heads}"
        raise header.wrong("attention.head_count_kv", divides, key_heads)
    if width % 2:
        raise header.wrong("attention.key_length", "even", width)
    _check(header, width, usual=dim // heads)
    if "token_embd.weight" not in held.tensors:
        raise ValueError(f"{held.path} has no token_embd.weight: download it again")
    fields = sizes | {
        "model_type": KINDS[kind],
        "hidden_act": "silu",
        "vocab_size": held.tensors["token_embd.weight"].shape[0],
        "num_key_value_heads": key_heads,
        "head_dim": width,
        "rms_norm_eps": header.number(EPS),
        "rope_theta": header.number("rope.freq_base", BASE),
        "tie_word_embeddings": kind in TIED or "output.weight" not in held.tensors,
        "attention_bias": kind == "llama" and "blk.0.attn_q.bias" in held.tensors,
        "mlp_bias": kind == "llama" and "blk.0.ffn_up.bias" in held.tensors,
    }
    if kind.startswith("gemma"):
        fields |= {"hidden_act": None, "hidden_activation": "gelu_pytorch_tanh"}
    if kind in WIDE:
        of_27b = sizes["num_hidden_layers"] == WIDE[kind]
        fields["query_pre_attn_scalar"] = dim // heads if of_27b else width
    fields |= _windows(header, sizes["num_hidden_layers"])
    fields |= _cap_fields(header) | _rope_fields(held, header, fields)
    tokens = vocabulary(held)
    fields |= {"bos_token_id": tokens.named.get("bos")}
    fields |= {"eos_token_id": list(tokens.ends)}
    known = {*names_llama.KINDS[KINDS[kind]].read, *NOT_READ}
    return {name: value for name, value in fields.items() if name in known}


def _header(held: Contents) -> Header:
    kind = held.fields.get("general.architecture")
    stated_type = held.fields.get("general.type", MODEL)
    if stated_type != MODEL or any(name.startswith(ADAPTER) for name in held.fields):
        raise ValueError(
            f"{held.path} has no model of its own (general.type is"
            f" {reprlib.repr(stated_type)}): name the file of the model"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f"{held.path}: general.architecture is {reprlib.repr(kind)}; known are"
            f" {', '.join(KINDS)}"
        )
    at = f"{kind}."
    stated: Fields = {}
    known = {*SIZES, EPS, *READ, *SAY_NOTHING, *NEUTRAL}
    for key, value in held.fields.items():
        name = key.removeprefix(at)
        if not key.startswith(at):
            continue  # of another tool: llama.cpp does not read it
        if name not in known:
            raise ValueError(
                f"{held.path}: {key} may change what the model computes and is not"
                " known here: name a checkpoint of another format"
            )
        alike = isinstance(value, list) and len({*map(str, value)}) == 1
        stated[name] = value[0] if alike and name != PATTERN_KEY else value
    return Header(held.path, kind, stated)


def _shortest_float(value: Any) -> Any:
    """Returns a float32 as it was written, not as its nearest double."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _check(header: Header, width: int, *, usual: int) -> None:
    """Raises ValueError for keys whose values are not supported. usual: the width of
    values where no key states it."""
    known = NEUTRAL | {"rope.dimension_count": width}
    for name, value in (*known.items(), ("attention.value_length", width)):
        default = usual if name == "attention.value_length" else value
        if (has := header.stated.get(name, default)) != value:
            raise ValueError(
                f"{header.path}: {header.kind}.{name} is {reprlib.repr(has)}; known is"
                f" {value}"
            )
    base = header.number("rope.freq_base", BASE)
    if header.kind == "gemma2" and header.number("rope.freq_base_swa", base) != base:
        wanted = f"{base}, that of all layers"
        near = header.stated["rope.freq_base_swa"]
        raise header.wrong("rope.freq_base_swa", wanted, near)


def _windows(header: Header, layers: int) -> Fields:
    """Returns the fields by which some layers see only the last tokens. For other
    architectures llama.cpp reads no window, and every layer sees all tokens."""
    fields: Fields = {"use_sliding_window": False, "max_window_layers": layers}
    fields |= {"sliding_window": None, "layer_types": None}
    if (kind := header.kind) not in WINDOW:
        return fields
    window = header.stated.get("attention.sliding_window", WINDOW[kind])
    pattern = header.stated.get(PATTERN_KEY, PATTERN[kind])
    if window == 0:
        local = [False] * layers
    elif not is_size(window):
        raise header.wrong("attention.sliding_window", "a number of tokens", window)
    elif type(pattern) is int and pattern >= 0:
        local = [pattern == 0 or i % pattern < pattern - 1 for i in range(layers)]
    elif isinstance(pattern, list) and len(pattern) >= layers:
        local = [bool(x) for x in pattern[:layers]]
    else:
        wanted = "a number of layers, or true or false for each"
        raise header.wrong(PATTERN_KEY, wanted, pattern)
    types = ["sliding_attention" if x else "full_attention" for x in local]
    fields |= {"sliding_window": window or None, "layer_types": types}
    near = header.number("rope.freq_base_swa", LOCAL_BASE)
    return fields | {"sliding_window_pattern": None, "rope_local_base_freq": near}


def _cap_fields(header: Header) -> Fields:
    """Returns the fields that cap scores and logits; in a Gemma 3 a cap of 0 means
    none."""
    fields: Fields = {name: None for name in CAPS}
    if header.kind == "gemma2":
        for name, cap in CAPS.items():
            fields[name] = header.number(name, cap)
    if header.kind == "gemma3":
        cap = header.number_or_none("final_logit_softcapping")
        fields["final_logit_softcapping"] = cap
    return fields


def _rope_fields(held: Contents, header: Header, fields: Fields) -> Fields:
    """Returns the fields of rotary positions that are stretched."""
    none: Fields = {"rope_scaling": None, "rope_parameters": None}
    form = header.stated.get("rope.scaling.type", SCALING)
    if form not in ("none", "linear"):
        raise ValueError(
            f"{header.path}: {header.kind}.rope.scaling.type is {reprlib.repr(form)};"
            " known are none and linear"
        )
    older = header.number_or_none("rope.scale_linear")
    factor = header.number_or_none("rope.scaling.factor", older)
    factor = (factor or 1.0) if form == "linear" else 1.0
    if header.kind == "llama" and FREQUENCIES in held.tensors:
        if factor != 1:
            alone = f"1 beside {FREQUENCIES}"
            raise header.wrong("rope.scaling.factor", alone, factor)
        return none | {"rope_scaling": _bands(held, fields)}
    if factor == 1:
        return none
    linear = {"rope_type": "linear", "factor": factor}
    if header.kind == "gemma3":
        return none | {"rope_parameters": {"full_attention": linear}}
    return none | {"rope_scaling": linear}


def _bands(held: Contents, fields: Fields) -> Fields:
    """Returns the fields of Llama 3's bands of wavelengths, by the resulting
    frequencies."""
    kept, width = _vector(held, FREQUENCIES), fields["head_dim"]
    base, factor = fields["rope_theta"], float(kept.max())
    turns = ORIGINAL / (2 * np.pi) * base ** (-np.arange(0, width, 2) / width)
    share = np.clip((turns - LOW) / (HIGH - LOW), 0, 1)
    wanted = 1 / ((1 - share) / factor + share)
    if kept.shape != wanted.shape or not np.allclose(kept, wanted, rtol=1e-4):
        raise ValueError(
            f"{held.path}: {FREQUENCIES} is not Llama 3's of {ORIGINAL} positions"
            f" and factor {factor:g}: name a checkpoint of another format"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": ORIGINAL,
    }


def _vector(held: Contents, name: str) -> np.ndarray:
    tensor, stored = held.tensors[name], ggml_types.stored_bytes(held.path)
    stored = stored[tensor.at : tensor.at + tensor.size]
    return ggml_types.numbers(stored[None], tensor.kind)[0].astype(np.float64)


def arrays(held: Contents, fields: Fields) -> Archive:
    """Returns the tensors under the names and in the layout of a folder of Hugging
    Face, in float32.

    llama.cpp keeps the rows of Llama's queries and keys in another order, and adds 1 to
    the scales of Gemma's norms.
    """
    ggml_types.check(held)
    kind = held.fields["general.architecture"]
    layer = LAYER | (AFTER if kind in WIDE else {})
    called = {_name(name, layer): x for name, x in held.tensors.items()}
    if kind == "llama":
        called.pop(FREQUENCIES, None)
    rows = {}
    if kind == "llama":
        heads = fields["num_attention_heads"]
        key_heads = fields.get("num_key_value_heads") or heads
        count = {"q_proj": heads, "k_proj": key_heads}
        for name, tensor in called.items():
            part = name.split(".")[-2]
            if part in count:
                size = tensor.shape[0]
                order = np.arange(size).reshape(count[part], -1, 2)
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
    """Returns a tensor's name in `names_llama`; an unknown one keeps its name."""
    if name in WHOLE:
        return WHOLE[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in layer:
        return f"model.layers.{parts[1]}.{layer[parts[2]]}.{parts[3]}"
    return name


def quantization(held: Contents) -> str:
    """Returns the types of the tensors and how many have each: "Q4_1 210, F32 61"."""
    kinds = Counter(x.kind for x in held.tensors.values())
    return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
