"""Heads that read the target: EAGLE-3 in the folders of speculators.

A folder has config.json and safetensors, as speculators writes them for vLLM. Places of
the target that are tapped are counted as there: k is what enters layer k, see
`types.Hidden`; SGLang, SpecForge and z-lab count the outputs of layers, and say k - 1.
Axes: D features of the target, V its ids.
"""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specjax.checkpoints import Pretrained, archive, int8_weights, names_llama
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import PRODUCT, SCALE, UNBIASED
from specjax.checkpoints.fields import Fields
from specjax.checkpoints.huggingface import CONFIG, WHOLE
from specjax.drafters import eagle3
from specjax.drafts.models import chain_source
from specjax.drafts.source import REDUCED_VOCAB, SAMPLED, DraftSource, recipe
from specjax.models import families
from specjax.models.llama import STYLES
from specjax.types import Model

KIND = "speculators_model_type"
PLACES = "eagle_aux_hidden_state_layer_ids"
RESIDUAL = "norm_before_residual"
D2T, T2D = "d2t", "t2d"
EMBEDDING = "embed_tokens.weight"
# Of training alone.
UNREAD = (T2D, D2T, "verifier_lm_head.weight", "verifier_norm.weight")


class Eagle3(NamedTuple):
    """A head in a folder: its sizes, its own parameters, and d2t or None."""

    config: eagle3.Config
    params: Any
    offsets: np.ndarray | None


def is_folder(name: str | Path) -> bool:
    """Returns whether this is the folder of a head."""
    file = Path(name) / CONFIG
    return file.is_file() and KIND in field.read(file)


def load_head(folder: Path, target: Pretrained) -> DraftSource:
    """Returns the draft of the head in a folder, for the target that it was trained
    for.

    Its readout and its product over taps are its own; the embedding is the target's
    unless the folder has one. How a file recommends to accept tokens is not followed.
    Raises ValueError for a head of another kind, one that does not say what it needs,
    or one of another target; before any weight is read.
    """
    read = read_eagle3(folder, target)
    params = eagle3.parameters(read.config, read.params, target.params, read.offsets)
    places = ", ".join(map(str, read.config.taps))
    name = f"{folder.name}, of states that enter layers {places}"
    return eagle3_source(name, read.config, params)._replace(files=files_of(folder))


def files_of(folder: Path) -> tuple[Path, ...]:
    """Returns the files of a head's folder."""
    return folder / CONFIG, folder / WHOLE


def eagle3_source(name: str, config: eagle3.Config, params: Any) -> DraftSource:
    """Returns the draft of a head by its parameters, see `eagle3.parameters`."""
    model = recipe(_eagle3, config=config)
    made = Pretrained(name, None, model(), params, config.layer.dtype)
    regime = SAMPLED if config.draft_vocab is None else REDUCED_VOCAB
    source = chain_source(made, model, regime=regime)
    # What it drafts depends on the target's states, so it has no law of tokens alone.
    return source._replace(law=None, taps=config.taps)


@functools.cache
def _eagle3(config: eagle3.Config) -> Model:
    return eagle3.head(config)


def read_eagle3(folder: Path, target: Pretrained) -> Eagle3:
    """Reads the head in a folder. Raises ValueError as `load_head`."""
    fields = field.read(folder / CONFIG)
    arrays = archive.open_safetensors([folder / WHOLE], str(folder))
    dtype = str(int8_weights.activations(target.dtype))
    own = EMBEDDING in arrays.arrays
    try:
        config = read_config(fields, target, dtype=dtype, own_embedding=own)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    shapes = eagle3.abstract_params(config)
    sources = names(config)
    archive.check(arrays, sources, shapes, harmless=UNREAD)
    offsets = None
    if config.draft_vocab is not None:
        offsets = read_offsets(arrays, config.layer.vocab)
    params = archive.fill(arrays, sources, shapes, dtype=dtype)
    return Eagle3(config, params, offsets)


def read_config(
    fields: Fields, target: Pretrained, *, dtype: str, own_embedding: bool
) -> eagle3.Config:
    """Returns the sizes of a head for a target, by the fields of its config.json.

    Raises ValueError for fields that say another kind, another target or nothing where
    heads differ.
    """
    if fields.get(KIND) != "eagle3":
        raise ValueError(f"{KIND} is {fields.get(KIND)!r}; only eagle3 is read")
    check_proposals(fields)
    whole: Any = target.required_config
    if "taps" not in whole._fields:
        raise ValueError(
            f"{target.name} is a {target.family}, whose layers are not tapped: name a"
            " GPT or a model of Llama's kind"
        )
    within = fields.get("transformer_layer_config")
    if not isinstance(within, dict):
        raise field.field_error("transformer_layer_config", "an object", within)
    layer = names_llama.read_config({"architectures": None} | within, dtype)
    if layer.num_layers != 1:
        raise ValueError(f"num_hidden_layers is {layer.num_layers}; a head has 1")
    if layer.vocab != target.vocab:
        raise ValueError(
            f"it was trained for {layer.vocab} ids, and {target.name} has"
            f" {target.vocab}: name the target that it was trained for"
        )
    if not isinstance(fields.get(RESIDUAL), bool):
        raise ValueError(
            f"{RESIDUAL} is missing, and readers disagree on what that means: write"
            " what the head was trained with, true (vLLM) or false (speculators)"
        )
    wide = field.size(fields, "target_hidden_size", whole.dim)
    if wide != whole.dim:
        raise ValueError(
            f"it reads states of width {wide}, and those of {target.name} have"
            f" {whole.dim}: name the target that it was trained for"
        )
    taps = fields.get(PLACES)
    taps = eagle3.default_taps(whole.num_layers) if taps is None else taps
    if not isinstance(taps, list | tuple) or not all(type(k) is int for k in taps):
        raise field.field_error(PLACES, "a list of numbers of layers", taps)
    count = field.size(fields, "draft_vocab_size", layer.vocab)
    config = eagle3.Config(
        layer=layer,
        target_dim=whole.dim,
        taps=tuple(taps),
        draft_vocab=None if count == layer.vocab else count,
        norm_before_residual=fields[RESIDUAL],
        norm_before_join=field.truth(fields, "norm_before_fc", False),
        norm_taps=field.truth(fields, "fc_norm", False),
        norm_output=field.truth(fields, "norm_output", False),
        own_embedding=own_embedding,
    )
    eagle3.check(config)
    families.of(whole).check(whole._replace(taps=config.taps))
    return config


def check_proposals(fields: Fields) -> None:
    """Raises ValueError for a config.json without a proposal or the name of its
    target, which speculators requires."""
    stated = fields.get("speculators_config")
    if not isinstance(stated, dict) or not stated.get("proposal_methods"):
        raise ValueError("speculators_config has no proposal_methods")
    verifier = stated.get("verifier")
    if not isinstance(verifier, dict) or not verifier.get("name_or_path"):
        raise ValueError("speculators_config.verifier has no name_or_path")


def read_offsets(arrays: archive.Archive, vocab: int) -> np.ndarray:
    """Returns d2t [K]. Raises ValueError where t2d says other ids."""
    if D2T not in arrays.arrays:
        raise ValueError(f"{arrays.where} has a reduced vocabulary and no {D2T}")
    offsets = np.asarray(arrays.read(D2T, (slice(None),)), np.int64)
    if T2D in arrays.arrays:
        said = np.asarray(arrays.read(T2D, (slice(None),)), bool)
        ids = np.arange(offsets.size) + offsets
        inside = ((0 <= ids) & (ids < vocab)).all()
        if not inside or not said[ids].all() or said.sum() != ids.size:
            raise ValueError(
                f"{arrays.where}: {D2T} and {T2D} name other ids; id i of a head is id"
                f" i + {D2T}[i] of its target"
            )
    return offsets


def names(config: eagle3.Config) -> dict[str, archive.Source]:
    """Returns where each parameter of a head lies in a file of speculators."""
    layer, first = config.layer, "layers.0"
    product = PRODUCT if layer.biased else UNBIASED
    out = PRODUCT if layer.out_biased else UNBIASED
    mlp = PRODUCT if layer.mlp_biased else UNBIASED
    norm = (SCALE,)
    rows = [
        ("join", "fc", UNBIASED),
        ("state_norm", f"{first}.hidden_norm", norm),
        ("embedding_norm", f"{first}.input_layernorm", norm),
        ("layer/mlp_norm", f"{first}.post_attention_layernorm", norm),
        ("layer/attention/query", f"{first}.self_attn.q_proj", product),
        ("layer/attention/key", f"{first}.self_attn.k_proj", product),
        ("layer/attention/value", f"{first}.self_attn.v_proj", product),
        ("layer/attention/out", f"{first}.self_attn.o_proj", out),
        ("layer/mlp/gate", f"{first}.mlp.gate_proj", mlp),
        ("layer/mlp/in", f"{first}.mlp.up_proj", mlp),
        ("layer/mlp/out", f"{first}.mlp.down_proj", mlp),
        ("norm", "norm", norm),
    ]
    if STYLES[layer.style].normed:
        rows.append(("layer/attention/query_norm", f"{first}.self_attn.q_norm", norm))
        rows.append(("layer/attention/key_norm", f"{first}.self_attn.k_norm", norm))
    if config.norm_before_join:
        rows.append(("joined_norm", "input_norm", norm))
    if config.norm_taps:
        every = range(len(config.taps))
        rows += [(f"tap_{i}_norm", f"fc_norm.{i}", norm) for i in every]
    found = archive.sources(rows)
    found["readout"] = archive.Source("lm_head.weight", transpose=True)
    if config.own_embedding:
        found["embedding"] = archive.Source(EMBEDDING)
    return found
