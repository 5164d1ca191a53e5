"""T5, mT5, ByT5 and umT5 as Hugging Face stores them: names, and sizes in config.json.

Their matrices are [out, in], ours [in, out].
"""

from collections.abc import Collection

import jax

from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import (
    SCALE,
    UNBIASED,
    Names,
    Source,
    count_layers,
    sources,
)
from specjax.checkpoints.fields import Fields
from specjax.models import t5

MODEL_TYPE = "t5"
UMT5 = "umt5"  # each layer has its own position bias
MODEL_TYPES = (MODEL_TYPE, "mt5", UMT5)
GATES = {"gated-gelu": "gelu", "gated-silu": "silu"}
# The vocabulary of every published T5 and the pieces of it that are real: the other 28
# rows fill up a multiple of 128, were never trained, and have no text.
PADDED_VOCAB, PIECES = 32128, 32100
SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
READOUT = "lm_head.weight"
TIE = "tie_word_embeddings"
# The names of the layers of a stack, theirs and ours, by the size that counts them.
STACKS = {
    "encoder_layers": r"encoder(?:\.block\.|/layers_)(\d+)[./]",
    "decoder_layers": r"decoder(?:\.block\.|/layers_)(\d+)[./]",
}
SIZES = {
    "vocab": "vocab_size",
    "dim": "d_model",
    "mlp_dim": "d_ff",
    "encoder_layers": "num_layers",
    "num_heads": "num_heads",
    "head_width": "d_kv",
}
FIXED = {
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
}
# The parts of a block: as we call them and the norm before, and what is there.
PARTS = {
    "encoder": [("attention", "attention", "SelfAttention")],
    "decoder": [
        ("self_attention", "self_attention", "SelfAttention"),
        ("encoder_decoder_attention", "cross_attention", "EncDecAttention"),
    ],
}
for parts in PARTS.values():
    parts.append(("mlp", "mlp", "DenseReluDense"))
# Names that transformers takes as other names of the same sizes.
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
# An empty bias that early versions stored beside the one that is used.
UNREAD = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def read_config(fields: Fields, dtype: str) -> t5.Config:
    """Reads sizes from config.json. Raises ValueError for a field that the model does
    not support."""
    kind = fields.get("model_type", MODEL_TYPE)
    usual = "relu" if kind == MODEL_TYPE else "gated-gelu"
    field.check_known_values(fields, {"feed_forward_proj": ("relu", *GATES)})
    gate = GATES.get(fields.get("feed_forward_proj", usual))
    acts = {None: "relu", "gelu": "gelu_new", "silu": "silu"}
    field.refuse_read(fields, ("is_encoder_decoder", "tie_encoder_decoder"))
    field.same_sizes(fields, ALIASES)
    field.check_known_values(
        fields,
        {
            "is_gated_act": (gate is not None,),
            "dense_act_fn": (acts[gate],),
            **{name: (value,) for name, value in FIXED.items()},
            "tie_encoder_decoder": (False,),
            "tie_word_embeddings": (True, False),
            "scale_decoder_outputs": (True, False),
        },
    )
    sizes = field.sizes(fields, SIZES)
    layers = field.size(fields, "num_decoder_layers", sizes["encoder_layers"])
    config = t5.Config(
        **sizes,
        decoder_layers=layers,
        gated=gate is not None,
        # What sets v1.0 apart is that outputs are scaled; newer files say so by itself,
        # and mT5's never are.
        tied=kind != "mt5"
        and bool(fields.get("scale_decoder_outputs", fields.get(TIE, True))),
        dtype=dtype,
        own_bias=kind == UMT5,
        gate=gate or "gelu",
    )
    return with_pieces(config)


def with_pieces(config: t5.Config, pieces: int | None = None) -> t5.Config:
    """Returns the same sizes with a vocabulary of `pieces` pieces; None stands for the
    number in published models of this vocabulary, else for all ids. Raises ValueError
    for more pieces than ids."""
    vocab = config.vocab
    if pieces is None:
        pieces = PIECES if vocab == PADDED_VOCAB else vocab
    if not 1 <= pieces <= vocab:
        raise ValueError(f"pieces must be in 1..{vocab}, the vocabulary; got {pieces}")
    return config._replace(pieces=None if pieces == vocab else pieces)


def ends(fields: Fields, config: t5.Config) -> tuple[int | None, tuple[int, ...]]:
    """Returns the ids that a decoder's text starts and ends with. Raises ValueError
    where the fields name none."""
    vocab = config.vocab
    first = fields.get("model_type", MODEL_TYPE) != MODEL_TYPE  # has one of its own
    pad = field.token(fields, "pad_token_id", vocab, default=t5.PAD)
    usual = t5.PAD if first else pad
    start = field.token(fields, "decoder_start_token_id", vocab, default=usual)
    ends = field.tokens(fields, "eos_token_id", vocab, default=t5.END)
    if start is None or not ends:
        given = fields.get("decoder_start_token_id") is None and not first
        begins = "decoder_start_token_id"
        begins += ", or pad_token_id in its place," if given else ""
        name = begins if start is None else "eos_token_id"
        raise ValueError(f"config.json: {name} must be an id below vocab_size, {vocab}")
    return start, ends


def write_config(config: t5.Config, start: int | None, ends: tuple[int, ...]) -> Fields:
    """Returns config.json of these sizes; `pieces` has no place in it."""
    kind = UMT5 if config.own_bias else MODEL_TYPE
    called = "UMT5" if config.own_bias else "T5"
    scaled: Fields = {"scale_decoder_outputs": True} if config.scaled else {}
    return scaled | {
        "architectures": [f"{called}ForConditionalGeneration"],
        "model_type": kind,
        "is_encoder_decoder": True,
        **field.stored_sizes(config, SIZES),
        "num_decoder_layers": config.decoder_layers,
        "feed_forward_proj": f"gated-{config.gate}" if config.gated else "relu",
        TIE: config.tied,
        **FIXED,
        "pad_token_id": t5.PAD,
        "decoder_start_token_id": t5.PAD if start is None else start,
        "eos_token_id": field.stored_ids(ends or (t5.END,)),
    }


def names(config: t5.Config, fields: Fields, stored: Collection[str] = ()) -> Names:
    """Returns where each parameter lies in a file that holds `stored`, or in one to be
    written."""
    tables = SHARED + ((READOUT,) if config.tied else ())
    shared = next((name for name in tables if name in stored), SHARED[0])
    found = {"token_embedder/embedding": Source(shared)}
    found |= _stack("encoder", config.encoder_layers, config)
    found |= _stack("decoder", config.decoder_layers, config)
    if not config.tied:
        # Newer versions tie v1.1 models that were trained from nothing, unscaled.
        of = shared if fields.get(TIE, True) and READOUT not in stored else READOUT
        found["decoder/logits_dense/kernel"] = Source(of, transpose=True)
    copies = {name: shared for name in tables if name in stored and name != shared}
    return Names(found, copies, UNREAD)


def _stack(stack: str, layers: int, config: t5.Config) -> dict[str, Source]:
    found = sources([(f"{stack}/{stack}_norm", f"{stack}.final_layer_norm", (SCALE,))])
    for i in range(layers if config.own_bias else 1):
        to = f"{stack}/layers_{i}" if config.own_bias else stack
        of = f"{stack}.block.{i}.layer.0.SelfAttention.relative_attention_bias.weight"
        found[f"{to}/relpos_bias/rel_embedding"] = Source(of, transpose=True)
    attention = {"query": "q", "key": "k", "value": "v", "out": "o"}
    into = ("wi_0", "wi_1") if config.gated else ("wi",)
    mlp = {name: name for name in (*into, "wo")}
    block = []
    for place, (ours, norm, module) in enumerate(PARTS[stack]):
        at, kernels = f"layer.{place}", mlp if ours == "mlp" else attention
        block.append((f"pre_{norm}_layer_norm", f"{at}.layer_norm", (SCALE,)))
        for name, stored in kernels.items():
            block.append((f"{ours}/{name}", f"{at}.{module}.{stored}", UNBIASED))
    for i in range(layers):
        found |= sources(block, f"{stack}/layers_{i}/", f"{stack}.block.{i}.")
    return found


def infer_sizes(
    arrays: dict[str, jax.ShapeDtypeStruct], dtype: str, where: str
) -> t5.Config:
    """Infers sizes from the shapes of a T5X checkpoint's arrays, which have our names.
    Raises ValueError for arrays that are not a T5's."""
    each = "encoder/layers_0/relpos_bias/rel_embedding"
    first = (
        "token_embedder/embedding",
        each if each in arrays else "encoder/relpos_bias/rel_embedding",
        "encoder/layers_0/attention/query/kernel",
        "encoder/layers_0/mlp/wo/kernel",
    )
    missing = [name for name in first if name not in arrays]
    if missing:
        some = ", ".join(sorted(arrays)[:5])
        raise ValueError(f"{where} is not a T5: no {missing[0]} among {some}, ...")
    shapes = [arrays[name].shape for name in first]
    for name, shape in zip(first, shapes, strict=True):
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"{where} is not a T5: {name} is {shape}, not a matrix")
    table, bias, query, out = shapes
    if query[1] % bias[0]:
        raise ValueError(
            f"{where} is not a T5: {first[2]} is {query} for {bias[0]} heads, which"
            " divide its width"
        )
    vocab, dim = table
    layers = {name: count_layers(arrays, pattern) for name, pattern in STACKS.items()}
    config = t5.Config(
        vocab=vocab,
        dim=dim,
        mlp_dim=out[0],
        encoder_layers=layers["encoder_layers"],
        decoder_layers=layers["decoder_layers"],
        num_heads=bias[0],
        head_width=query[1] // bias[0],
        gated="encoder/layers_0/mlp/wi_0/kernel" in arrays,
        tied="decoder/logits_dense/kernel" not in arrays,
        dtype=dtype,
        own_bias=each in arrays,
    )
    return with_pieces(config)
