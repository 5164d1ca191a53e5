"""Llama, Mistral, Qwen and Gemma as Hugging Face stores them: names, and sizes.

Their matrices are [out, in], ours [in, out]. What config.json says of a family is in
`kinds`, of rotary positions in `rotation`.
"""

import math
import reprlib
from collections.abc import Collection

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import Names, Source
from specjax.checkpoints.fields import Fields
from specjax.checkpoints.names_llama import kinds, rotation
from specjax.checkpoints.names_llama.kinds import SIZES, TIE
from specjax.models import llama

FAMILY, MODELS = "llama", llama
MODEL_TYPES = (*kinds.KINDS, *kinds.WITHIN)
READOUT = "lm_head.weight"
# Where a text model's names may be, whole or inside of another, its readout beside it.
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
    """Sizes from config.json. Raises ValueError for a field that the model cannot do or
    that is not known."""
    kind, stated = kinds.of(fields)
    vocab, dim, mlp_dim, layers, heads = (field.size(stated, name) for name in SIZES)
    key_heads = field.size(stated, "num_key_value_heads", heads)
    if heads % key_heads:
        raise ValueError(
            f"config.json: num_attention_heads {heads} is no multiple of"
            f" num_key_value_heads {key_heads}"
        )
    if stated["head_dim"] is None and dim % heads:
        raise ValueError(
            f"config.json: hidden_size {dim} is no multiple of num_attention_heads"
            f" {heads}, and head_dim is missing"
        )
    width = field.size(stated, "head_dim", dim // heads)
    if width % 2:
        raise ValueError(f"config.json: heads are of even width, not {width}")
    positions = stated["max_position_embeddings"]
    if positions is not None:
        positions = field.size(stated, "max_position_embeddings")
    biased = kind.style == "qwen2" or field.truth(stated, "attention_bias", False)
    everywhere, nearby = rotation.read(stated, positions)
    window, local = _window(stated, layers)
    return llama.Config(
        vocab,
        dim,
        mlp_dim,
        layers,
        heads,
        key_heads,
        width,
        kind.style,
        dtype,
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
        score_cap=_cap(stated, "attn_logit_softcapping"),
        logit_cap=_cap(stated, "final_logit_softcapping"),
    )


def _window(stated: Fields, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """How many tokens the local layers see, and which layers these are."""
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
    """What layers see where nothing but the family says it."""
    if "max_window_layers" in stated:  # Qwen
        first = field.whole(stated, "max_window_layers") if window else layers
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


def _cap(stated: Fields, name: str) -> float | None:
    return None if stated.get(name) is None else field.number(stated, name)


def ends(fields: Fields, config: llama.Config) -> tuple[int | None, tuple[int, ...]]:
    """The ids that a text starts and ends with."""
    _, stated = kinds.of(fields)
    start = field.token(stated, "bos_token_id", None, config.vocab)
    return start, field.tokens(stated, "eos_token_id", None, config.vocab)


def write_config(
    config: llama.Config, start: int | None, ends: tuple[int, ...]
) -> Fields:
    """config.json of these sizes, as all versions of transformers read it. Raises
    ValueError for what the family's format cannot say."""
    name = "gemma3_text" if config.style == "gemma3" else config.style
    kind = kinds.KINDS[name]
    sliding = [i in config.local for i in range(config.num_layers)]
    may = {
        "attention_bias": config.biased,
        "mlp_bias": config.mlp_biased,
        "use_sliding_window": bool(config.local),
        "sliding_window": config.window,
        "max_window_layers": config.num_layers,
        "layer_types": [SLIDING if each else FULL for each in sliding],
        "query_pre_attn_scalar": _scalar(config),
        "attn_logit_softcapping": config.score_cap,
        "final_logit_softcapping": config.logit_cap,
        **rotation.write(config),
    }
    if not config.local and "query_pre_attn_scalar" in kind.read:
        del may["sliding_window"]  # their class wants a number
    fields = {
        "architectures": [f"{kind.called}ForCausalLM"],
        "model_type": name,
        "vocab_size": config.vocab,
        "hidden_size": config.dim,
        "intermediate_size": config.mlp_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_width,
        "rms_norm_eps": config.eps,
        TIE: config.tied,
        "bos_token_id": start,
        "eos_token_id": field.written(ends),
        **{name: value for name, value in may.items() if name in kind.read},
    }
    activation = "hidden_act" if name not in ("gemma2", "gemma3_text") else None
    gate = {"silu": "silu", "gelu": "gelu_pytorch_tanh"}[
        llama.STYLES[config.style].gate
    ]
    fields[activation or "hidden_activation"] = gate
    if config.positions is not None:
        fields["max_position_embeddings"] = config.positions
    _check_written(config, fields)
    return fields


def _scalar(config: llama.Config) -> int:
    """What scores are divided by the root of, in their whole numbers."""
    return round((config.scale or config.head_width**-0.5) ** -2)


def _check_written(config: llama.Config, fields: Fields) -> None:
    back = read_config(fields, config.dtype)
    unlike = [
        name
        for name, a, b in zip(config._fields, config, back, strict=True)
        if a != b and not (isinstance(a, float) and math.isclose(a, b or 0))
    ]
    if unlike:
        raise ValueError(
            f"{config.style}'s format of Hugging Face cannot say {', '.join(unlike)} of"
            f" this config: {reprlib.repr(getattr(config, unlike[0]))}"
        )


def names(config: llama.Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Of a file that holds `stored`, or of one to be written."""
    del fields
    held = (prefix for prefix in PREFIXES if prefix + EMBEDDING in stored)
    prefix = next(held, "model.")
    table, readout = prefix + EMBEDDING, PREFIXES[prefix] + READOUT
    if config.tied and table not in stored and READOUT in stored:
        table = READOUT
    sources = {"embedding": Source(table), "norm/scale": Source(f"{prefix}norm.weight")}
    for i in range(config.num_layers):
        sources |= _layer(f"layers_{i}", f"{prefix}layers.{i}", config)
    if not config.tied:
        sources["readout"] = Source(readout, transpose=True)
    repeated = config.tied and readout in stored and table != readout
    return Names(sources, {readout: table} if repeated else {}, UNREAD)


def _layer(to: str, of: str, config: llama.Config) -> dict[str, Source]:
    style = llama.STYLES[config.style]
    norms = {
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
    }
    if style.after:
        norms |= {
            "attention_after_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "mlp_after_norm": "post_feedforward_layernorm",
        }
    if style.normed:
        norms |= {
            f"attention/{x}_norm": f"self_attn.{x[0]}_norm" for x in ("query", "key")
        }
    sources = {
        f"{to}/{ours}/scale": Source(f"{of}.{name}.weight")
        for ours, name in norms.items()
    }
    biased = {"query": config.biased, "key": config.biased, "value": config.biased}
    products = {
        **{f"attention/{x}": (f"self_attn.{x[0]}_proj", biased[x]) for x in biased},
        "attention/out": ("self_attn.o_proj", config.out_biased),
        "mlp/gate": ("mlp.gate_proj", config.mlp_biased),
        "mlp/in": ("mlp.up_proj", config.mlp_biased),
        "mlp/out": ("mlp.down_proj", config.mlp_biased),
    }
    for ours, (module, has_bias) in products.items():
        sources[f"{to}/{ours}/kernel"] = Source(f"{of}.{module}.weight", transpose=True)
        if has_bias:
            sources[f"{to}/{ours}/bias"] = Source(f"{of}.{module}.bias")
    return sources
