"""The inputs of the paper's tasks, and the tokenization of their texts.

Leviathan et al. (2023), Section 4: English to German translation on WMT, summarization
of CNN/DailyMail, unconditional generation on lm1b. The texts have the form of T5
(Raffel et al., 2020): a prefix that names the task, the end id after inputs and
targets.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from experiments.tasks.examples import Examples

# Of T5: 32,000 pieces, to which 100 sentinels are added.
T5_TOKENIZER = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"


class Recipe(NamedTuple):
    """A task of the paper.

    Attributes:
        dataset: its name in TensorFlow Datasets.
        fields: the fields of an example there.
        prefix: before every input; None for a language model, which has no inputs and
            one field, its targets. Otherwise the fields are an input and a target.
    """

    dataset: str
    fields: tuple[str, ...]
    prefix: str | None


GERMAN, SUMMARY = "translate English to German: ", "summarize: "
RECIPES = {
    "lm1b": Recipe("lm1b:1.1.0", ("text",), None),
    "wmt_ende": Recipe("wmt14_translate/de-en:1.0.0", ("en", "de"), GERMAN),
    "cnn_dailymail": Recipe("cnn_dailymail:3.4.0", ("article", "highlights"), SUMMARY),
}


class Subwords(NamedTuple):
    """A tokenizer. encode: text to ids, without an end id. eos: the end id. digest:
    sha256 of its file."""

    encode: Callable[[str], list[int]]
    eos: int
    digest: str


class Line(NamedTuple):
    """The texts of one example as they were read, and their place: a file and its
    line."""

    texts: tuple[str, ...]
    where: str


class TaskRow(NamedTuple):
    """An example in tokens, including end ids, and its texts before tokenization."""

    inputs: list[int]
    targets: list[int]
    text: str
    reference: str
    where: str


def recipe(task: str) -> Recipe:
    """Returns a task by name. Raises ValueError for an unknown name."""
    if task not in RECIPES:
        raise ValueError(f"no task {task!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[task]


def load(path: Path) -> Subwords:
    if not path.is_file():
        raise ValueError(f"no tokenizer {path}: name a SentencePiece model file")
    return from_model(path.read_bytes(), str(path))


def from_model(content: bytes, name: str) -> Subwords:
    """Returns the tokenizer of a model file's content; `name` is for error messages.

    Sentinels that T5 adds at run time are not in the file: <extra_id_0> is plain text.
    Where two splits have equal scores, as in "----", TensorFlow's SentencePiece may
    choose the other one.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise ValueError(f"{name} is not a SentencePiece model: {error}") from None
    if processor.eos_id() < 0:
        raise ValueError(f"{name} has no end id: name a tokenizer that has, as T5's")
    digest = hashlib.sha256(content).hexdigest()
    return Subwords(processor.encode, processor.eos_id(), digest)


def tokenize(
    recipe: Recipe, subwords: Subwords, lines: Iterable[Line]
) -> Iterator[TaskRow]:
    counts = (1,) if recipe.prefix is None else (1, 2)
    for line in lines:
        if len(line.texts) not in counts:
            raise ValueError(
                f"{line.where}: the task reads {' or '.join(map(str, counts))} texts"
                f" an example, found {len(line.texts)}"
            )
        if recipe.prefix is None:
            text, reference = "", line.texts[0]
        else:
            text = recipe.prefix + line.texts[0]
            reference = "".join(line.texts[1:])
        inputs, targets = (
            [*subwords.encode(it), subwords.eos] if it else []
            for it in (text, reference)
        )
        yield TaskRow(inputs, targets, text, reference, line.where)


def collect(rows: Iterable[TaskRow], length: int | None, truncate: bool) -> Examples:
    """Returns the examples of all rows, with inputs of at most `length` ids; None means
    no limit.
    """
    examples = []
    for ids, *others, where in rows:
        if length is not None and len(ids) > length:
            if not truncate:
                raise ValueError(
                    f"{where}: {len(ids)} input tokens, more than the length of"
                    f" {length}: make it longer, or let inputs be truncated"
                )
            ids = ids[: length - 1] + ids[-1:]
        examples.append((ids, *others))
    if not examples:
        raise ValueError("no examples: the files or the split are empty")
    return Examples(*map(list, zip(*examples, strict=True)))
