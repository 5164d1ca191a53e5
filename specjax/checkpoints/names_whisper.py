"""Whisper and Distil-Whisper as Hugging Face stores them: names, and sizes in
config.json.

Their matrices are [out, in], ours [in, out]; so are a convolution's, with the frames of
a window last, where ours come first.
"""

from collections.abc import Callable, Collection

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import (
    NORM,
    PRODUCT,
    UNBIASED,
    Names,
    Row,
    Source,
    sources,
)
from specjax.checkpoints.fields import Fields
from specjax.models import whisper
from specjax.models.whisper import Config

FAMILY, MODEL_TYPES, MODELS = "whisper", ("whisper",), whisper
PREFIX, READOUT = "model.", "proj_out.weight"
EMBEDDING = "decoder.embed_tokens.weight"
# The layers of a stack, by the size that counts them, as they and as we call them.
STACKS = {
    "encoder_layers": r"(?:model\.)?encoder(?:\.layers\.|/layers_)(\d+)[./]",
    "decoder_layers": r"(?:model\.)?decoder(?:\.layers\.|/layers_)(\d+)[./]",
}
CONVOLUTIONS = [(f"encoder/conv_{i}", f"encoder.conv{i + 1}", PRODUCT) for i in (0, 1)]
# Attentions of a layer as we call them, and as they do.
STACKED = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"attention": "self_attn", "cross_attention": "encoder_attn"},
}
MLP = (
    ("mlp_norm", "final_layer_norm", NORM),
    ("mlp/in", "fc1", PRODUCT),
    ("mlp/out", "fc2", PRODUCT),
)
# Names of sizes that both stacks must have alike.
ALIKE = {
    "mlp_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
}
SIZES = {
    "vocab": "vocab_size",
    "dim": "d_model",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "bands": "num_mel_bins",
    "positions": "max_target_positions",
}
CAN = {
    "activation_function": ("gelu",),
    "scale_embedding": (False,),
    "tie_word_embeddings": (True,),
}
STATES = "max_source_positions"
# Names that transformers takes for others.
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_key_value_heads": "encoder_attention_heads",
}


def read_config(fields: Fields, dtype: str) -> Config:
    """Sizes from config.json."""
    field.only(fields, CAN)
    field.refuse_read(fields, ("is_encoder_decoder",))
    field.same_sizes(fields, ALIASES)
    sizes = field.sizes(fields, SIZES)
    for ours, names in ALIKE.items():
        encoder, decoder = (field.size(fields, name) for name in names)
        if encoder != decoder:
            raise ValueError(
                f"config.json: {names[0]} is {encoder} and {names[1]} {decoder}: known"
                " are models that have them alike"
            )
        sizes[ours] = encoder
    frames = 2 * field.size(fields, STATES)
    config = Config(**sizes, frames=frames, dtype=dtype)
    if config.dim % config.num_heads or config.dim % 2:
        raise ValueError(
            f"config.json: d_model {config.dim} is no multiple of 2 and of the"
            f" {config.num_heads} heads"
        )
    return config


def ends(fields: Fields, config: Config) -> tuple[int | None, tuple[int, ...]]:
    """The ids that a decoder's text starts and ends with."""
    start = field.token(fields, "decoder_start_token_id", None, config.vocab)
    return start, field.tokens(fields, "eos_token_id", None, config.vocab)


def write_config(config: Config, start: int | None, ends: tuple[int, ...]) -> Fields:
    """config.json of these sizes."""
    each = ((name, ours) for ours, names in ALIKE.items() for name in names)
    alike = {name: getattr(config, ours) for name, ours in each}
    known = {name: values[0] for name, values in CAN.items()}
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": MODEL_TYPES[0],
        "is_encoder_decoder": True,
        **field.written_sizes(config, SIZES),
        **alike,
        STATES: config.states,
        **known,
        "pad_token_id": next(iter(ends), None),
        "bos_token_id": next(iter(ends), None),
        "eos_token_id": field.written(ends),
        "decoder_start_token_id": start,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }


def names(config: Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Of a file that holds `stored`, or of one to be written."""
    del fields
    prefix = "" if EMBEDDING in stored else PREFIX
    table = prefix + EMBEDDING
    if table not in stored and READOUT in stored:
        table = READOUT
    found = {
        "encoder/positions": Source(f"{prefix}encoder.embed_positions.weight"),
        "decoder/embedding": Source(table),
        "decoder/positions": Source(f"{prefix}decoder.embed_positions.weight"),
    }
    found |= sources(CONVOLUTIONS, of=prefix)
    for stack, parts in STACKED.items():
        last = [(f"{stack}/norm", f"{stack}.layer_norm", NORM)]
        found |= sources(last, of=prefix)
        three = "{0[0]}_proj".format
        layer = (*attentions(parts, "{}_layer_norm", three, "out_proj"), *MLP)
        for i in range(getattr(config, f"{stack}_layers")):
            of = f"{prefix}{stack}.layers.{i}."
            found |= sources(layer, f"{stack}/layers_{i}/", of)
    repeated = READOUT in stored and table != READOUT
    return Names(found, {READOUT: table} if repeated else {})


def attentions(
    parts: dict[str, str], norm: str, product: Callable, out: str
) -> list[Row]:
    """Attentions of a layer: theirs by ours; how the norm before one is called, and its
    products. Keys have no bias."""
    rows: list[Row] = []
    for ours, theirs in parts.items():
        rows.append((f"{ours}_norm", norm.format(theirs), NORM))
        names = {name: product(name) for name in ("query", "key", "value")}
        for name, stored in (names | {"out": out}).items():
            kind = UNBIASED if name == "key" else PRODUCT
            rows.append((f"{ours}/{name}", f"{theirs}.{stored}", kind))
    return rows
