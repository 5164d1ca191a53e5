"""GPT-2 as Hugging Face stores it: names, and sizes in config.json.

Their matrices are [in, out] as ours; queries, keys and values are one matrix.
"""

from collections.abc import Collection

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import Names, Part, Source
from specjax.checkpoints.fields import Fields
from specjax.models import gpt

FAMILY, MODEL_TYPE, MODELS = "gpt", "gpt2", gpt
PREFIX, EMBEDDING, READOUT = "transformer.", "wte.weight", "lm_head.weight"
MASKS = ("h.*.attn.bias", "h.*.attn.masked_bias")  # of earlier versions
TIE = "tie_word_embeddings"
# Names that transformers takes for others.
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
# The layers, by the size that counts them, as they and as we call them.
STACKS = {"num_layers": r"(?:transformer\.)?(?:h\.|layers_)(\d+)[./]"}


def read_config(fields: Fields, dtype: str) -> gpt.Config:
    """Sizes from config.json. Raises ValueError for a field that the model cannot
    do."""
    field.refuse_read(fields, ("add_cross_attention", "is_encoder_decoder"))
    field.same_sizes(fields, ALIASES)
    field.only(
        fields,
        {
            # Both are the approximation of GELU by a tanh.
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
            "layer_norm_epsilon": (1e-5,),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
            TIE: (True, False),
            "is_encoder_decoder": (False,),
        },
    )
    dim, heads = field.size(fields, "n_embd"), field.size(fields, "n_head")
    if dim % heads:
        raise ValueError(f"config.json: n_embd {dim} is no multiple of n_head {heads}")
    return gpt.Config(
        field.size(fields, "vocab_size"),
        dim,
        field.size(fields, "n_inner", 4 * dim),
        field.size(fields, "n_layer"),
        heads,
        dtype,
        positions=field.size(fields, "n_positions"),
        learned=True,
        tied=fields.get(TIE, True),
    )


def ends(fields: Fields, config: gpt.Config) -> tuple[int | None, tuple[int, ...]]:
    """The ids that a text starts and ends with."""
    vocab = config.vocab
    start = field.token(fields, "bos_token_id", None, vocab)
    return start, field.tokens(fields, "eos_token_id", None, vocab)


def write_config(
    config: gpt.Config, start: int | None, ends: tuple[int, ...]
) -> Fields:
    """config.json of these sizes. Raises ValueError for what GPT-2 cannot do."""
    if config.positions is None or not config.learned:
        raise ValueError(
            "GPT-2's format has learned positions, norms and biases, and this model has"
            " not: write it with specjax.zoo.save"
        )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": MODEL_TYPE,
        "vocab_size": config.vocab,
        "n_embd": config.dim,
        "n_inner": config.mlp_dim,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_positions": config.positions,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        TIE: config.tied,
        "bos_token_id": start,
        "eos_token_id": field.written(ends),
    }


def names(config: gpt.Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Of a file that holds `stored`, or of one to be written."""
    del fields
    bare = EMBEDDING in stored or "wpe.weight" in stored
    prefix = "" if bare else PREFIX
    table = prefix + EMBEDDING
    if config.tied and table not in stored and READOUT in stored:
        table = READOUT
    sources = {
        "embedding": Source(table),
        "positions": Source(f"{prefix}wpe.weight"),
        **_norm("norm", f"{prefix}ln_f"),
    }
    for i in range(config.num_layers):
        sources |= _layer(f"layers_{i}", f"{prefix}h.{i}")
    if not config.tied:
        sources["readout"] = Source(READOUT, transpose=True)
    repeated = config.tied and READOUT in stored and table != READOUT
    masks = tuple(prefix + mask for mask in MASKS)
    return Names(sources, {READOUT: table} if repeated else {}, masks)


def _norm(to: str, of: str) -> dict[str, Source]:
    return {f"{to}/scale": Source(f"{of}.weight"), f"{to}/bias": Source(f"{of}.bias")}


def _layer(to: str, of: str) -> dict[str, Source]:
    sources = _norm(f"{to}/attention_norm", f"{of}.ln_1")
    sources |= _norm(f"{to}/mlp_norm", f"{of}.ln_2")
    products = {
        "attention/out": "attn.c_proj",
        "mlp/in": "mlp.c_fc",
        "mlp/out": "mlp.c_proj",
    }
    for ours, module in products.items():
        sources[f"{to}/{ours}/kernel"] = Source(f"{of}.{module}.weight")
        sources[f"{to}/{ours}/bias"] = Source(f"{of}.{module}.bias")
    for i, ours in enumerate(("query", "key", "value")):
        kernel, bias = (Part(axis, i, 3) for axis in (1, 0))
        fused = f"{of}.attn.c_attn"
        sources[f"{to}/attention/{ours}/kernel"] = Source(
            f"{fused}.weight", part=kernel
        )
        sources[f"{to}/attention/{ours}/bias"] = Source(f"{fused}.bias", part=bias)
    return sources
