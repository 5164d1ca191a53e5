"""The bundled models: small, trained on Python's standard library, ready to decode.

Weights are bfloat16 safetensors with their sizes in the file's metadata; how each was
trained, on what and how well, is in `recipes.json`. Made again by `make zoo`.
"""

import functools
import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import sentencepiece
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError, safe_open
from safetensors.flax import load_file, save_file

from specjax.drafters.ngram import NGram
from specjax.models import gpt
from specjax.types import Model, Table

FOLDER = Path(str(resources.files("specjax.zoo")))
MODELS = ("code_9m", "code_05m")  # the target and its draft
PAD, START, END = 0, 1, 2


class Bundle(NamedTuple):
    """A model with its weights. `digest`: sha256 prefix of the file they came from."""

    name: str
    config: gpt.Config
    model: Model
    params: Any
    digest: str


def load(name: str, dtype: str = "float32") -> Bundle:
    """A bundled model by name, or any folder's `NAME.safetensors` written by `save`.

    Raises ValueError for a name that is neither, or a file of another kind.
    """
    path = (
        Path(name) if name.endswith(".safetensors") else FOLDER / f"{name}.safetensors"
    )
    if not path.exists():
        raise ValueError(
            f"no model {name!r}: use one of {', '.join(MODELS)} or the path of a"
            " .safetensors file written by specjax.zoo.save"
        )
    try:
        with safe_open(path, "flax") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    if "config" not in metadata:
        raise ValueError(f"{path} has no sizes: write it with specjax.zoo.save")
    config = gpt.Config(**json.loads(metadata["config"]))._replace(dtype=dtype)
    flat = {k: v.astype(dtype) for k, v in load_file(path).items()}
    params = unflatten_dict(flat, sep="/")
    return Bundle(path.stem, config, gpt.build(config), params, digest(path))


def save(path: Path, config: gpt.Config, params: Any) -> None:
    """Writes weights in bfloat16, one tensor a leaf, names joined by slashes."""
    flat = flatten_dict(params, sep="/")
    half = {name: leaf.astype(jnp.bfloat16) for name, leaf in flat.items()}
    save_file(half, path, {"config": json.dumps(config._asdict())})
    path.chmod(0o644)


@functools.cache
def tokenizer() -> sentencepiece.SentencePieceProcessor:
    """The tokenizer of the bundled models: 8,192 subwords, any text round-trips."""
    return sentencepiece.SentencePieceProcessor(
        model_file=str(FOLDER / "tokenizer.model")
    )


def encode(text: str) -> list[int]:
    """The ids of a prompt: the start token, then the text."""
    return [START, *tokenizer().encode(text)]


def decode(ids) -> str:
    """The text of ids, without start, end and padding."""
    return tokenizer().decode([int(i) for i in ids if int(i) not in (PAD, START, END)])


def ngrams(path: Path = FOLDER / "bigram.safetensors") -> NGram:
    """A table written by `save_ngrams`; the bundled one has bigrams, row 0 unigrams."""
    flat = load_file(path)
    wide = {k: v.astype(jnp.float32) for k, v in flat.items() if v.dtype == jnp.float16}
    table = Table(
        wide["base"], wide["offset"], flat["ids"].astype(jnp.int32), wide["logits"]
    )
    return NGram(table, flat["contexts"], flat["codes"])


def save_ngrams(path: Path, params: NGram) -> None:
    """Writes a table compactly: logits in float16, ids in uint16."""
    table = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params.table)
    table = table._replace(ids=params.table.ids.astype(jnp.uint16))
    save_file(dict(table._asdict(), contexts=params.contexts, codes=params.codes), path)
    path.chmod(0o644)


def digest(path: Path) -> str:
    """The first 12 hexadecimal digits of a file's sha256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
