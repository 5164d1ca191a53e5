"""Tokenized examples of a task, which are written once and can be read without
TensorFlow.

A file is one `.npz`. Each list of token lists, and each list of strings as UTF-8, is
two arrays: all items in a row, and the length of each. `about` is JSON. The same
examples give the same bytes, so a file can be an input of a measurement.
"""

import json
import zipfile
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specjax.runtime import writing

FORMAT = 1
STRINGS = ("texts", "references")


class Examples(NamedTuple):
    """Four lists of equal length, with an item for each example.

    Attributes:
        inputs: the ids that an encoder reads, end id last; empty lists for language
            modelling.
        targets: the ids of the references, end id last; empty lists for prompts alone.
        texts, references: the texts before tokenization, for BLEU and ROUGE; "" where
            the ids are empty. `texts` begin with the task's prefix and are never cut.
    """

    inputs: list[list[int]]
    targets: list[list[int]]
    texts: list[str]
    references: list[str]


class About(NamedTuple):
    """The origin of examples.

    Attributes:
        tokenizer: sha256 of the SentencePiece model file.
        eos: its end id.
        prefix: before every input, None without inputs.
        length: the most ids of an input, None for no limit.
        truncate: whether longer inputs were cut.
        limit: the most examples taken, None for all.
        source: the data set with its version, or each file with its sha256.
    """

    task: str
    split: str
    tokenizer: str
    eos: int
    prefix: str | None
    length: int | None
    truncate: bool
    limit: int | None
    source: list[str]


def write(path: Path, examples: Examples, about: About) -> None:
    """Writes a file, which is either complete or absent."""
    counts = {name: len(rows) for name, rows in examples._asdict().items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"examples need four lists of one length; got {counts}")
    described = json.dumps(about._asdict() | {"format": FORMAT}, sort_keys=True)
    arrays = {"about": np.frombuffer(described.encode(), np.uint8)}
    for name, rows in examples._asdict().items():
        plain = [row.encode() if isinstance(row, str) else row for row in rows]
        dtype = np.uint8 if name in STRINGS else np.int32
        arrays[name] = np.fromiter(chain.from_iterable(plain), dtype)
        arrays[f"{name}_lengths"] = np.array([len(row) for row in plain], np.int32)
    writing.write_with(path, lambda file: np.savez_compressed(file, **arrays))


def read(path: Path, tokenizer: str | None = None) -> tuple[Examples, About]:
    """Returns the examples of a file and their origin."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            described = json.loads(arrays["about"].tobytes())
            if described.pop("format") != FORMAT:
                raise ValueError(f"of a format other than {FORMAT}")
            about = About(**described)
            examples = Examples(*(_rows(arrays, name) for name in Examples._fields))
    except FileNotFoundError:
        raise ValueError(
            f"no file {path}: make it with python -m experiments.tasks.prepare"
        ) from None
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(
            f"{path} holds no prepared examples ({error}): make it again with"
            " python -m experiments.tasks.prepare"
        ) from None
    if tokenizer is not None and tokenizer != about.tokenizer:
        raise ValueError(
            f"{path} was made with another tokenizer: with the model file of sha256"
            f" {about.tokenizer[:12]}, not {tokenizer[:12]}; prepare it again with the"
            " tokenizer of the models"
        )
    return examples, about


def _rows(arrays, name: str) -> list:
    flat, lengths = arrays[name], arrays[f"{name}_lengths"]
    ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    if ends[-1] != flat.size:
        raise ValueError(f"{name} has {flat.size} items, its lengths say {ends[-1]}")
    rows = [flat[begin:end] for begin, end in pairwise(ends)]
    if name in STRINGS:
        return [row.tobytes().decode() for row in rows]
    return [row.tolist() for row in rows]
