"""GPT-2 as Hugging Face stores it: names, and sizes in config.json.

Their matrices are [in, out] as ours; queries, keys and values are one matrix.
"""

from collections.abc import Collection

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import (
    AS_OURS,
    BIAS,
    NORM,
    Names,
    Part,
    Source,
    embedding_names,
    sources,
)
from specjax.checkpoints.fields import Fields
from specjax.models import gpt

MODEL_TYPES = ("gpt2",)
PREFIX, EMBEDDING, READOUT = "transformer.", "wte.weight", "lm_head.weight"
MASKS = ("h.*.attn.bias", "h.*.attn.masked_bias")  # of earlier versions
TIE = "tie_word_embeddings"
END = 50256  # starts a text and ends one, where config.json does not say
# Names that transformers takes as other names of the same sizes.
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
SIZES = {
    "vocab": "vocab_size",
    "dim": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "positions": "n_positions",
}
# The values that the model can do; the first is the one that is written.
CAN = {
    # Both are the approximation of GELU by a tanh.
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    TIE: (True, False),
    "is_encoder_decoder": (False,),
}
LAYER = (
    ("attention_norm", "ln_1", NORM),
    ("mlp_norm", "ln_2", NORM),
    ("attention/out", "attn.c_proj", (AS_OURS, BIAS)),
    ("mlp/in", "mlp.c_fc", (AS_OURS, BIAS)),
    ("mlp/out", "mlp.c_proj", (AS_OURS, BIAS)),
)
for part, ours in enumerate(("query", "key", "value")):
    kind = (*AS_OURS, Part(1, part, 3)), (*BIAS, Part(0, part, 3))
    LAYER += ((f"attention/{ours}", "attn.c_attn", kind),)
# The layers, by the size that counts them, as they and as we call them.
STACKS = {"num_layers": r"(?:transformer\.)?(?:h\.|layers_)(\d+)[./]"}


def read_config(fields: Fields, dtype: str) -> gpt.Config:
    """Reads sizes from config.json. Raises ValueError for a field that the model does
    not support."""
    field.refuse_read(fields, ("add_cross_attention", "is_encoder_decoder"))
    field.same_sizes(fields, ALIASES)
    field.check_known_values(fields, CAN)
    sizes = field.sizes(fields, SIZES)
    dim, heads = sizes["dim"], sizes["num_heads"]
    if dim % heads:
        raise ValueError(
            f"config.json: n_embd {dim} is not a multiple of n_head {heads}"
        )
    inner, tied = field.size(fields, "n_inner", 4 * dim), fields.get(TIE, True)
    return gpt.Config(**sizes, mlp_dim=inner, dtype=dtype, learned=True, tied=tied)


def ends(fields: Fields, config: gpt.Config) -> tuple[int | None, tuple[int, ...]]:
    """Returns the ids that a text starts and ends with."""
    vocab = config.vocab
    start = field.token(fields, "bos_token_id", vocab, default=END)
    return start, field.tokens(fields, "eos_token_id", vocab, default=END)


def write_config(
    config: gpt.Config, start: int | None, ends: tuple[int, ...]
) -> Fields:
    """Returns config.json of these sizes. Raises ValueError for what GPT-2 cannot
    do."""
    if config.positions is None or not config.learned:
        raise ValueError(
            "GPT-2's format has learned positions, norms and biases, and this model has"
            " not: write it with specjax.zoo.save"
        )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": MODEL_TYPES[0],
        **field.stored_sizes(config, SIZES),
        "n_inner": config.mlp_dim,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        TIE: config.tied,
        "bos_token_id": start,
        "eos_token_id": field.stored_ids(ends),
    }


def names(config: gpt.Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Returns where each parameter lies in a file that holds `stored`, or in one to be
    written."""
    del fields
    bare = EMBEDDING in stored or "wpe.weight" in stored
    prefix = "" if bare else PREFIX
    table, copies = embedding_names(prefix + EMBEDDING, READOUT, config.tied, stored)
    found = {"embedding": Source(table), "positions": Source(f"{prefix}wpe.weight")}
    found |= sources([("norm", "ln_f", NORM)], stored_prefix=prefix)
    for i in range(config.num_layers):
        found |= sources(LAYER, f"layers_{i}/", f"{prefix}h.{i}.")
    if not config.tied:
        found["readout"] = Source(READOUT, transpose=True)
    return Names(found, copies, tuple(prefix + mask for mask in MASKS))
