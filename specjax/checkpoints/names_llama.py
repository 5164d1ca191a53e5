"""Llama, Mistral, Qwen and Gemma as Hugging Face stores them: names, and sizes.

Their matrices are [out, in], ours [in, out]. A field of config.json that transformers'
class reads is read here too, or known in some values alone, or refused by its name
(`fields.refuse_read`); rotary positions as versions 2 to 5 of transformers write them:
`rope_theta` and `rope_scaling`, or `rope_parameters` with both, in Gemma 3 for each
type of layers.
"""

import math
import reprlib
from collections.abc import Collection
from typing import Any, NamedTuple

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import (
    PRODUCT,
    SCALE,
    UNBIASED,
    Names,
    Row,
    Source,
    embedding_names,
    sources,
)
from specjax.checkpoints.fields import Fields
from specjax.models import llama
from specjax.models.llama import Rotation, Stretch

TIE = "tie_word_embeddings"


class Kind(NamedTuple):
    """The fields of a model_type.

    style: a name in `llama.STYLES`. read: the fields that have a place in
    `llama.Config`, with their defaults where config.json lacks them. only: those that
    have none, with the values that change nothing.
    """

    style: str
    read: Fields
    only: dict[str, tuple[Any, ...]]

    @property
    def called(self) -> str:
        """The beginning of the names of its classes in transformers."""
        return self.style.title()


SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
COMMON: Fields = {name: None for name in SIZES} | {
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
MISTRAL = LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096}
BIASES = {"attention_bias": False}
WINDOW = {"sliding_window": 4096, "layer_types": None}
QWEN = COMMON | WINDOW | {"use_sliding_window": False, "max_window_layers": 28}
QWEN |= {"num_key_value_heads": 32}
GEMMA = COMMON | BIASES | {TIE: True, "bos_token_id": 2, "eos_token_id": 1}
GEMMA |= {"head_dim": 256, "num_key_value_heads": 16}
CAPS = {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}
GEMMA2 = GEMMA | WINDOW | CAPS | {"query_pre_attn_scalar": 256}
GEMMA2 |= {"num_key_value_heads": 4}
# The text within a larger Gemma 3 is described by its own fields.
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
    "llama": Kind("llama", LLAMA | BIASES | {"mlp_bias": False}, PLAIN),
    "mistral": Kind("mistral", MISTRAL, PLAIN),
    "qwen2": Kind("qwen2", QWEN, PLAIN),
    "qwen3": Kind("qwen3", QWEN | BIASES | {"head_dim": 128}, PLAIN),
    "gemma": Kind("gemma", GEMMA, GELU),
    "gemma2": Kind("gemma2", GEMMA2, GELU),
    "gemma3_text": Kind("gemma3", GEMMA3, GELU | {"attn_logit_softcapping": ()}),
}
# A text model with an image tower: its text is read, the tower is not.
WITHIN = {"gemma3": "gemma3_text"}


def read_kind(fields: Fields) -> tuple[Kind, Fields]:
    """Returns the kind of a config.json, and those of its fields that are there or have
    a default. Raises ValueError for unknown classes and fields."""
    name = fields["model_type"]
    classes, tower = ["ForCausalLM", "Model", "TextModel"], name in WITHIN
    if tower:
        classes = ["ForConditionalGeneration", "Model"]
        field.refuse_read(fields, ("text_config",))
        fields = text_fields(fields)
        name = WITHIN[name]
    kind = KINDS[name]
    known = [kind.called + suffix for suffix in classes]
    _check_classes(fields, [*known, "LLaMAForCausalLM"])
    fields = _without_plain_types(fields, kind)
    field.refuse_read(fields, {*kind.read, *kind.only})
    field.check_known_values(
        fields, {k: (None, *values) for k, values in kind.only.items()}
    )
    stated = {name: fields[name] for name in kind.read if name in fields}
    return kind, kind.read | stated


def _without_plain_types(fields: Fields, kind: Kind) -> Fields:
    """Returns the fields without the types of layers, where a family states them though
    its layers are all alike."""
    types = fields.get("layer_types")
    if "layer_types" in kind.read or not isinstance(types, list):
        return fields
    window = (kind.read | fields).get("sliding_window")
    plain = "full_attention" if window is None else "sliding_attention"
    return fields | {"layer_types": None} if {*map(str, types)} == {plain} else fields


def text_fields(fields: Fields) -> Fields:
    """Returns the fields of the text model in a config.json of several models; the
    outer fields say how a text ends, and whether its readout is tied. Raises ValueError
    where there is no text model."""
    text = fields.get("text_config")
    if not isinstance(text, dict):
        raise field.field_error("text_config", "an object", text)
    around = ("architectures", "eos_token_id", "bos_token_id", TIE)
    more = {name: fields[name] for name in around if fields.get(name) is not None}
    return {"architectures": None} | text | more


def _check_classes(fields: Fields, known: list[str]) -> None:
    classes = fields.get("architectures")
    named = {*map(str, classes)} if isinstance(classes, list) else None
    if classes is not None and (named is None or not named <= {*known}):
        raise ValueError(
            f"config.json: architectures is {reprlib.repr(classes)}; known are"
            f" {', '.join(known[:-1])}"
        )


BASE, LOCAL_BASE, LONG_BASE = 10_000.0, 10_000.0, 1_000_000.0
ROTATIONS = ("default", "linear", "llama3")


def read_rotation(
    stated: Fields, positions: int | None
) -> tuple[Rotation, Rotation | None]:
    """Returns the rotation of all layers, and that of the local ones where it differs.
    Raises ValueError for an unknown kind of rotation."""
    base, scaling = stated["rope_theta"], _field_object(stated, "rope_scaling")
    whole = _field_object(stated, "rope_parameters")
    if "rope_local_base_freq" not in stated:
        base = BASE if base is None else base
        return _rotation(scaling or whole, base, positions), None
    for name, value in whole.items():
        if name not in (FULL, SLIDING) and value is not None:
            raise ValueError(
                f"config.json: rope_parameters has {name}; known are {FULL}, {SLIDING}"
            )
    full, sliding = (_field_object(whole, name) for name in (FULL, SLIDING))
    older = scaling.get("type") not in (None, "default")
    if older and scaling.get("rope_type") is None:
        raise ValueError(
            f"config.json: rope_scaling says type {reprlib.repr(scaling['type'])} and"
            " no rope_type, which versions of transformers before 5 follow and later"
            " ones ignore: call it rope_type, or take rope_scaling out"
        )
    near = "rope_local_base_freq"
    nearby = LOCAL_BASE if stated[near] is None else field.number(stated, near)
    full = _rotation(full | scaling, LONG_BASE if base is None else base, positions)
    return full, _rotation(sliding, nearby, positions)


def _field_object(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise field.field_error(name, "an object", value)
    return value


def _rotation(scaling: Fields, base: float, positions: int | None) -> Rotation:
    named = (scaling.get(name) for name in ("rope_type", "type"))
    kind = next((x for x in named if x is not None), "default")
    if not isinstance(kind, str) or kind not in ROTATIONS:
        raise ValueError(
            f"config.json: rope_type is {reprlib.repr(kind)}; known are"
            f" {', '.join(ROTATIONS)}"
        )
    field.check_known_values(scaling, {"partial_rotary_factor": (1, None)})
    stated = {name: value for name, value in scaling.items() if value is not None}
    scaling = {"rope_theta": base} | stated
    base = field.number(scaling, "rope_theta")
    if kind == "default":
        return Rotation(base)
    factor = field.number(scaling, "factor")
    if kind == "linear":
        return Rotation(base, slower=factor)
    low, high = (field.number(scaling, f"{x}_freq_factor") for x in ("low", "high"))
    if low >= high:
        raise ValueError(
            f"config.json: low_freq_factor {low} must be below high_freq_factor {high}"
        )
    original = field.size(scaling, "original_max_position_embeddings", positions)
    return Rotation(base, stretch=Stretch(factor, low, high, original))


def write_rotation(config: llama.Config) -> Fields:
    """Returns the fields of rotary positions as versions of transformers before 5 have
    them, which later versions read too."""
    rotation, local = config.rotation, config.local_rotation
    scaling: Fields | None = None
    if (stretch := rotation.stretch) is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": stretch.factor,
            "low_freq_factor": stretch.low,
            "high_freq_factor": stretch.high,
            "original_max_position_embeddings": stretch.original,
        }
    elif rotation.slower != 1:
        scaling = {"rope_type": "linear", "factor": rotation.slower}
    return {
        "rope_theta": rotation.base,
        "rope_scaling": scaling,
        "rope_local_base_freq": (local or Rotation()).base,
    }


MODEL_TYPES = (*KINDS, *WITHIN)
READOUT = "lm_head.weight"
# The beginnings of a text model's names, whole or within another, and of its readout.
PREFIXES = {
    "model.": "",
    "": "",
    "language_model.model.": "language_model.",
    "model.language_model.": "",
    "language_model.": "",
}
EMBEDDING = "embed_tokens.weight"
STACKS = {"num_layers": r"(?:model\.|language_model\.){0,2}layers[._](\d+)[./]"}
# Of earlier versions, and of the tower beside a text.
UNREAD = (
    "*.rotary_emb.inv_freq",
    "vision_tower.*",
    "multi_modal_projector.*",
    "model.vision_tower.*",
    "model.multi_modal_projector.*",
)
FULL, SLIDING = "full_attention", "sliding_attention"


def read_config(fields: Fields, dtype: str) -> llama.Config:
    """Reads sizes from config.json. Raises ValueError for a field that the model does
    not support."""
    kind, stated = read_kind(fields)
    vocab, dim, mlp_dim, layers, heads = (field.size(stated, name) for name in SIZES)
    key_heads = field.size(stated, "num_key_value_heads", heads)
    if heads % key_heads:
        raise ValueError(
            f"config.json: num_attention_heads {heads} is not a multiple of"
            f" num_key_value_heads {key_heads}"
        )
    if stated["head_dim"] is None and dim % heads:
        raise ValueError(
            f"config.json: hidden_size {dim} is not a multiple of num_attention_heads"
            f" {heads}, and head_dim is missing"
        )
    width = field.size(stated, "head_dim", dim // heads)
    if width % 2:
        raise ValueError(f"config.json: heads are of even width, not {width}")
    positions = stated["max_position_embeddings"]
    if positions is not None:
        positions = field.size(stated, "max_position_embeddings")
    biased = kind.style == "qwen2" or field.truth(stated, "attention_bias", False)
    everywhere, nearby = read_rotation(stated, positions)
    window, local = _window(stated, layers)
    return llama.Config(
        vocab=vocab,
        dim=dim,
        mlp_dim=mlp_dim,
        num_layers=layers,
        num_heads=heads,
        key_heads=key_heads,
        head_width=width,
        style=kind.style,
        dtype=dtype,
        tied=field.truth(stated, TIE, False),
        biased=biased,
        out_biased=biased and kind.style != "qwen2",
        mlp_biased=field.truth(stated, "mlp_bias", False),
        eps=field.number(stated, "rms_norm_eps"),
        positions=positions,
        rotation=everywhere,
        local_rotation=nearby if local else None,
        window=window,
        local=local,
        scale=_scale(stated, width),
        score_cap=_cap_or_none(stated, "attn_logit_softcapping"),
        logit_cap=_cap_or_none(stated, "final_logit_softcapping"),
    )


def _window(stated: Fields, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """Returns how many tokens the local layers see, and which layers are local."""
    window = stated.get("sliding_window")
    if not field.truth(stated, "use_sliding_window", True):
        window = None
    types = stated.get("layer_types")
    if types is None:
        types = _types(stated, window, layers)
    if not isinstance(types, list) or len(types) != layers:
        raise ValueError(
            f"config.json: layer_types must name {layers} layers: {reprlib.repr(types)}"
        )
    for name in types:
        if name not in (FULL, SLIDING):
            raise ValueError(
                f"config.json: layer_types has {reprlib.repr(name)}; known are {FULL}"
                f" and {SLIDING}"
            )
    local = tuple(i for i, name in enumerate(types) if name == SLIDING)
    if not local:
        return None, ()
    return field.size(stated | {"sliding_window": window}, "sliding_window"), local


def _types(stated: Fields, window: int | None, layers: int) -> list[str]:
    """Returns the types of layers where they follow from the family alone."""
    if "max_window_layers" in stated:  # Qwen
        first = field.whole_number(stated, "max_window_layers") if window else layers
        local = [i >= first for i in range(layers)]
    elif "sliding_window_pattern" in stated:  # Gemma 3
        pattern = field.size(stated, "sliding_window_pattern")
        local = [(i + 1) % pattern > 0 for i in range(layers)]
    elif "query_pre_attn_scalar" in stated:  # Gemma 2
        local = [i % 2 == 0 for i in range(layers)]
    else:
        local = [window is not None] * layers
    return [SLIDING if each else FULL for each in local]


def _scale(stated: Fields, width: int) -> float | None:
    if "query_pre_attn_scalar" not in stated:
        return None
    scalar = field.number(stated, "query_pre_attn_scalar")
    return None if scalar == width else scalar**-0.5


def _cap_or_none(stated: Fields, name: str) -> float | None:
    return None if stated.get(name) is None else field.number(stated, name)


def ends(fields: Fields, config: llama.Config) -> tuple[int | None, tuple[int, ...]]:
    """Returns the ids that a text starts and ends with."""
    _, stated = read_kind(fields)
    start = field.token(stated, "bos_token_id", config.vocab)
    return start, field.tokens(stated, "eos_token_id", config.vocab)


def write_config(
    config: llama.Config, start: int | None, ends: tuple[int, ...]
) -> Fields:
    """Returns config.json of these sizes, as all versions of transformers read it.
    Raises ValueError for sizes that the format has no place for."""
    name = "gemma3_text" if config.style == "gemma3" else config.style
    kind = KINDS[name]
    sliding = [i in config.local for i in range(config.num_layers)]
    scalar = round((config.scale or config.head_width**-0.5) ** -2)
    may = {
        "attention_bias": config.biased,
        "mlp_bias": config.mlp_biased,
        "use_sliding_window": bool(config.local),
        "sliding_window": config.window,
        "max_window_layers": config.num_layers,
        "layer_types": [SLIDING if each else FULL for each in sliding],
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": config.score_cap,
        "final_logit_softcapping": config.logit_cap,
        **write_rotation(config),
    }
    if not config.local and "query_pre_attn_scalar" in kind.read:
        del may["sliding_window"]  # their class wants a number
    fields = {
        "architectures": [f"{kind.called}ForCausalLM"],
        "model_type": name,
        **dict(zip(SIZES, config, strict=False)),
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_width,
        "rms_norm_eps": config.eps,
        TIE: config.tied,
        "bos_token_id": start,
        "eos_token_id": field.stored_ids(ends),
        **{name: value for name, value in may.items() if name in kind.read},
    }
    gates = {"silu": "silu", "gelu": "gelu_pytorch_tanh"}
    later = name in ("gemma2", "gemma3_text")
    activation = "hidden_activation" if later else "hidden_act"
    fields[activation] = gates[llama.STYLES[config.style].gate]
    if config.positions is not None:
        fields["max_position_embeddings"] = config.positions
    _check_written(config, fields)
    return fields


def _check_written(config: llama.Config, fields: Fields) -> None:
    back = read_config(fields, config.dtype)
    unlike = [
        name
        for name, a, b in zip(config._fields, config, back, strict=True)
        if a != b and not _nearly_equal(a, b)
    ]
    if unlike:
        raise ValueError(
            f"{config.style}'s format of Hugging Face cannot say {', '.join(unlike)} of"
            f" this config: {reprlib.repr(getattr(config, unlike[0]))}"
        )


def _nearly_equal(a: Any, b: Any) -> bool:
    return isinstance(a, float) and math.isclose(a, b or 0)


def names(config: llama.Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Returns where each parameter lies in a file that holds `stored`, or in one to be
    written."""
    del fields
    held = (prefix for prefix in PREFIXES if prefix + EMBEDDING in stored)
    prefix = next(held, "model.")
    readout = PREFIXES[prefix] + READOUT
    table, copies = embedding_names(prefix + EMBEDDING, readout, config.tied, stored)
    found = {"embedding": Source(table), "norm/scale": Source(f"{prefix}norm.weight")}
    layer = _layer(config)
    for i in range(config.num_layers):
        found |= sources(layer, f"layers_{i}/", f"{prefix}layers.{i}.")
    if not config.tied:
        found["readout"] = Source(readout, transpose=True)
    return Names(found, copies, UNREAD)


def _layer(config: llama.Config) -> list[Row]:
    style, before_mlp = llama.STYLES[config.style], "post_attention_layernorm"
    norms = {"attention_norm": "input_layernorm"}
    if style.after:
        norms["attention_after_norm"] = before_mlp
        norms["mlp_after_norm"] = "post_feedforward_layernorm"
        before_mlp = "pre_feedforward_layernorm"
    norms["mlp_norm"] = before_mlp
    if style.normed:
        heads = ("query", "key")
        norms |= {f"attention/{x}_norm": f"self_attn.{x[0]}_norm" for x in heads}
    three = ("query", "key", "value")
    products = {f"attention/{x}": (f"{x[0]}_proj", config.biased) for x in three}
    products["attention/out"] = "o_proj", config.out_biased
    products = {x: (f"self_attn.{y}", biased) for x, (y, biased) in products.items()}
    for ours, module in {"gate": "gate", "in": "up", "out": "down"}.items():
        products[f"mlp/{ours}"] = f"mlp.{module}_proj", config.mlp_biased
    rows: list[Row] = [(ours, theirs, (SCALE,)) for ours, theirs in norms.items()]
    for ours, (module, biased) in products.items():
        rows.append((ours, module, PRODUCT if biased else UNBIASED))
    return rows
