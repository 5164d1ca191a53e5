"""Whisper and Distil-Whisper as Hugging Face stores them: names, and sizes in
config.json.

Their matrices are [out, in], ours [in, out]; so are a convolution's, with the frames of
a window last, where ours come first.
"""

from collections.abc import Callable, Collection, Iterable

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import (
    NORM,
    PRODUCT,
    UNBIASED,
    Names,
    Row,
    Source,
    embedding_names,
    sources,
)
from specjax.checkpoints.fields import Fields
from specjax.models.whisper import Config

Layers = dict[str, list[Row]]  # of each stack, the parts of a layer


def layers(
    *,
    own: str,
    cross: str,
    norm: str,
    product: Callable[[str], str],
    out: str,
    mlp: Iterable[Row],
) -> Layers:
    """Returns the parts of the layers of both stacks in a format. Keys have no bias.

    Args:
      own, cross: the names of a layer's attentions.
      norm: a pattern of the name of the norm before one.
      product, out: the names of its products.
      mlp: the parts of the feed-forward layer.
    """
    named = {"attention": own, "cross_attention": cross}
    parts: Layers = {name: [] for name in named}
    for ours, theirs in named.items():
        parts[ours].append((f"{ours}_norm", norm.format(theirs), NORM))
        products = {name: product(name) for name in ("query", "key", "value")}
        for name, stored in (products | {"out": out}).items():
            kind = UNBIASED if name == "key" else PRODUCT
            parts[ours].append((f"{ours}/{name}", f"{theirs}.{stored}", kind))
    encoder = [*parts["attention"], *mlp]
    return {"encoder": encoder, "decoder": [*parts["cross_attention"], *encoder]}


def layer_sources(config: Config, layers: Layers, at: str) -> dict[str, Source]:
    """Returns the sources of all layers of both stacks. at: a pattern of how their
    names begin, given the stack and the number of a layer."""
    found: dict[str, Source] = {}
    for stack, rows in layers.items():
        for i in range(getattr(config, f"{stack}_layers")):
            found |= sources(rows, f"{stack}/layers_{i}/", at.format(stack, i))
    return found


MODEL_TYPES = ("whisper",)
PREFIX, READOUT = "model.", "proj_out.weight"
EMBEDDING = "decoder.embed_tokens.weight"
# The names of the layers of a stack, theirs and ours, by the size that counts them.
STACKS = {
    "encoder_layers": r"(?:model\.)?encoder(?:\.layers\.|/layers_)(\d+)[./]",
    "decoder_layers": r"(?:model\.)?decoder(?:\.layers\.|/layers_)(\d+)[./]",
}
CONVOLUTIONS = [(f"encoder/conv_{i}", f"encoder.conv{i + 1}", PRODUCT) for i in (0, 1)]
LAST = [(f"{x}/norm", f"{x}.layer_norm", NORM) for x in ("encoder", "decoder")]
MLP = (
    ("mlp_norm", "final_layer_norm", NORM),
    ("mlp/in", "fc1", PRODUCT),
    ("mlp/out", "fc2", PRODUCT),
)
LAYERS = layers(
    own="self_attn",
    cross="encoder_attn",
    norm="{}_layer_norm",
    product="{0[0]}_proj".format,
    out="out_proj",
    mlp=MLP,
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
START, END = 50257, 50256  # where config.json does not say
# Names that transformers takes as other names of the same sizes.
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_key_value_heads": "encoder_attention_heads",
}


def read_config(fields: Fields, dtype: str) -> Config:
    """Reads sizes from config.json. Raises ValueError for a field that the model does
    not support."""
    field.check_known_values(fields, CAN)
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
            f"config.json: d_model {config.dim} is not a multiple of 2 and of the"
            f" {config.num_heads} heads"
        )
    return config


def ends(fields: Fields, config: Config) -> tuple[int | None, tuple[int, ...]]:
    """Returns the ids that a decoder's text starts and ends with."""
    vocab = config.vocab
    start = field.token(fields, "decoder_start_token_id", vocab, default=START)
    return start, field.tokens(fields, "eos_token_id", vocab, default=END)


def write_config(config: Config, start: int | None, ends: tuple[int, ...]) -> Fields:
    """Returns config.json of these sizes."""
    each = ((name, ours) for ours, names in ALIKE.items() for name in names)
    alike = {name: getattr(config, ours) for name, ours in each}
    known = {name: values[0] for name, values in CAN.items()}
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": MODEL_TYPES[0],
        "is_encoder_decoder": True,
        **field.stored_sizes(config, SIZES),
        **alike,
        STATES: config.states,
        **known,
        "pad_token_id": next(iter(ends), None),
        "bos_token_id": next(iter(ends), None),
        "eos_token_id": field.stored_ids(ends),
        "decoder_start_token_id": start,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }


def names(config: Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Returns where each parameter lies in a file that holds `stored`, or in one to be
    written."""
    del fields
    prefix = "" if EMBEDDING in stored else PREFIX
    table, copies = embedding_names(prefix + EMBEDDING, READOUT, True, stored)
    found = {
        "encoder/positions": Source(f"{prefix}encoder.embed_positions.weight"),
        "decoder/embedding": Source(table),
        "decoder/positions": Source(f"{prefix}decoder.embed_positions.weight"),
    }
    found |= sources((*CONVOLUTIONS, *LAST), stored_prefix=prefix)
    found |= layer_sources(config, LAYERS, prefix + "{}.layers.{}.")
    return Names(found, copies)
