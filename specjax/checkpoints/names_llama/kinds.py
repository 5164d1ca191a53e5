"""What config.json may say of a decoder of Llama's kind, by its model_type.

A field that transformers' class reads is read here too, or known in some values alone,
or refused by its name; see `fields.refuse_read`.
"""

import reprlib
from typing import Any, NamedTuple

from specjax.checkpoints import fields as field
from specjax.checkpoints.fields import Fields

TIE = "tie_word_embeddings"


class Kind(NamedTuple):
    """A model_type. style: of `llama.STYLES`. called: as classes of transformers begin.
    read: the fields that have a place in `llama.Config`, with what they are where
    config.json lacks them. only: those that have none, with the values that change
    nothing."""

    style: str
    called: str
    read: Fields
    only: dict[str, tuple[Any, ...]]


SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
COMMON = dict.fromkeys(SIZES) | {
    "num_key_value_heads": None,
    "head_dim": None,
    "max_position_embeddings": None,
    "rms_norm_eps": 1e-6,
    TIE: False,
    "rope_parameters": None,
    "rope_scaling": None,
    "rope_theta": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA = COMMON | {"bos_token_id": 1, "eos_token_id": 2}
BIASES = {"attention_bias": False}
WINDOW = {"sliding_window": 4096, "layer_types": None}
QWEN = COMMON | WINDOW | {"use_sliding_window": False, "max_window_layers": 28}
GEMMA = COMMON | BIASES | {TIE: True, "bos_token_id": 2, "eos_token_id": 1}
GEMMA |= {"head_dim": 256}
CAPS = {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}
GEMMA2 = GEMMA | WINDOW | CAPS | {"query_pre_attn_scalar": 256}
GEMMA2 |= {"num_key_value_heads": 4}
# The text within a larger Gemma 3 is told by what it has of its own.
GEMMA3 = GEMMA2 | {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "final_logit_softcapping": None,
    "sliding_window_pattern": 6,
    "rope_local_base_freq": None,
}
del GEMMA3["attn_logit_softcapping"]

PLAIN = {
    "hidden_act": ("silu",),
    "partial_rotary_factor": (1,),
    # Of a trainer whose own rotary positions are other pairs of features.
    "rope_interleaved": (False,),
}
# Gemma's files say "gelu" and mean its approximation by a tanh.
GELU = PLAIN | {
    "hidden_act": ("gelu", "gelu_pytorch_tanh"),
    "hidden_activation": ("gelu_pytorch_tanh",),
    "use_bidirectional_attention": (False,),
}
KINDS = {
    "llama": Kind("llama", "Llama", LLAMA | BIASES | {"mlp_bias": False}, PLAIN),
    "mistral": Kind(
        "mistral",
        "Mistral",
        LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096},
        PLAIN,
    ),
    "qwen2": Kind("qwen2", "Qwen2", QWEN, PLAIN),
    "qwen3": Kind("qwen3", "Qwen3", QWEN | BIASES | {"head_dim": 128}, PLAIN),
    "gemma": Kind("gemma", "Gemma", GEMMA, GELU),
    "gemma2": Kind("gemma2", "Gemma2", GEMMA2, GELU),
    "gemma3_text": Kind(
        "gemma3", "Gemma3", GEMMA3, GELU | {"attn_logit_softcapping": ()}
    ),
}
# A text model with an image tower: its text is read, the tower is not.
WITHIN = {"gemma3": "gemma3_text"}


def of(fields: Fields) -> tuple[Kind, Fields]:
    """The kind of a config.json, and its fields where they are there or have a default.

    Raises ValueError for a class that is not a causal decoder's, or a field that is not
    known, by name.
    """
    name = fields["model_type"]
    classes, tower = ["ForCausalLM", "Model", "TextModel"], name in WITHIN
    if tower:
        classes = ["ForConditionalGeneration", "Model"]
        field.refuse_read(fields, ("text_config",))
        fields = inner(fields)
        name = WITHIN[name]
    kind = KINDS[name]
    known = [kind.called + suffix for suffix in classes]
    _check_classes(fields, [*known, "LLaMAForCausalLM"])
    fields = _without_plain_types(fields, kind)
    field.refuse_read(fields, {*kind.read, *kind.only})
    field.only(fields, {k: (None, *values) for k, values in kind.only.items()})
    stated = {name: fields[name] for name in kind.read if name in fields}
    return kind, kind.read | stated


def _without_plain_types(fields: Fields, kind: Kind) -> Fields:
    """Of a family whose layers are all alike: types that say so go without saying."""
    types = fields.get("layer_types")
    if "layer_types" in kind.read or not isinstance(types, list):
        return fields
    window = (kind.read | fields).get("sliding_window")
    plain = "full_attention" if window is None else "sliding_attention"
    return fields | {"layer_types": None} if {*map(str, types)} == {plain} else fields


def inner(fields: Fields) -> Fields:
    """The text's own fields; what surrounds it says how a text ends, and whether its
    readout is tied."""
    text = fields.get("text_config")
    if not isinstance(text, dict):
        raise ValueError(
            f"config.json: text_config must be an object: {reprlib.repr(text)}"
        )
    around = ("architectures", "eos_token_id", "bos_token_id", TIE)
    more = {name: fields[name] for name in around if fields.get(name) is not None}
    return {"architectures": None} | text | more


def _check_classes(fields: Fields, known: list[str]) -> None:
    classes = fields.get("architectures")
    if classes is None:
        return
    if isinstance(classes, list) and {*map(str, classes)} <= {*known}:
        return
    raise ValueError(
        f"config.json: architectures is {reprlib.repr(classes)}; known are"
        f" {', '.join(known[:-1])}"
    )
