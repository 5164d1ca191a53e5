"""Whisper and Distil-Whisper as Hugging Face stores them: names, and sizes in
config.json.

Their matrices are [out, in], ours [in, out]; so are a convolution's, with the frames of
a window last, where ours come first.
"""

from collections.abc import Collection

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import Names, Source
from specjax.checkpoints.fields import Fields
from specjax.models import whisper
from specjax.models.whisper import Config

FAMILY, MODEL_TYPE, MODELS = "whisper", "whisper", whisper
PREFIX, READOUT = "model.", "proj_out.weight"
EMBEDDING = "decoder.embed_tokens.weight"
# The layers of a stack, by the size that counts them, as they and as we call them.
STACKS = {
    "encoder_layers": r"(?:model\.)?encoder(?:\.layers\.|/layers_)(\d+)[./]",
    "decoder_layers": r"(?:model\.)?decoder(?:\.layers\.|/layers_)(\d+)[./]",
}
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
    """Sizes from config.json. Raises ValueError, by its name, for a field that would
    change what is computed."""
    field.only(fields, CAN)
    field.refuse_read(fields, ("is_encoder_decoder",))
    field.same_sizes(fields, ALIASES)
    sizes = {ours: field.size(fields, name) for ours, name in SIZES.items()}
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
    end = field.written(ends)
    sizes = config._asdict()
    alike = {name: sizes[ours] for ours, names in ALIKE.items() for name in names}
    plain = {name: sizes[ours] for ours, name in SIZES.items()}
    known = {name: values[0] for name, values in CAN.items()}
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": MODEL_TYPE,
        "is_encoder_decoder": True,
        **plain,
        **alike,
        STATES: config.states,
        **known,
        "pad_token_id": next(iter(ends), None),
        "bos_token_id": next(iter(ends), None),
        "eos_token_id": end,
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
    sources = {
        "encoder/positions": Source(f"{prefix}encoder.embed_positions.weight"),
        "decoder/embedding": Source(table),
        "decoder/positions": Source(f"{prefix}decoder.embed_positions.weight"),
    }
    for i in range(2):
        sources |= product(f"encoder/conv_{i}", f"{prefix}encoder.conv{i + 1}")
    for stack in ("encoder", "decoder"):
        sources |= norm(f"{stack}/norm", f"{prefix}{stack}.layer_norm")
        for i in range(getattr(config, f"{stack}_layers")):
            of = f"{prefix}{stack}.layers.{i}"
            sources |= _layer(f"{stack}/layers_{i}", of, stack == "decoder")
    repeated = READOUT in stored and table != READOUT
    return Names(sources, {READOUT: table} if repeated else {})


def norm(to: str, of: str) -> dict[str, Source]:
    return {f"{to}/scale": Source(f"{of}.weight"), f"{to}/bias": Source(f"{of}.bias")}


def product(to: str, of: str, bias: bool = True) -> dict[str, Source]:
    """A product or a convolution."""
    sources = {f"{to}/kernel": Source(f"{of}.weight", transpose=True)}
    return sources | ({f"{to}/bias": Source(f"{of}.bias")} if bias else {})


def _layer(to: str, of: str, decodes: bool) -> dict[str, Source]:
    parts = {"attention": "self_attn"}
    if decodes:
        parts["cross_attention"] = "encoder_attn"
    sources = norm(f"{to}/mlp_norm", f"{of}.final_layer_norm")
    for ours, module in parts.items():
        sources |= norm(f"{to}/{ours}_norm", f"{of}.{module}_layer_norm")
        for name in ("query", "key", "value", "out"):
            stored = "out_proj" if name == "out" else f"{name[0]}_proj"
            at = f"{to}/{ours}/{name}", f"{of}.{module}.{stored}"
            sources |= product(*at, bias=name != "key")
    for ours, module in (("in", "fc1"), ("out", "fc2")):
        sources |= product(f"{to}/mlp/{ours}", f"{of}.{module}")
    return sources
