"""The bundled models, small and ready to decode: of Python code, and a T5 family.

Weights are bfloat16 safetensors with their sizes in the file's metadata; how each was
trained, on what and how well, is in `recipes.json` and `t5_recipes.json`. Made again by
`make zoo` and `experiments/zoo_t5.py`. The T5 family translates English to German and
summarizes documentation strings; its sentences are Tatoeba's (CC BY 2.0 FR).
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
from specjax.models import gpt, t5
from specjax.types import Model, Table

FOLDER = Path(str(resources.files("specjax.zoo")))
MODELS = ("code_9m", "code_05m")  # the target and its draft
T5_MODELS = ("t5_target", "t5_large", "t5_base", "t5_small", "t5_decoder")
PAD, START, END = 0, 1, 2  # of the code models; t5.PAD, t5.END of the others
FAMILIES = {"gpt": gpt, "t5": t5}
Config = gpt.Config | t5.Config


class Bundle(NamedTuple):
    """A model with its weights. `digest`: sha256 prefix of the file they came from."""

    name: str
    config: Config
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
        known = ", ".join((*MODELS, *T5_MODELS))
        raise ValueError(
            f"no model {name!r}: use one of {known} or the path of a .safetensors file"
            " written by specjax.zoo.save"
        )
    try:
        with safe_open(path, "flax") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    family, config = read_config(path, metadata, dtype)
    flat = {k: v.astype(dtype) for k, v in load_file(path).items()}
    params = unflatten_dict(flat, sep="/")
    model = FAMILIES[family].build(config)
    return Bundle(path.stem, config, model, params, digest(path))


def read_config(path: Path, metadata: dict[str, str], dtype: str) -> tuple[str, Config]:
    """The family and the sizes that a file's metadata holds. Raises ValueError if it
    holds none."""
    if "config" not in metadata:
        raise ValueError(
            f"{path} has no sizes: write it with specjax.zoo.save, or name a folder"
            " that has a config.json beside it"
        )
    family = metadata.get("family", "gpt")
    sizes = json.loads(metadata["config"])
    return family, FAMILIES[family].Config(**sizes)._replace(dtype=dtype)


def save(path: Path, config: Config, params: Any) -> None:
    """Writes weights in bfloat16, one tensor a leaf, names joined by slashes."""
    flat = flatten_dict(params, sep="/")
    half = {name: leaf.astype(jnp.bfloat16) for name, leaf in flat.items()}
    family = "t5" if isinstance(config, t5.Config) else "gpt"
    save_file(half, path, {"family": family, "config": json.dumps(config._asdict())})
    path.chmod(0o644)


@functools.cache
def tokenizer(name: str = "tokenizer") -> sentencepiece.SentencePieceProcessor:
    """The tokenizer of the code models: 8,192 subwords, any text round-trips; or, by
    the name "t5", that of the T5 family: 6,000 subwords of two languages."""
    return sentencepiece.SentencePieceProcessor(
        model_file=str(FOLDER / f"{name}.model")
    )


def encode_t5(text: str) -> list[int]:
    """The ids of an encoder's input, prefix included, or of a target; then the end."""
    return [*tokenizer("t5").encode(text), t5.END]


def decode_t5(ids) -> str:
    """The text of ids, without start, end and padding."""
    return tokenizer("t5").decode(
        [int(i) for i in ids if int(i) not in (t5.PAD, t5.END)]
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
