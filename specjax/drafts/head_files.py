"""Folders of heads: how to tell which kind a folder holds, and what all kinds share.

Heads have no common format: what is in config.json tells the kinds apart, and where it
looks like a model's of one layer, the names of the weights do. A folder whose head is
known and not read is refused by what it is called.
Axes: D features of the target, H of the head, V ids of the target.
"""

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax.checkpoints import Pretrained, archive, huggingface, names_llama, pickles
from specjax.checkpoints import fields as field
from specjax.checkpoints.archive import PRODUCT, SCALE, UNBIASED, Archive, Row
from specjax.checkpoints.fields import Fields
from specjax.checkpoints.huggingface import CONFIG, INDEX, WHOLE
from specjax.models import llama
from specjax.models.llama import STYLES

SPECULATORS = "speculators_model_type"
EAGLE, EAGLE3, MEDUSA = "EAGLE", "EAGLE-3", "Medusa"
BLOCKWISE = "blockwise parallel"
BLOCKWISE_TYPE = "blockwise_parallel_heads"  # the `model_type` of this library
READ = f"{MEDUSA}, {EAGLE} (1 and 2), {EAGLE3} and {BLOCKWISE}"
PICKLE = "pytorch_model.bin"
WEIGHTS = {
    EAGLE: (WHOLE, INDEX, PICKLE),
    EAGLE3: (WHOLE, INDEX, PICKLE),
    MEDUSA: (huggingface.MEDUSA, "medusa_lm_head.pt"),
    BLOCKWISE: (WHOLE,),
}
EMBEDDING = "embed_tokens.weight"
JOIN = "fc.weight"
MASK = "mask_hidden"  # of P-EAGLE, in place of states that the target did not compute
# What a proposal of speculators says of its rule, with the value that is exact at
# temperature 0; any other keeps tokens that the target would not have chosen.
EXACT = {"proposal_type": "greedy", "verifier_accept_k": 1, "accept_tolerance": 0}
# Settings of Medusa's typical acceptance, which no exact rule has.
TYPICAL = "posterior_threshold", "posterior_alpha"
INV_FREQ = "*.rotary_emb.inv_freq"  # of earlier versions; it follows from sizes
LAYERS = "llama", "mistral", "qwen2", "qwen3"  # model_types of a head's layer
# The values of `speculators_model_type`.
OF_SPECULATORS = {
    "eagle3": EAGLE3,
    "peagle": "P-EAGLE",
    "dflash": "DFlash",
    "dflash2": "DFlash 2",
    "dspark": "DSpark",
    "xpress": "XPress",
    "mtp": "native MTP",
}
# Patterns of `architectures`, of which the first that fits counts.
CLASSES = {
    "PEagle*": "P-EAGLE",
    "DFlash2*": "DFlash 2",
    "DFlash*": "DFlash",
    "Domino*": "Domino",
    "*DSpark*": "DSpark",
    "*XPress*": "XPress",
    "LiLiCorr*": "LiLiCorr",
    "LlamaForCausalLMEagle3": EAGLE3,
    "*Eagle3*": "EAGLE-3 with a layer of another kind than Llama's",
}
# Fields with a value. Those of native MTP are in the config.json of a target.
OWN_FIELDS = {
    "draft_vocab_size": EAGLE3,
    "medusa_num_heads": MEDUSA,
    "hydra_num_heads": "Hydra",
    "num_nextn_predict_layers": "native MTP",
    "mtp_num_hidden_layers": "native MTP",
    "num_mtp_layers": "native MTP",
}
MODEL_TYPES = {
    BLOCKWISE_TYPE: BLOCKWISE,
    "medusa": "Medusa as vLLM stored it",
    "mlp_speculator": "MLP speculator",
    "muse_glimmer_assistant": "DFlash",
    "gemma4_assistant": "native MTP",
    "gemma4_unified_assistant": "native MTP",
}


class Folder(NamedTuple):
    """A head in a folder.

    Attributes:
      name: as records have it.
      path: the folder.
      kind: what its method is called.
      fields: the fields of config.json.
      files: config.json, then those of weights.
    """

    name: str
    path: Path
    kind: str
    fields: Fields
    files: tuple[Path, ...]

    @property
    def by_speculators(self) -> bool:
        """Returns whether the package speculators wrote the folder."""
        return SPECULATORS in self.fields

    def open(self) -> Archive:
        """Returns the arrays of the head, none of them read yet. Raises ValueError for
        a file that cannot be read."""
        file = self.files[-1]
        if file.suffix == ".safetensors":
            return archive.open_safetensors(self.files[1:], str(self.path))
        tensors = pickles.load(file, f"save its tensors as {WEIGHTS[self.kind][0]}")
        if not isinstance(tensors, dict):
            raise ValueError(f"{file} does not hold tensors by name: copy it again")
        return pickles.open_tensors(tensors, file)


def find_kind(path: Path) -> str | None:
    """Returns the name of the method of the head in a folder, None for any other
    folder. Raises ValueError for a config.json that is not JSON."""
    if not (path / CONFIG).is_file():
        return None
    fields = field.read(path / CONFIG)
    return kind_of_fields(fields) or _kind_of_weights(path, fields)


def find_folder(path: Path) -> Folder:
    """Returns the head in a folder, from the files that describe it. Raises ValueError
    for an unsupported kind of head, and for a folder without its weights."""
    kind = find_kind(path)
    if kind not in WEIGHTS:
        raise unread(path, str(kind))
    found = [path / name for name in WEIGHTS[kind] if (path / name).is_file()]
    if not found:
        raise ValueError(
            f"{path} has no {' and no '.join(WEIGHTS[kind])}: copy or download them"
        )
    fields = field.read(path / CONFIG)
    files = huggingface.weights(path)[0] if found[0].name == INDEX else found[:1]
    return Folder(path.name, path, kind, fields, (path / CONFIG, *files))


def proposals(fields: Fields) -> list[Fields]:
    """Returns the proposals that a folder of speculators lists; [] where it lists
    none."""
    stated = fields.get("speculators_config")
    listed = stated.get("proposal_methods") if isinstance(stated, dict) else None
    if not isinstance(listed, list):
        return []
    return [each for each in listed if isinstance(each, dict)]


def inexact_rules(fields: Fields) -> list[str]:
    """Returns the settings of rules that are not exact, as config.json recommends them,
    each as "name = value"."""
    found = {name: fields[name] for name in TYPICAL if fields.get(name) is not None}
    rules = [f"{name} = {value!r}" for name, value in found.items()]
    for each in proposals(fields):
        for name, exact in EXACT.items():
            value = each.get(name)
            if value is not None and value != exact:
                rules.append(f"{name} = {value!r}")
    return rules


def unread(path: Path, kind: str) -> ValueError:
    """Returns the error of an unsupported kind of head."""
    return ValueError(
        f"{path} holds a head of the kind {kind}, which is not read: name one of"
        f" {READ}, or a small model"
    )


def kind_of_fields(fields: Fields) -> str | None:
    """Returns the name of the method that these fields of config.json describe, None
    for fields that a whole model may have."""
    if SPECULATORS in fields:
        said = fields[SPECULATORS]
        return OF_SPECULATORS.get(str(said), f"{said!r} of speculators")
    blocks = fields.get("dflash_config")
    if isinstance(blocks, dict) and "causal_head" in blocks:
        return "JetSpec"
    for name in _classes(fields):
        for pattern, kind in CLASSES.items():
            if fnmatchcase(name, pattern):
                return kind
    if isinstance(blocks, dict):
        said = str(blocks.get("projector_type") or "dflash")
        return {"dspark": "DSpark", "domino": "Domino"}.get(said, "DFlash")
    if (kind := MODEL_TYPES.get(str(fields.get("model_type")))) is not None:
        return kind
    return next((kind for name, kind in OWN_FIELDS.items() if fields.get(name)), None)


def _classes(fields: Fields) -> list[str]:
    """Returns the names in `architectures`."""
    classes = fields.get("architectures")
    return list(map(str, classes)) if isinstance(classes, list) else []


def _kind_of_weights(path: Path, fields: Fields) -> str | None:
    """Returns the kind of a head whose config.json could also be that of a model of one
    layer. Weights in a pickle are a head's, because no model is read from one."""
    llama_like = fields.get("model_type") in LAYERS
    if not llama_like or fields.get("num_hidden_layers") != 1:
        return None
    if not (path / WHOLE).is_file() and not (path / INDEX).is_file():
        return EAGLE if (path / PICKLE).is_file() else None
    files, _ = huggingface.weights(path)
    stored = archive.open_safetensors(files, str(path)).arrays
    if JOIN not in stored:
        return None
    return EAGLE3 if has_midlayer(stored) else EAGLE


def has_midlayer(stored: Collection[str]) -> bool:
    """Returns whether a head's layer has the name that EAGLE-3's own code gives it."""
    return any(name.startswith("midlayer.") for name in stored)


def read_layer(stated: Fields, target: Pretrained, dtype: str) -> llama.Config:
    """Returns the sizes of a head's decoder layer, as stated in its config.json.

    Raises ValueError for a layer of another kind, or of a head for another target.
    """
    kind = stated.get("model_type")
    if kind not in LAYERS:
        raise field.field_error("model_type", " or ".join(LAYERS), kind)
    field.check_known_values(stated, {"logit_scale": (None, 1)})
    layer = names_llama.read_config(stated | {"architectures": None}, dtype)
    if layer.num_layers != 1:
        raise ValueError(f"num_hidden_layers is {layer.num_layers}; a head has 1")
    if layer.local:
        raise ValueError(
            f"its layer sees a window of {layer.window} tokens, which is not known of a"
            " head: where it was trained without one, write sliding_window as null"
        )
    if layer.vocab != target.vocab:
        raise ValueError(
            f"it was trained for {layer.vocab} ids, and {target.name} has"
            f" {target.vocab}: name the target that it was trained for"
        )
    if field.truth(stated, "qkv_bias", False):
        layer = layer._replace(biased=True, out_biased=False)
    return layer


def layer_rows(layer: llama.Config, first: str) -> list[Row]:
    """Returns where the parts of a head's decoder layer lie (`heads.Layer`); `first` is
    the file's name of the layer."""
    product = PRODUCT if layer.biased else UNBIASED
    out = PRODUCT if layer.out_biased else UNBIASED
    mlp = PRODUCT if layer.mlp_biased else UNBIASED
    rows: list[Row] = [
        ("layer/mlp_norm", f"{first}.post_attention_layernorm", (SCALE,)),
        ("layer/attention/query", f"{first}.self_attn.q_proj", product),
        ("layer/attention/key", f"{first}.self_attn.k_proj", product),
        ("layer/attention/value", f"{first}.self_attn.v_proj", product),
        ("layer/attention/out", f"{first}.self_attn.o_proj", out),
        ("layer/mlp/gate", f"{first}.mlp.gate_proj", mlp),
        ("layer/mlp/in", f"{first}.mlp.up_proj", mlp),
        ("layer/mlp/out", f"{first}.mlp.down_proj", mlp),
    ]
    if STYLES[layer.style].normed:
        for ours, theirs in {"query": "q_norm", "key": "k_norm"}.items():
            name = f"layer/attention/{ours}_norm"
            rows.append((name, f"{first}.self_attn.{theirs}", (SCALE,)))
    return rows


def name_or_path(target: Pretrained) -> str:
    """Returns the name by which other readers of a head load its target: an id of the
    Hugging Face hub, the folder that the target was read from, or else the target's
    name alone."""
    if huggingface.HUB_ID.fullmatch(target.name) or not target.files:
        return target.name
    folder = target.files[0].absolute().parent
    return str(folder) if (folder / CONFIG).is_file() else target.name


def repeats_embedding(arrays: Archive, target: Pretrained) -> bool:
    """Returns whether the embedding that a head stores is its target's; it is then not
    kept twice. They are compared in the dtype of the target's, some rows at a time."""
    stored, table = arrays.arrays[EMBEDDING], target_embedding(target)
    if table is None or table.shape != stored.shape:
        return False
    rows = max(1, archive.COMPARED // stored.shape[1])
    for first in range(0, stored.shape[0], rows):
        some = slice(first, min(first + rows, stored.shape[0])), slice(None)
        mine = np.asarray(arrays.read(EMBEDDING, some)).astype(table.dtype)
        if not np.array_equal(mine, np.asarray(table[some])):
            return False
    return True


def target_embedding(target: Pretrained) -> Any:
    """Returns the target's embedding, None where it is not an array of floats."""
    params: Any = target.params
    table = params.get("embedding") if isinstance(params, dict) else None
    return table if isinstance(table, np.ndarray | jax.Array) else None
