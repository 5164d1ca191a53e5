"""The bundled models, small and ready to decode: code, T5s, Whispers, and images.

Weights are safetensors: large matrices in eight bits with a scale for each output, all
else in float32 (counts in sixteen bits), with their sizes in the file's metadata. The
recipes beside them say how each was trained and how well it does.

The T5 family translates English to German, corrects prose and summarizes documentation
strings; its sentences are Tatoeba's (CC BY 2.0 FR). The pair that listens writes down a
few dozen words of synthesised voices, one in twenty wrong with a new voice; its times
are not usable. The pair of images writes digits of 8 by 8 pixels, whose ids are their
shades: a prompt is one id, 17 for a 0 to 26 for a 9, and 64 pixels follow. It learnt
from "Optical Recognition of Handwritten Digits" (Alpaydin & Kaynak 1998, CC BY 4.0).
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict
from safetensors import SafetensorError
from safetensors.flax import load_file, save_file

from specjax import tokenizers
from specjax.drafters.ngram import NGram
from specjax.models import families, t5
from specjax.quantized import rounding
from specjax.runtime import writing
from specjax.tokenizers import Tokenizer
from specjax.types import Table
from specjax.zoo import sizes
from specjax.zoo.sizes import Config

FOLDER = Path(str(resources.files("specjax.zoo")))
MODELS = ("code_target", "code_small")  # the target and its draft
T5_MODELS = ("t5_target", "t5_large", "t5_base", "t5_small", "t5_decoder")
SPEECH_MODELS = ("speech_target", "speech_small")
IMAGE_MODELS = ("digits_target", "digits_small")
# Drafts that read by the embedding of a target that is fetched.
DRAFTS = ("smollm2_draft", "whisper_base_draft")
HEADS = ("code_eagle3",)  # folders of heads, each for one target
LISTENING = {"speech_target": "speech_small"}  # the draft unless another is named
PAD, START, END = 0, 1, 2  # of the code models; t5.PAD, t5.END of the others
CODE_VOCAB, T5_VOCAB, SPEECH_VOCAB, IMAGE_VOCAB = 8192, 6016, 236, 27
TOKENIZERS = {"code": "tokenizer.model", "t5": "t5.model"}
TOKENIZERS["speech"] = "speech/tokenizer.json"
# The ids that a text starts and ends with.
ENDS = {"code": (START, END), "t5": (t5.PAD, t5.END), "speech": (28, 27)}


def read_config(path: Path, metadata: dict[str, str], dtype: str) -> tuple[str, Config]:
    """Returns the family's name and the sizes in a file's metadata. Raises ValueError
    for a file without sizes, or with sizes that no model has."""
    if "config" not in metadata:
        raise ValueError(
            f"{path} has no sizes: write it with specjax.zoo.save, or name a folder"
            " that has a config.json beside it"
        )
    try:
        family, config = sizes.read(metadata)
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}; write the file again with specjax.zoo.save"
        ) from None
    return family, config._replace(dtype=dtype)


def save(
    path: Path,
    config: Config,
    params: Any,
    *,
    bits: int = 16,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Writes weights, one tensor for each leaf, with names joined by slashes.

    The rounded weights that are read back are the model.

    Args:
      bits: 16, in bfloat16; or 8, matrices as int8 with a scale for each output, by
        `rounding.pack_arrays`.
      more: arrays that are written as they are.

    Raises:
      ValueError: `bits` is another number; with 8 bits, as `pack_arrays` does.
    """
    flat = flatten_dict(params, sep="/")
    if bits == 8:
        stored = rounding.pack_arrays(flat)
    elif bits == 16:
        stored = {name: leaf.astype(jnp.bfloat16) for name, leaf in flat.items()}
    else:
        raise ValueError(f"weights are stored in 8 or 16 bits, not in {bits}")
    _save(stored | dict(more), path, sizes.metadata(config))


def tokenizer(name: str = "code") -> Tokenizer:
    """Returns a bundled tokenizer: "code", 8,192 subwords, from which any text can be
    decoded again; "t5", 6,000 subwords of two languages; or "speech", letters, which
    needs the extra `hf`."""
    start, end = ENDS[name]
    return tokenizers.read(FOLDER / TOKENIZERS[name], start, (end,), name != "code")


def tokenizer_file(vocab: int) -> Path | None:
    """Returns the bundled tokenizer of models of this vocabulary; None for any
    other."""
    name = {CODE_VOCAB: "code", T5_VOCAB: "t5", SPEECH_VOCAB: "speech"}.get(vocab)
    return FOLDER / TOKENIZERS[name] if name else None


def ends(config: Config) -> tuple[int | None, int | None]:
    """Returns the ids that a text of a model in the bundled format starts and ends
    with; None for images, which all have one size, and for a Whisper that is not
    bundled, whose tokenizer has them."""
    family = families.of(config)
    if config.vocab == IMAGE_VOCAB:
        return None, None
    if family.listens:
        return ENDS["speech"] if config.vocab == SPEECH_VOCAB else (None, None)
    return ENDS["t5" if family is families.T5 or config.vocab == T5_VOCAB else "code"]


def ngrams(path: Path = FOLDER / "bigram.safetensors") -> NGram:
    """Reads a table that `save_ngrams` wrote; the bundled one has bigrams, and unigrams
    in row 0."""
    flat = load_file(path)
    wide = {k: v.astype(jnp.float32) for k, v in flat.items() if v.dtype == jnp.float16}
    ids = flat["ids"].astype(jnp.int32)
    table = Table(wide["base"], wide["offset"], ids, wide["logits"])
    return NGram(table, flat["contexts"], flat["codes"])


def save_ngrams(path: Path, params: NGram) -> None:
    """Writes a table compactly: logits in float16, ids in uint16."""
    table = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params.table)
    table = table._replace(ids=params.table.ids.astype(jnp.uint16))
    _save(dict(table._asdict(), contexts=params.contexts, codes=params.codes), path)


def _save(arrays: Mapping[str, Any], path: Path, metadata: Any = None) -> None:
    """Writes a safetensors file. Raises OSError, in one line, for a full disk."""
    try:
        save_file(dict(arrays), path, metadata)
    except SafetensorError as error:
        raise writing.write_error(path, error) from None
    path.chmod(0o644)
