"""Folders of EAGLE-3 heads, in two layouts.

Those of speculators say the sizes of the layer in `transformer_layer_config`, and have
weights in safetensors. Those of EAGLE and SpecForge say them at the top of config.json,
call the layer `midlayer`, and have a pickle or safetensors. Places of the target that
are tapped are counted as by `types.Hidden`: k is what enters layer k. speculators
counts so too; SpecForge, SGLang and ModelOpt count the outputs of layers, in
`eagle_config`, and say k - 1. EAGLE's own taps are always `eagle3.default_taps`.
Axes: D features of the target, V its ids, K ids of the head.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specjax.checkpoints import (
    Pretrained,
    archive,
    huggingface,
    int8_weights,
    names_llama,
)
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import SCALE, UNBIASED, Archive, Source
from specjax.checkpoints.fields import Fields
from specjax.drafters import eagle3
from specjax.drafts import head_files
from specjax.drafts.head_files import EMBEDDING, INV_FREQ, Folder
from specjax.models import families, llama

PLACES = "eagle_aux_hidden_state_layer_ids"
RESIDUAL = "norm_before_residual"
D2T, T2D = "d2t", "t2d"
# Of training alone; d2t is read by itself.
UNREAD = (D2T, T2D, "verifier_lm_head.weight", "verifier_norm.weight", INV_FREQ)


class Eagle3(NamedTuple):
    """A head in a folder: its sizes, its own parameters, and d2t or None."""

    config: eagle3.Config
    params: Any
    offsets: np.ndarray | None


def read(folder: Folder, target: Pretrained) -> Eagle3:
    """Returns the head in a folder, for the target that it was trained for. Raises
    ValueError for a head that lacks a field that it needs, or is for another target."""
    arrays = folder.open()
    if head_files.MASK in arrays.arrays:
        raise head_files.unread(folder.path, "P-EAGLE")
    dtype = str(int8_weights.activations(target.dtype))
    try:
        config = read_config(folder, target, dtype)
        config = config._replace(own_embedding=EMBEDDING in arrays.arrays)
        eagle3.check(config)
    except ValueError as error:
        raise ValueError(f"{folder.path}: {error}") from None
    first = "midlayer" if head_files.has_midlayer(arrays.arrays) else "layers.0"
    archive.check(
        arrays, names(config, first), eagle3.abstract_params(config), harmless=UNREAD
    )
    if config.own_embedding and head_files.repeats_embedding(arrays, target):
        config = config._replace(own_embedding=False)
    offsets = read_offsets(arrays, config)
    found = names(config, first)
    params = archive.fill(arrays, found, eagle3.abstract_params(config), dtype=dtype)
    return Eagle3(config, params, offsets)


def read_config(folder: Folder, target: Pretrained, dtype: str) -> eagle3.Config:
    """Returns the sizes of a head that reads by the embedding of a target.

    Raises ValueError for a config.json that says another target, or nothing where heads
    differ.
    """
    fields, whole = folder.fields, _tapped_config(target)
    if folder.by_speculators:
        layer, taps = _read_speculators(fields, target, dtype)
    else:
        layer, taps = _read_others(fields, target, dtype)
    wide = field.size(fields, "target_hidden_size", whole.dim)
    if wide != whole.dim:
        raise ValueError(
            f"it reads states of width {wide}, and those of {target.name} have"
            f" {whole.dim}: name the target that it was trained for"
        )
    count = field.size(fields, "draft_vocab_size", layer.vocab)
    nested = _eagle_config(fields)
    config = eagle3.Config(
        layer=layer,
        target_dim=whole.dim,
        taps=eagle3.default_taps(whole.num_layers) if taps is None else taps,
        draft_vocab=None if count == layer.vocab else count,
        norm_before_residual=field.truth(fields, RESIDUAL, False),
        norm_before_join=field.truth(nested | fields, "norm_before_fc", False),
        norm_taps=field.truth(fields, "fc_norm", False),
        norm_output=field.truth(fields, "norm_output", False),
    )
    families.of(whole).check(whole._replace(taps=config.taps))
    return config


def _tapped_config(target: Pretrained) -> Any:
    """Returns the configuration of a target. Raises ValueError for one whose layers are
    not tapped."""
    whole: Any = target.required_config
    if "taps" not in whole._fields:
        raise ValueError(
            f"{target.name} is a {target.family}, whose layers are not tapped: name a"
            " GPT or a model of Llama's kind"
        )
    return whole


def _read_speculators(
    fields: Fields, target: Pretrained, dtype: str
) -> tuple[llama.Config, tuple[int, ...] | None]:
    """Returns the sizes of the layer, and the places that are tapped; None where the
    fields name none. Raises ValueError for a head that speculators would not load."""
    _check_proposals(fields)
    within = fields.get("transformer_layer_config")
    if not isinstance(within, dict):
        raise field.field_error("transformer_layer_config", "an object", within)
    layer = head_files.read_layer(within, target, dtype)
    if not isinstance(fields.get(RESIDUAL), bool):
        raise ValueError(
            f"{RESIDUAL} is missing, and readers disagree on what that means: write"
            " what the head was trained with, true (vLLM) or false (speculators)"
        )
    return layer, _places(fields)


def _read_others(
    fields: Fields, target: Pretrained, dtype: str
) -> tuple[llama.Config, tuple[int, ...] | None]:
    """Returns the same for the layouts of EAGLE and SpecForge. Raises ValueError for a
    head that reads only the last layer, and for places that readers count in two
    ways."""
    nested = _eagle_config(fields)
    if not field.truth(nested, "use_aux_hidden_state", True):
        raise ValueError(
            "eagle_config says use_aux_hidden_state false, a head that taps nothing,"
            " which is not read"
        )
    if fields.get(PLACES) is not None:
        raise ValueError(
            f"{PLACES} stands outside of eagle_config, where readers count layers in"
            " two ways: write it there, as the numbers of layers whose output is read"
        )
    places = _places(nested)
    taps = None if places is None else tuple(j + 1 for j in places)
    return head_files.read_layer(fields, target, dtype), taps


def _eagle_config(fields: Fields) -> Fields:
    """Returns the fields in `eagle_config`; {} where it is missing."""
    nested = fields.get("eagle_config")
    if nested is not None and not isinstance(nested, dict):
        raise field.field_error("eagle_config", "an object", nested)
    return nested or {}


def _places(fields: Fields) -> tuple[int, ...] | None:
    """Returns the numbers of the target's layers that a head taps, as these fields list
    them; None where they have no such list. Raises ValueError for any other value."""
    places = fields.get(PLACES)
    if places is None:
        return None
    if not isinstance(places, list) or not all(type(k) is int for k in places):
        raise field.field_error(PLACES, "a list of numbers of layers", places)
    if not places:
        raise ValueError(
            f"{PLACES} is an empty list: write the numbers of the layers that the head"
            " was trained on, or leave it out for those that EAGLE taps"
        )
    return tuple(places)


def _check_proposals(fields: Fields) -> None:
    """Raises ValueError for a config.json that lacks a proposal or the name of its
    target, both of which speculators requires."""
    if not head_files.proposals(fields):
        raise ValueError("speculators_config has no proposal_methods")
    verifier = fields["speculators_config"].get("verifier")
    if not isinstance(verifier, dict) or not verifier.get("name_or_path"):
        raise ValueError("speculators_config.verifier has no name_or_path")


def read_offsets(arrays: Archive, config: eagle3.Config) -> np.ndarray | None:
    """Returns d2t [K], or None for a head that proposes every id. Raises ValueError
    where d2t is missing, where t2d names other ids, and where d2t moves ids though all
    are proposed."""
    if D2T not in arrays.arrays:
        if config.draft_vocab is None:
            return None
        raise ValueError(f"{arrays.where} has a reduced vocabulary and no {D2T}")
    offsets = np.asarray(arrays.read(D2T, (slice(None),)), np.int64)
    ids = np.arange(offsets.size) + offsets
    if config.draft_vocab is None:
        if offsets.any():
            raise ValueError(
                f"{arrays.where} says every id of its target, and {D2T} moves them:"
                " write draft_vocab_size as it was trained"
            )
        return None
    if T2D in arrays.arrays:
        said = np.asarray(arrays.read(T2D, (slice(None),)), bool)
        inside = ((0 <= ids) & (ids < said.size)).all()
        fits = said.size == config.layer.vocab and said.sum() == ids.size
        if not inside or not fits or not said[ids].all():
            raise ValueError(
                f"{arrays.where}: {D2T} and {T2D} name other ids; id i of a head is id"
                f" i + {D2T}[i] of its target"
            )
    return offsets


def write(
    folder: Path,
    config: eagle3.Config,
    params: Any,
    *,
    ids: np.ndarray | None,
    target: Pretrained,
    chain: int,
) -> None:
    """Writes a head in the layout of speculators, which `read` reads back exactly.

    The target's embedding stands beside it, as in folders of that package: version
    0.9.0 leaves one that is missing to what lies in memory, and drafts by that.

    Args:
      folder: must not exist.
      config: the head's sizes.
      params: its own parameters.
      ids: [K], those of the target that it says, ascending; None for all.
      target: what it was trained for.
      chain: how many tokens a draft of it is recommended to have.

    Raises:
      ValueError: the folder exists, or the layout has no place for the head.
      OSError: in one line, where a disk is full.
    """
    layer, vocab = config.layer, config.layer.vocab
    said = np.arange(vocab) if ids is None else np.asarray(ids, np.int64)
    within = names_llama.write_config(layer._replace(tied=False), None, ())
    proposal = {
        "proposal_type": "greedy",
        "speculative_tokens": chain,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    fields = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": within,
        "draft_vocab_size": said.size,
        "target_hidden_size": config.target_dim,
        PLACES: list(config.taps),
        RESIDUAL: config.norm_before_residual,
        "norm_before_fc": config.norm_before_join,
        "fc_norm": config.norm_taps,
        "norm_output": config.norm_output,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {
                "name_or_path": head_files.name_or_path(target),
                "architectures": [],
            },
        },
    }
    offsets = said - np.arange(said.size)
    heard = np.zeros(vocab, bool)
    heard[said] = True
    more: dict[str, np.ndarray] = {D2T: offsets.astype(np.int64), T2D: heard}
    table, shape = head_files.target_embedding(target), (vocab, layer.dim)
    if not config.own_embedding and table is not None and table.shape == shape:
        more[EMBEDDING] = np.asarray(table)
    huggingface.save_head(
        folder,
        fields,
        params,
        names(config, "layers.0"),
        more=more,
    )


def names(config: eagle3.Config, first: str) -> dict[str, Source]:
    """Returns where each parameter of a head lies in its file; `first` is the file's
    name of the layer."""
    norm = (SCALE,)
    rows = [
        ("join", "fc", UNBIASED),
        ("state_norm", f"{first}.hidden_norm", norm),
        ("embedding_norm", f"{first}.input_layernorm", norm),
        *head_files.layer_rows(config.layer, first),
        ("norm", "norm", norm),
    ]
    if config.norm_before_join:
        rows.append(("joined_norm", "input_norm", norm))
    if config.norm_taps:
        every = range(len(config.taps))
        rows += [(f"tap_{i}_norm", f"fc_norm.{i}", norm) for i in every]
    found = archive.sources(rows)
    found["readout"] = Source("lm_head.weight", transpose=True)
    if config.own_embedding:
        found["embedding"] = Source(EMBEDDING)
    return found
